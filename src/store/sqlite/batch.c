/* batch.c - one transaction: every op of a batch, or none of them.
 *
 * Two kinds of failure, kept apart: a conflict is one op's own and leaves the others alone;
 * anything else (disk full, I/O error) rolls the transaction back and fails the batch. */
#include "store/sqlite/impl.h"
#include <assert.h>

static int run_op(struct store_sqlite *st, struct store_op *op, struct store_stats *counts)
{
    if (!space_may(st, op))
        return SQLITE_OK;
    switch ((enum store_kind)op->kind) {
    case STORE_APPEND:
        return write_append(st, container_of(op, struct store_append, op), counts);
    case STORE_ACK:
        return write_ack(st, container_of(op, struct store_ack, op));
    case STORE_MARK:
        return write_mark(st, container_of(op, struct store_mark, op));
    case STORE_TX:
        return write_tx(st, container_of(op, struct store_tx, op));
    case STORE_ERASE:
        return write_erase(st, container_of(op, struct store_erase, op));
    case STORE_LEASE:
        op->err = BH_REFUSED; /* one process has the file: there is nothing to lease */
        return SQLITE_OK;
    case STORE_FETCH:
    case STORE_LIST:
    case STORE_SCAN:
        break; /* never here: they have a thread of their own */
    }
    assert(!"unknown kind of op");
    return SQLITE_MISUSE;
}

/* The start that could not be counted on a full disk is counted with the first transaction. */
static int begin(struct store_sqlite *st)
{
    int rc = sql_run(&st->main, SQL_BEGIN_WRITE);

    if (rc != SQLITE_OK || !st->boot_pending)
        return rc;
    sqlite3_bind_int64(st->main.sql[SQL_BOOT], 1, (int64_t)st->base.boot);
    return sql_run(&st->main, SQL_BOOT);
}

static int commit(struct store_sqlite *st)
{
    int rc = sql_run(&st->main, SQL_COMMIT);

    if (rc == SQLITE_OK)
        st->boot_pending = false;
    return rc;
}

static int run_all(struct store_sqlite *st, struct store_op *first, struct store_stats *counts)
{
    int rc = begin(st);

    buf_reset(&st->keys);
    st->keys_at_ms = 0;
    for (struct store_op *op = first; op != NULL && rc == SQLITE_OK; op = op->next)
        rc = run_op(st, op, counts);
    if (rc == SQLITE_OK)
        rc = write_seen(st, counts);
    if (rc == SQLITE_OK)
        rc = acked_write(st);
    if (rc == SQLITE_OK)
        rc = commit(st);
    return rc;
}

static void roll_back(struct store_sqlite *st, struct store_op *first)
{
    if (!sqlite3_get_autocommit(st->main.db)) /* some failures have rolled back by themselves */
        sqlite3_exec(st->main.db, "ROLLBACK", NULL, NULL, NULL);
    for (struct store_op *op = first; op != NULL; op = op->next)
        if (op->err != BH_BUSY)
            op->err = BH_UNAVAILABLE;
}

static int try_batch(struct store_sqlite *st, struct store_op *first, struct store_stats *counts)
{
    st->batch_problem[0] = '\0';
    for (struct store_op *op = first; op != NULL; op = op->next)
        op->err = BH_OK;
    int rc = run_all(st, first, counts);
    acked_batch_end(&st->acked, rc == SQLITE_OK);
    if (rc == SQLITE_OK) {
        counts->commits = 1;
        return rc;
    }
    note_problem(st, "transaction failed", rc);
    roll_back(st, first);
    counts->shrunk = counts->rows_written = counts->keys_written = 0;
    return rc;
}

/* What a full disk refused is tried again with less: see space.c. */
static void run_batch(struct store_sqlite *st, struct store_op *first, struct store_stats *counts)
{
    int rc;

    space_look(st, false);
    do
        rc = try_batch(st, first, counts);
    while (rc != SQLITE_OK && space_is_out(st, rc) && space_hit(st));
    for (struct store_op *op = first; op != NULL; op = op->next)
        counts->failed_ops += op->err == BH_UNAVAILABLE || op->err == BH_REFUSED;
    memcpy(counts->problem, st->batch_problem, sizeof counts->problem);
}

void batch_run(struct store *base, struct store_op *first, struct store_stats *counts)
{
    struct store_sqlite *st = sqlite_of(base);

    pthread_mutex_lock(&st->db_lock);
    run_batch(st, first, counts);
    space_tell(st);
    pthread_mutex_unlock(&st->db_lock);
}

bool batch_forget(struct store *base, int64_t before_ms)
{
    struct store_sqlite *st = sqlite_of(base);

    pthread_mutex_lock(&st->db_lock);
    sqlite3_bind_int64(st->main.sql[SQL_FORGET], 1, before_ms);
    sqlite3_bind_int(st->main.sql[SQL_FORGET], 2, FORGET_ROWS);
    int n = sql_run(&st->main, SQL_FORGET) == SQLITE_OK ? sqlite3_changes(st->main.db) : -1;
    pthread_mutex_unlock(&st->db_lock);

    if (n < 0)
        log_warn(&st->log, "forgetting old deduplication keys: %s; tried again later",
                 sqlite3_errmsg(st->main.db));
    return n < FORGET_ROWS;
}

bool batch_probe(struct store_sqlite *st)
{
    int rc = begin(st);

    st->batch_problem[0] = '\0';
    if (rc == SQLITE_OK)
        rc = sql_run(&st->main, SQL_PROBE);
    if (rc == SQLITE_OK)
        rc = commit(st);
    if (rc == SQLITE_OK)
        return true;
    note_problem(st, "transaction failed", rc);
    if (space_is_out(st, rc))
        space_hit(st);
    roll_back(st, NULL);
    return false;
}
