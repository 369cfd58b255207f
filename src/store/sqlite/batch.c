/* batch.c - the write thread's work: one transaction with every op of a batch or none of them, and
 * the upkeep between transactions.
 *
 * There are two kinds of failure.  A conflict fails one op and leaves the others alone.  Any other
 * error (disk full, I/O error) rolls the transaction back and fails the batch. */
#include "store/sqlite/impl.h"
#include <assert.h>

/* ---- the writing ops, each inside the transaction of its batch ---- */
/* Each sets op->err and answers SQLITE_OK, or answers the code of a failure that takes the whole
 * transaction down. */

/* A failure that is the op's own is noted in it and the batch goes on. */
static int settle(struct store_op *op, int rc)
{
    switch (rc & 0xff) {
    case SQLITE_CONSTRAINT:
        op->err = BH_CONFLICT;
        return SQLITE_OK;
    case SQLITE_TOOBIG:
        op->err = BH_REFUSED;
        return SQLITE_OK;
    default:
        return rc;
    }
}

static void add_key(struct store_sqlite *st, struct hash128 key, int64_t at_ms)
{
    result_add_key(&st->keys, key);
    if (at_ms > st->keys_at_ms)
        st->keys_at_ms = at_ms;
}

static int run_kv(struct store_sqlite *st, struct store_op *op, const struct store_kv *kv)
{
    static const enum statement by_verb[] = {[KV_PUT] = SQL_KV_PUT,
                                             [KV_INSERT] = SQL_KV_INSERT,
                                             [KV_DELETE] = SQL_KV_DELETE,
                                             [KV_CONSUME] = SQL_KV_DELETE};
    enum statement s = by_verb[kv->verb];
    sqlite3_stmt *q = st->main.sql[s];

    sqlite3_bind_text(q, 1, kv->ns, -1, SQLITE_STATIC);
    sql_bind_bytes(q, 2, kv->key);
    if (s != SQL_KV_DELETE)
        sql_bind_bytes(q, 3, kv->value);
    int rc = settle(op, sql_run(&st->main, s));
    if (rc == SQLITE_OK && kv->verb == KV_CONSUME && sqlite3_changes(st->main.db) == 0)
        op->err = BH_CONFLICT;
    return rc;
}

static int insert_row(struct store_sqlite *st, const struct store_append *a)
{
    sqlite3_stmt *q = st->main.sql[SQL_APPEND];

    assert(a->id > 0 && a->id <= INT64_MAX);
    sqlite3_bind_int64(q, 1, (int64_t)a->id);
    sqlite3_bind_int64(q, 2, a->box);
    sqlite3_bind_int(q, 3, a->row_kind);
    sqlite3_bind_int(q, 4, a->flags);
    sqlite3_bind_int64(q, 5, a->at_ms);
    sql_bind_bytes(q, 6, a->frame);
    return sql_run(&st->main, SQL_APPEND);
}

static int write_append(struct store_sqlite *st, struct store_append *a, struct store_stats *counts)
{
    const struct store_extra *x = a->extra;
    int rc = SQLITE_OK;

    if (worker_take_append(a)) {
        rc = settle(&a->op, insert_row(st, a));
        if (rc != SQLITE_OK || a->op.err != BH_OK)
            return rc; /* no row, no key */
        counts->rows_written++;
    } else {
        counts->shrunk += worker_stands_for(&a->op);
    }
    if (a->has_key)
        add_key(st, a->key, a->at_ms);
    if (a->replaces != 0)
        acked_add(&st->acked, a->replaces);
    for (size_t i = 0; x != NULL && i < x->n_keys; i++)
        add_key(st, x->keys[i], a->at_ms);
    for (size_t i = 0; x != NULL && i < x->n_puts && rc == SQLITE_OK; i++)
        rc = run_kv(st, &a->op, &x->puts[i]);
    return rc;
}

static int write_mark(struct store_sqlite *st, struct store_mark *m)
{
    sqlite3_stmt *q = st->main.sql[SQL_MARK];
    sqlite3_bind_int64(q, 1, (int64_t)m->id);
    sqlite3_bind_int64(q, 2, m->attempts);
    if (m->parked.p != NULL)
        sqlite3_bind_text64(q, 3, m->parked.p, m->parked.n, SQLITE_STATIC, SQLITE_UTF8);
    else
        sqlite3_bind_null(q, 3);
    if (m->frame.p != NULL)
        sql_bind_bytes(q, 4, m->frame);
    else
        sqlite3_bind_null(q, 4);
    return settle(&m->op, sql_run(&st->main, SQL_MARK));
}

/* One statement undoes itself; only several need a savepoint. */
static int write_tx(struct store_sqlite *st, struct store_tx *t)
{
    int rc = t->n > 1 ? sql_run(&st->main, SQL_SAVEPOINT) : SQLITE_OK;

    for (size_t i = 0; i < t->n && rc == SQLITE_OK && t->op.err == BH_OK; i++)
        rc = run_kv(st, &t->op, &t->items[i]);
    if (t->n > 1 && rc == SQLITE_OK && t->op.err != BH_OK)
        rc = sql_run(&st->main, SQL_UNDO);
    if (t->n > 1 && rc == SQLITE_OK)
        rc = sql_run(&st->main, SQL_RELEASE);
    return rc;
}

/* ---- erase ---- */

/* The last key of those that go now, into scratch; how many they are. */
static int erase_plan(struct store_sqlite *st, struct store_erase *e)
{
    sqlite3_stmt *q = st->main.sql[SQL_SCAN_UP];
    int rc;

    sqlite3_bind_text(q, 1, e->ns, -1, SQLITE_STATIC);
    sql_bind_bytes(q, 2, e->prefix);
    while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
        struct str key = sql_bytes(q, 0);
        if (!str_starts(key, e->prefix) || (e->end.p != NULL && str_cmp(key, e->end) >= 0))
            break;
        e->more = e->n == STORE_ERASE_ITEMS;
        if (e->more)
            break;
        buf_reset(&st->main.scratch);
        buf_add_str(&st->main.scratch, key);
        e->n++;
    }
    sqlite3_reset(q);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int write_erase(struct store_sqlite *st, struct store_erase *e)
{
    sqlite3_stmt *q = st->main.sql[SQL_KV_ERASE];
    int rc;

    e->n = 0;
    e->more = false;
    rc = erase_plan(st, e);
    if (rc != SQLITE_OK || e->n == 0)
        return rc;
    sqlite3_bind_text(q, 1, e->ns, -1, SQLITE_STATIC);
    sql_bind_bytes(q, 2, e->prefix);
    sql_bind_bytes(q, 3, buf_str(&st->main.scratch));
    return sql_run(&st->main, SQL_KV_ERASE);
}

/* ---- the keys of the batch ---- */

static int write_seen(struct store_sqlite *st, struct store_stats *counts)
{
    sqlite3_stmt *q = st->main.sql[SQL_SEEN];

    if (st->keys.n == 0)
        return SQLITE_OK;
    sqlite3_bind_int64(q, 1, st->keys_at_ms);
    sql_bind_bytes(q, 2, buf_str(&st->keys));
    counts->keys_written += st->keys.n / sizeof(struct hash128);
    return sql_run(&st->main, SQL_SEEN);
}

/* ---- one transaction ---- */

static int run_op(struct store_sqlite *st, struct store_op *op, struct store_stats *counts)
{
    const struct store_ack *ack = container_of(op, const struct store_ack, op);

    if (!space_may(st, op))
        return SQLITE_OK;
    switch ((enum store_kind)op->kind) {
    case STORE_APPEND:
        return write_append(st, container_of(op, struct store_append, op), counts);
    case STORE_ACK:
        for (size_t i = 0; i < ack->n; i++)
            acked_add(&st->acked, ack->ids[i]);
        return SQLITE_OK;
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
    sqlite3_bind_int64(st->main.sql[SQL_BOOT], 1, (int64_t)st->worker.base.boot);
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

void batch_run(struct store *base, struct store_op *first, struct store_stats *counts)
{
    struct store_sqlite *st = sqlite_of(base);
    int rc;

    pthread_mutex_lock(&st->db_lock);
    space_look(st, false);
    do /* a transaction that a full disk refused is tried again with less: see space.c */
        rc = try_batch(st, first, counts);
    while (rc != SQLITE_OK && space_is_out(st, rc) && space_hit(st));
    for (struct store_op *op = first; op != NULL; op = op->next)
        counts->failed_ops += op->err == BH_UNAVAILABLE || op->err == BH_REFUSED;
    memcpy(counts->problem, st->batch_problem, sizeof counts->problem);
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
        log_warn(&st->log, "cannot delete old deduplication keys: %s; retrying later",
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

/* ---- what the write thread does beside its batches ---- */

int64_t maintain_due_us(struct store *base)
{
    const struct store_sqlite *st = sqlite_of(base);
    int64_t now = thread_now_us(), due = 0;

    if (st->acked.n > 0)
        due = now + PURGE_QUIET_MS * 1000;
    if (due != 0 && due < st->acked.retry_us)
        due = st->acked.retry_us;
    bool look = !engine_is_healthy(st->worker.engine) || st->space.state != SPACE_ROOMY;
    if (look && (due == 0 || due > now + PROBE_MS * 1000))
        due = now + PROBE_MS * 1000;
    return due;
}

static bool purge_some(struct store_sqlite *st, size_t max_rows)
{
    pthread_mutex_lock(&st->db_lock);
    bool ok = acked_purge(st, max_rows);
    pthread_mutex_unlock(&st->db_lock);
    st->acked.retry_us = ok ? 0 : thread_now_us() + PURGE_RETRY_MS * 1000;
    return ok;
}

/* Delete settled rows: slice by slice while it is quiet, else as many as have to go now. */
static void purge_acked(struct store_sqlite *st, bool quiet)
{
    struct acked *a = &st->acked;
    int64_t now = thread_now_us();

    if (a->n == 0)
        a->since_us = 0;
    else if (a->since_us == 0)
        a->since_us = now;
    if (a->n == 0 || now < a->retry_us)
        return;
    if (quiet) {
        size_t before = SIZE_MAX;
        while (a->n > 0 && a->n < before && !engine_has_work(st->worker.engine)) {
            before = a->n;
            if (!purge_some(st, PURGE_ROWS))
                break;
        }
    } else if (a->n >= PURGE_BACKLOG || now - a->since_us > PURGE_LATE_MS * 1000) {
        if (a->plan == NULL)
            a->since_us = now; /* those that come from now on wait for the next purge */
        purge_some(st, a->n / 16 > PURGE_ROWS ? a->n / 16 : PURGE_ROWS);
    }
}

/* While writes fail, the relay may submit none: it closes gateways with "try later", and /readyz
 * tells load balancers.  So the store itself finds out when writing works again. */
static void probe(struct store_sqlite *st)
{
    struct store_stats counts = {0};

    if (engine_is_healthy(st->worker.engine))
        return;
    pthread_mutex_lock(&st->db_lock);
    counts.commits = batch_probe(st);
    memcpy(counts.problem, st->batch_problem, sizeof counts.problem);
    pthread_mutex_unlock(&st->db_lock);
    worker_count(&st->worker, &counts);
}

/* Free pages go back to the disk while it is quiet: when room is short, or most of the file is
 * free.  True: there is more to do. */
static bool vacuum_some(struct store_sqlite *st)
{
    int64_t pages = 0, before = 0, after = 0;

    if (!sql_number(st->main.db, "PRAGMA freelist_count", &before) || before == 0 ||
        !sql_number(st->main.db, "PRAGMA page_count", &pages) ||
        (st->space.state == SPACE_ROOMY && (before < VACUUM_PAGES || before < pages / 2)))
        return false;
    sqlite3_exec(st->main.db, "PRAGMA incremental_vacuum(512)", NULL, NULL, NULL);
    return sql_number(st->main.db, "PRAGMA freelist_count", &after) && after < before;
}

static void vacuum_file(struct store_sqlite *st, bool quiet)
{
    bool more = quiet, any = false;

    while (more && !engine_has_work(st->worker.engine)) {
        pthread_mutex_lock(&st->db_lock);
        more = vacuum_some(st);
        pthread_mutex_unlock(&st->db_lock);
        any |= more;
    }
    pthread_mutex_lock(&st->db_lock);
    if (any) /* the file gets smaller when the log is written back */
        sqlite3_wal_checkpoint_v2(st->main.db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    space_look(st, any);
    space_tell(st);
    pthread_mutex_unlock(&st->db_lock);
}

void maintain(struct store *base, bool quiet)
{
    struct store_sqlite *st = sqlite_of(base);

    if (quiet)
        probe(st);
    purge_acked(st, quiet);
    vacuum_file(st, quiet);
    checkpoint_maintain(st);
}
