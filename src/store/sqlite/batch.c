/* batch.c - one transaction: every op of a batch, or none of its writes.
 *
 * Three kinds of failure, kept apart: a conflict is one op's own and leaves the others alone; a
 * read that fails fails alone; anything else (disk full, I/O error) rolls the transaction back and
 * fails every write of the batch.  Reads are then run again, for what they saw is gone. */
#include "store/sqlite/impl.h"
#include <assert.h>

static bool is_read(const struct store_op *op)
{
    return op->kind == STORE_FETCH || op->kind == STORE_SCAN;
}

static void run_read(struct store_sqlite *st, struct store_op *op)
{
    if (op->kind == STORE_FETCH)
        read_fetch(st, container_of(op, struct store_fetch, op));
    else
        read_scan(st, container_of(op, struct store_scan, op));
}

static int run_op(struct store_sqlite *st, struct store_op *op, struct store_stats *counts)
{
    switch ((enum store_kind)op->kind) {
    case STORE_APPEND:
        return write_append(st, container_of(op, struct store_append, op), counts);
    case STORE_ACK:
        return write_ack(st, container_of(op, struct store_ack, op));
    case STORE_MARK:
        return write_mark(st, container_of(op, struct store_mark, op));
    case STORE_TX:
        return write_tx(st, container_of(op, struct store_tx, op));
    case STORE_FETCH:
    case STORE_SCAN:
        run_read(st, op);
        return SQLITE_OK;
    }
    assert(!"unknown kind of op");
    return SQLITE_MISUSE;
}

static int run_all(struct store_sqlite *st, struct store_op *first, bool writes,
                   struct store_stats *counts)
{
    int rc = sql_run(st, writes ? SQL_BEGIN_WRITE : SQL_BEGIN_READ);

    buf_reset(&st->keys);
    st->keys_at_ms = 0;
    for (struct store_op *op = first; op != NULL && rc == SQLITE_OK; op = op->next)
        rc = run_op(st, op, counts);
    if (rc == SQLITE_OK)
        rc = write_seen(st, counts);
    if (rc == SQLITE_OK)
        rc = acked_write(st);
    if (rc == SQLITE_OK)
        rc = sql_run(st, SQL_COMMIT);
    return rc;
}

static void roll_back(struct store_sqlite *st, struct store_op *first)
{
    if (!sqlite3_get_autocommit(st->db)) /* some failures have rolled back by themselves */
        sqlite3_exec(st->db, "ROLLBACK", NULL, NULL, NULL);
    for (struct store_op *op = first; op != NULL; op = op->next) {
        if (!is_read(op)) {
            op->err = BH_UNAVAILABLE;
            continue;
        }
        if (op->kind == STORE_FETCH)
            read_fetch_free(container_of(op, struct store_fetch, op));
        else
            read_scan_free(container_of(op, struct store_scan, op));
        run_read(st, op);
    }
}

void batch_run(struct store_sqlite *st, struct store_op *first, struct store_stats *counts)
{
    bool writes = false;

    st->batch_problem[0] = '\0';
    for (struct store_op *op = first; op != NULL; op = op->next) {
        counts->ops++;
        writes |= !is_read(op);
        if (op->kind == STORE_FETCH) {
            struct store_fetch *f = container_of(op, struct store_fetch, op);
            f->rows = NULL, f->n_rows = 0, f->memory = NULL;
        } else if (op->kind == STORE_SCAN) {
            struct store_scan *s = container_of(op, struct store_scan, op);
            s->records = NULL, s->n_records = 0, s->memory = NULL;
        }
    }
    int rc = run_all(st, first, writes, counts);
    acked_batch_end(&st->acked, rc == SQLITE_OK);
    if (rc == SQLITE_OK) {
        counts->commits = writes;
    } else {
        note_problem(st, writes ? "transaction failed" : "reading failed", rc);
        roll_back(st, first);
        counts->shrunk = counts->rows_written = counts->keys_written = 0;
    }
    for (struct store_op *op = first; op != NULL; op = op->next)
        counts->failed_ops += op->err != BH_OK && op->err != BH_CONFLICT;
}

bool batch_forget(struct store_sqlite *st, int64_t before_ms)
{
    sqlite3_bind_int64(st->sql[SQL_FORGET], 1, before_ms);
    sqlite3_bind_int(st->sql[SQL_FORGET], 2, FORGET_ROWS);
    if (sql_run(st, SQL_FORGET) != SQLITE_OK) {
        log_warn(&st->log, "forgetting old deduplication keys: %s; tried again later",
                 sqlite3_errmsg(st->db));
        return true;
    }
    return sqlite3_changes(st->db) < FORGET_ROWS;
}

bool batch_probe(struct store_sqlite *st)
{
    int rc = sql_run(st, SQL_BEGIN_WRITE);

    st->batch_problem[0] = '\0';
    if (rc == SQLITE_OK)
        rc = sql_run(st, SQL_PROBE);
    if (rc == SQLITE_OK)
        rc = sql_run(st, SQL_COMMIT);
    if (rc == SQLITE_OK)
        return true;
    note_problem(st, "transaction failed", rc);
    roll_back(st, NULL);
    return false;
}
