/* batch.c - the write thread's work: transactions, leases, and what is done between them.
 *
 *      BEGIN, fate row, lease check, every op   ──> answers
 *      COMMIT                                   ──> answer; lost: the fate row tells (fate.c)
 *
 * COMMIT is sent after the answer to the fate row, so a commit whose answer is lost can always be
 * looked up.  If the lookup fails for COMMIT_LOOKUP_MS, the ops end with BH_UNKNOWN and the
 * transaction is in doubt.  No other transaction begins before its fate is known, so a retry never
 * meets its own first try.
 *
 *      again    collided with another transaction: the same once more
 *      failed   the server said no: each op on its own, so that the others are done
 *      lost     before COMMIT, nothing happened: once more on a new line, then BH_UNAVAILABLE
 *
 * A lease is a statement of its own, outside these transactions. */
#include "store/postgres/impl.h"
#include <stdio.h>

static void read_plain(struct store_postgres *st, enum line_end *into)
{
    PGresult *r;

    line_fold(into, line_answer(&st->main, &r));
    PQclear(r);
}

static void end_round(struct store_postgres *st, enum line_end *into)
{
    if (*into != LINE_LOST)
        line_fold(into, line_done(&st->main));
}

/* ---- one transaction ---- */

static enum line_end read_fate(struct store_postgres *st)
{
    PGresult *r;
    enum line_end e = line_answer(&st->main, &r);

    if (r != NULL) {
        pg_mark_read(&st->mark, r);
        PQclear(r);
    }
    return e;
}

/* False: the store is not guarded. */
static bool ask_guard(struct store_postgres *st)
{
    uint64_t epoch = __atomic_load_n(&st->worker.base.guard.epoch, __ATOMIC_ACQUIRE);

    if (epoch == 0)
        return false;
    params_reset(&st->params);
    param_bytes(&st->params, st->worker.base.guard.name);
    param_i64(&st->params, (int64_t)epoch);
    line_ask(&st->main, PG_GUARD, &st->params);
    return true;
}

static enum line_end read_guard(struct store_postgres *st)
{
    PGresult *r;
    enum line_end e = line_answer(&st->main, &r);

    if (e == LINE_OK && PQntuples(r) == 0) {
        snprintf(st->main.problem, sizeof st->main.problem, "another process serves by now");
        e = LINE_FENCED;
    }
    PQclear(r);
    return e;
}

static enum line_end write_ops(struct store_postgres *st, struct store_op *first,
                               struct store_op *end)
{
    enum line_end e = LINE_OK;

    line_begin(&st->main, st->answer_ms);
    line_ask(&st->main, PG_BEGIN, NULL);
    pg_mark_next(&st->mark);
    params_reset(&st->params);
    param_i64(&st->params, st->mark.writer);
    param_i64(&st->params, st->mark.n);
    line_ask(&st->main, PG_FATE, &st->params);
    bool guarded = ask_guard(st);
    pg_write_ask(st, first, end);
    line_send(&st->main);

    read_plain(st, &e);
    if (e != LINE_LOST)
        line_fold(&e, read_fate(st));
    if (e != LINE_LOST && guarded)
        line_fold(&e, read_guard(st));
    if (e != LINE_LOST)
        line_fold(&e, pg_write_read(st));
    end_round(st, &e);
    return e;
}

static enum line_end end_with(struct store_postgres *st, enum pg_statement how)
{
    enum line_end e = LINE_OK;

    line_begin(&st->main, st->answer_ms);
    line_ask(&st->main, how, NULL);
    line_send(&st->main);
    read_plain(st, &e);
    end_round(st, &e);
    return e;
}

static void set_all(struct store_op *first, struct store_op *end, enum bh_err err)
{
    for (struct store_op *op = first; op != end; op = op->next)
        op->err = (uint8_t)err;
}

static enum line_end commit(struct store_postgres *st, struct store_op *first, struct store_op *end)
{
    enum line_end e = end_with(st, PG_COMMIT);

    if (e != LINE_LOST)
        return e;
    switch (pg_find_fate(st->url, &st->mark, COMMIT_LOOKUP_MS)) {
    case FATE_DONE:
        return LINE_OK;
    case FATE_UNDONE:
        return LINE_LOST;
    default:
        set_all(first, end, BH_UNKNOWN);
        st->in_doubt = true;
        return LINE_UNKNOWN;
    }
}

/* False: the transaction before is still in doubt. */
static bool settle_doubt(struct store_postgres *st)
{
    if (st->in_doubt)
        st->in_doubt = pg_find_fate(st->url, &st->mark, 0) == FATE_UNKNOWN;
    return !st->in_doubt;
}

static enum line_end try_group(struct store_postgres *st, struct store_op *first,
                               struct store_op *end)
{
    set_all(first, end, BH_OK);
    enum line_end e = write_ops(st, first, end);
    if (e == LINE_OK)
        e = commit(st, first, end);
    if (e == LINE_OK || e == LINE_UNKNOWN || e == LINE_LOST)
        return e;
    char why[sizeof st->main.problem];
    memcpy(why, st->main.problem, sizeof why);
    end_with(st, PG_ROLLBACK);
    memcpy(st->main.problem, why, sizeof why);
    return e;
}

/* ---- a group ---- */

static enum line_end try_often(struct store_postgres *st, struct store_op *first,
                               struct store_op *end)
{
    int64_t until = thread_now_us() + st->answer_ms * 1000;
    enum line_end e = LINE_LOST;
    int lost = 0;

    for (int i = 0; i < BATCH_TRIES && (e != LINE_AGAIN || thread_now_us() < until); i++) {
        if (!settle_doubt(st) || !line_open(&st->main, st->url, LINE_WRITES))
            return LINE_LOST;
        e = try_group(st, first, end);
        if (e != LINE_AGAIN && (e != LINE_LOST || lost++ > 0))
            break;
    }
    return e;
}

static void count_group(struct store_op *first, struct store_op *end, struct store_stats *counts)
{
    counts->commits++;
    for (struct store_op *op = first; op != end; op = op->next) {
        const struct store_append *a = container_of(op, struct store_append, op);
        if (op->kind != STORE_APPEND)
            continue;
        counts->shrunk += a->shrunk ? worker_stands_for(&a->op) : 0;
        counts->rows_written += !a->shrunk;
        counts->keys_written += a->has_key + (a->extra != NULL ? a->extra->n_keys : 0);
    }
}

/* When the server has no room, only ops that add data fail; the others may pass when retried. */
static void refuse(struct store_op *first, struct store_op *end, enum line_end e)
{
    for (struct store_op *op = first; op != end; op = op->next) {
        bool is_new = op->kind == STORE_APPEND ||
                      (op->kind == STORE_TX && container_of(op, struct store_tx, op)->bulk);
        op->err = e == LINE_FULL && is_new ? BH_BUSY
                  : e == LINE_FAILED       ? BH_REFUSED
                  : e == LINE_FENCED       ? BH_FENCED
                                           : BH_UNAVAILABLE;
    }
}

/* LINE_FAILED, unless @alone: nothing was done or settled, and one of the ops is to blame. */
static enum line_end run_one(struct store_postgres *st, struct store_op *first,
                             struct store_op *end, bool alone, struct store_stats *counts)
{
    for (struct store_op *op = first; op != end; op = op->next)
        if (op->kind == STORE_APPEND) {
            struct store_append *a = container_of(op, struct store_append, op);
            a->shrunk = !worker_take_append(a);
        }
    enum line_end e = try_often(st, first, end);
    if (e == LINE_OK) {
        count_group(first, end, counts);
        return e;
    }
    if (e == LINE_FAILED && !alone)
        return e;
    snprintf(st->batch_problem, sizeof st->batch_problem, "%.150s", st->main.problem);
    if (e != LINE_UNKNOWN)
        refuse(first, end, e);
    return e;
}

/* Behind @op and the appends that are tied to it. */
static struct store_op *unit_end(struct store_op *op, struct store_op *end)
{
    for (op = op->next; op != end && op_is_tied(op);)
        op = op->next;
    return op;
}

static void run_group(struct store_postgres *st, struct store_op *first, struct store_op *end,
                      struct store_stats *counts)
{
    int64_t until = thread_now_us() + st->answer_ms * 1000;
    bool alone = unit_end(first, end) == end;
    struct store_op *op = first;

    if (run_one(st, first, end, alone, counts) != LINE_FAILED || alone)
        return;
    for (struct store_op *next; op != end && thread_now_us() < until; op = next) {
        next = unit_end(op, end); /* each on its own */
        run_one(st, op, next, true, counts);
    }
    refuse(op, end, LINE_LOST); /* a slow server would keep them waiting one after the other */
}

/* ---- leases ---- */

static void settle_lease(struct store_lease *l, const PGresult *r)
{
    static const enum bh_err ends[] = {BH_OK, BH_CONFLICT, BH_FENCED};
    struct str holder = column_bytes(r, 0, 3);
    int64_t end = column_int(r, 0, 0);

    l->op.err = (uint8_t)(end >= 0 && end < 3 ? ends[end] : BH_UNAVAILABLE);
    if (end == 0 && l->verb == LEASE_TAKE)
        l->epoch = (uint64_t)column_int(r, 0, 1);
    if (end != 1)
        return;
    l->left_ms = column_int(r, 0, 2);
    size_t n = holder.n < sizeof l->holder ? holder.n : sizeof l->holder - 1;
    memset(l->holder, 0, sizeof l->holder);
    if (n > 0)
        memcpy(l->holder, holder.p, n);
}

/* The database has the only clock that all nodes agree on.  A lease granted in an answer that never
 * came runs out by itself, and a second request gets a larger epoch. */
enum line_end pg_lease_ask(struct pg_line *line, struct params *p, int64_t answer_ms,
                           struct store_lease *l)
{
    PGresult *r;

    params_reset(p);
    param_i32(p, (int32_t)l->verb);
    param_bytes(p, l->name);
    param_bytes(p, l->owner);
    param_i64(p, l->ttl_ms);
    param_i64(p, (int64_t)l->epoch);
    line_begin(line, answer_ms);
    line_ask(line, PG_LEASE, p);
    line_send(line);
    enum line_end e = line_answer(line, &r);
    if (r != NULL) {
        settle_lease(l, r);
        PQclear(r);
    }
    if (e != LINE_LOST && line_done(line) == LINE_LOST)
        return LINE_LOST;
    return e;
}

static void run_lease(struct store_postgres *st, struct store_op *op, struct store_stats *counts)
{
    struct store_lease *l = container_of(op, struct store_lease, op);
    enum line_end e = LINE_LOST;

    if (l->owner.n == 0 || l->owner.n >= STORE_OWNER_BYTES || l->name.n == 0) {
        op->err = BH_REFUSED;
        return;
    }
    for (int i = 0; i < 2 && e != LINE_OK && line_open(&st->main, st->url, LINE_WRITES); i++)
        e = pg_lease_ask(&st->main, &st->params, st->answer_ms, l);
    if (e == LINE_OK) {
        counts->commits++;
        return;
    }
    snprintf(st->batch_problem, sizeof st->batch_problem, "%.150s", st->main.problem);
    op->err = BH_UNAVAILABLE;
}

/* ---- the face ---- */

void pg_batch_run(struct store *base, struct store_op *first, struct store_stats *counts)
{
    struct store_postgres *st = postgres_of(base);

    pthread_mutex_lock(&st->db_lock);
    st->batch_problem[0] = '\0';
    for (struct store_op *op = first, *end; op != NULL; op = end) {
        end = op->next;
        if (op->kind == STORE_LEASE) {
            run_lease(st, op, counts);
            continue;
        }
        while (end != NULL && end->kind != STORE_LEASE)
            end = end->next;
        run_group(st, op, end, counts);
    }
    for (struct store_op *op = first; op != NULL; op = op->next)
        counts->failed_ops +=
            op->err == BH_UNAVAILABLE || op->err == BH_REFUSED || op->err == BH_UNKNOWN;
    memcpy(counts->problem, st->batch_problem, sizeof counts->problem);
    pthread_mutex_unlock(&st->db_lock);
}

/* One statement outside a transaction; its number, or -1. */
static int64_t ask_number(struct store_postgres *st, enum pg_statement s, struct params *p)
{
    PGresult *r = NULL;
    int64_t n = -1;

    if (!settle_doubt(st) || !line_open(&st->main, st->url, LINE_WRITES))
        return -1;
    line_begin(&st->main, st->answer_ms);
    line_ask(&st->main, s, p);
    line_send(&st->main);
    enum line_end e = line_answer(&st->main, &r);
    if (r != NULL) {
        n = column_int(r, 0, 0);
        PQclear(r);
    }
    end_round(st, &e);
    return e == LINE_OK ? n : -1;
}

bool pg_batch_forget(struct store *base, int64_t before_ms)
{
    struct store_postgres *st = postgres_of(base);

    pthread_mutex_lock(&st->db_lock);
    params_reset(&st->params);
    param_i64(&st->params, before_ms);
    param_i64(&st->params, FORGET_ROWS);
    int64_t n = ask_number(st, PG_FORGET, &st->params);
    pthread_mutex_unlock(&st->db_lock);
    if (n < 0)
        log_warn(&st->log, "cannot delete old deduplication keys: %s; retrying later",
                 st->main.problem);
    return n < FORGET_ROWS;
}

int64_t pg_batch_maintain_due_us(struct store *base)
{
    struct store_postgres *st = postgres_of(base);

    if (!engine_is_healthy(st->worker.engine))
        return thread_now_us() + LINE_RETRY_MS * 1000;
    return st->look_us;
}

/* While the server is away perhaps nobody submits a write, so the store looks itself whether the
 * server is back. */
void pg_batch_maintain(struct store *base, bool quiet)
{
    struct store_postgres *st = postgres_of(base);
    struct store_stats counts = {0};
    bool ill = !engine_is_healthy(st->worker.engine);

    if (!quiet || (!ill && thread_now_us() < st->look_us))
        return;
    pthread_mutex_lock(&st->db_lock);
    int64_t bytes = ask_number(st, PG_SIZE, NULL);
    st->look_us = thread_now_us() + SIZE_LOOK_MS * 1000;
    if (bytes >= 0)
        __atomic_store_n(&st->told_bytes, bytes, __ATOMIC_RELAXED);
    counts.commits = bytes >= 0;
    if (bytes < 0)
        snprintf(counts.problem, sizeof counts.problem, "%.150s", st->main.problem);
    pthread_mutex_unlock(&st->db_lock);
    if (ill || bytes < 0)
        worker_count(&st->worker, &counts);
}
