/* batch.c - groups of ops, each one transaction: every op of it, or none.
 *
 *      BEGIN, mark, fences, keys,
 *      numbers                      ──> answers     may it be written, and as what?
 *      every op, COMMIT             ──> answers     lost on the way: asked for on another line
 *
 * What fails before COMMIT keeps the server from it.  Where an answer tells an op more than that it
 * was done (a conflict is one op's own), COMMIT waits for the answers and is a round of its own:
 * one that was lost with the line could not be had any more.
 *
 *      again    collided with another node: the same once more
 *      failed   the server said no: each op on its own, so that the others are done
 *      lost     before COMMIT, nothing happened: once more on a new line, then BH_UNAVAILABLE
 *
 * A lease is a group of its own, so that fences behind it are asked after it. */
#include "store/postgres/impl.h"
#include <stdio.h>

enum { ASKED = 1, ASKED_REPLACED = 2 };

/* The first no of a round counts, unless the line went. */
static void fold(enum line_end *into, enum line_end e)
{
    if (e == LINE_LOST || *into == LINE_OK)
        *into = e;
}

static void read_plain(struct store_postgres *st, enum line_end *into)
{
    PGresult *r;

    fold(into, line_answer(&st->main, &r));
    if (r != NULL)
        PQclear(r);
}

static void end_round(struct store_postgres *st, enum line_end *into)
{
    if (*into != LINE_LOST)
        fold(into, line_done(&st->main));
}

/* ---- one transaction ---- */

static void ask_mark(struct store_postgres *st)
{
    pg_mark_next(&st->mark);
    params_reset(&st->params);
    param_i64(&st->params, st->mark.writer);
    param_i64(&st->params, st->mark.n);
    line_ask(&st->main, PG_FATE, &st->params);
}

static enum line_end begin(struct store_postgres *st, struct store_op *first, struct store_op *end)
{
    enum line_end e = LINE_OK;
    PGresult *r;

    line_begin(&st->main, st->answer_ms);
    line_ask(&st->main, PG_BEGIN, NULL);
    ask_mark(st);
    bool fences = pg_owner_ask_fences(st, first, end);
    pg_plan_ask(st);
    line_send(&st->main);

    read_plain(st, &e);
    if (e != LINE_LOST)
        fold(&e, line_answer(&st->main, &r));
    if (e == LINE_OK && r != NULL)
        pg_mark_read(&st->mark, r);
    if (e != LINE_LOST && r != NULL)
        PQclear(r);
    if (e != LINE_LOST && fences)
        fold(&e, pg_owner_read_fences(st, first, end));
    if (e != LINE_LOST)
        fold(&e, pg_plan_read(st));
    end_round(st, &e);
    return e;
}

/* The answers come in the order of the questions; @asked has a mark for each run. */
static enum line_end read_runs(struct store_postgres *st, struct store_op *first,
                               struct store_op *end)
{
    const char *mark = buf_str(&st->asked).p;
    enum line_end e = LINE_OK;

    for (struct store_op *op = first, *next; op != end; op = next, mark++) {
        next = pg_write_run_end(op, end);
        if (e != LINE_LOST && (*mark & ASKED) != 0)
            fold(&e, pg_write_read(st, op, next));
        if (e != LINE_LOST && (*mark & ASKED_REPLACED) != 0)
            read_plain(st, &e);
    }
    return e;
}

/* @commit: at once. */
static enum line_end write_all(struct store_postgres *st, struct store_op *first,
                               struct store_op *end, bool commit)
{
    line_begin(&st->main, st->answer_ms);
    buf_reset(&st->asked);
    for (struct store_op *op = first, *next; op != end; op = next) {
        next = pg_write_run_end(op, end);
        char mark = pg_write_ask(st, op, next) ? ASKED : 0;
        if (pg_write_ask_replaced(st, op, next))
            mark |= ASKED_REPLACED;
        buf_add_c(&st->asked, mark);
    }
    int more = pg_plan_ask_keys(st);
    if (commit) {
        line_ask(&st->main, PG_COMMIT, NULL);
        more++;
    }
    line_send(&st->main);

    enum line_end e = read_runs(st, first, end);
    for (int i = 0; i < more && e != LINE_LOST; i++)
        read_plain(st, &e);
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

/* ---- a group ---- */

static void set_all(struct store_op *first, struct store_op *end, enum bh_err err)
{
    for (struct store_op *op = first; op != end; op = op->next)
        op->err = (uint8_t)err;
}

/* The line went while it committed. */
static enum line_end look_up(struct store_postgres *st, struct store_op *first,
                             struct store_op *end)
{
    switch (pg_find_fate(st->url, &st->mark, COMMIT_LOOKUP_MS)) {
    case FATE_DONE:
        return LINE_OK;
    case FATE_UNDONE:
        return LINE_LOST;
    default:
        set_all(first, end, BH_UNKNOWN);
        pg_limbo_add(st);
        return LINE_UNKNOWN;
    }
}

static enum line_end try_group(struct store_postgres *st, struct store_op *first,
                               struct store_op *end)
{
    bool at_once = !pg_write_tells_more(first, end), asked = false;

    set_all(first, end, BH_OK);
    enum line_end e = begin(st, first, end);
    if (e == LINE_OK) {
        asked = at_once;
        e = write_all(st, first, end, at_once);
    }
    if (e == LINE_OK && !at_once) {
        asked = true;
        e = end_with(st, PG_COMMIT);
    }
    if (e == LINE_LOST && asked)
        e = look_up(st, first, end);
    if (e == LINE_OK)
        return e;
    pg_plan_undo(st);
    if (e == LINE_UNKNOWN)
        return e;
    char why[sizeof st->main.problem];
    memcpy(why, st->main.problem, sizeof why);
    if (e != LINE_LOST)
        end_with(st, PG_ROLLBACK);
    memcpy(st->main.problem, why, sizeof why);
    return e;
}

static enum line_end try_often(struct store_postgres *st, struct store_op *first,
                               struct store_op *end)
{
    int64_t until = worker_now_us() + st->answer_ms * 1000;
    enum line_end e = LINE_LOST;
    int lost = 0;

    for (int i = 0; i < BATCH_TRIES && (e != LINE_AGAIN || worker_now_us() < until); i++) {
        if (!pg_limbo_settle(st) || !line_open(&st->main, st->url, LINE_WRITES))
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
        if (op->kind != STORE_APPEND || a->exists)
            continue;
        counts->shrunk += a->shrunk;
        counts->rows_written += !a->shrunk;
        counts->keys_written += a->has_key;
    }
}

/* What the server has no room for is new work; the rest may pass when it is tried again. */
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

/* LINE_FAILED: nothing was done or settled, and somebody in here is to blame. */
static enum line_end run_one(struct store_postgres *st, struct store_op *first,
                             struct store_op *end, struct store_stats *counts)
{
    struct store_op *front = pg_order_begin(&st->order, first, end);

    pg_plan_begin(st, front, end);
    enum line_end e = try_often(st, front, end);
    pg_order_end(&st->order, end);
    if (e == LINE_OK) {
        count_group(first, end, counts);
        return e;
    }
    if (e == LINE_FAILED && first->next != end)
        return e;
    snprintf(st->batch_problem, sizeof st->batch_problem, "%.150s", st->main.problem);
    if (e != LINE_UNKNOWN)
        refuse(first, end, e);
    return e;
}

static void run_group(struct store_postgres *st, struct store_op *first, struct store_op *end,
                      struct store_stats *counts)
{
    int64_t until = worker_now_us() + st->answer_ms * 1000;
    struct store_op *op = first;

    if (run_one(st, first, end, counts) != LINE_FAILED || first->next == end)
        return;
    for (; op != end && worker_now_us() < until; op = op->next) /* each on its own */
        run_one(st, op, op->next, counts);
    refuse(op, end, LINE_LOST); /* a slow server would keep them waiting one after the other */
}

static void run_lease(struct store_postgres *st, struct store_op *op, struct store_stats *counts)
{
    struct store_lease *l = container_of(op, struct store_lease, op);
    enum line_end e = LINE_LOST;

    for (int i = 0; i < 2 && e != LINE_OK && line_open(&st->main, st->url, LINE_WRITES); i++)
        e = pg_owner_run(st, l);
    if (e == LINE_OK) {
        counts->commits++;
        return;
    }
    snprintf(st->batch_problem, sizeof st->batch_problem, "%.150s", st->main.problem);
    op->err = BH_UNAVAILABLE;
}

/* ---- the face ---- */

static struct store_op *group_end(struct store_op *first)
{
    struct store_op *op = first->next;

    while (first->kind != STORE_LEASE && op != NULL && op->kind != STORE_LEASE)
        op = op->next;
    return op;
}

void pg_batch_run(struct store *base, struct store_op *first, struct store_stats *counts)
{
    struct store_postgres *st = postgres_of(base);

    pthread_mutex_lock(&st->db_lock);
    st->batch_problem[0] = '\0';
    for (struct store_op *op = first, *end; op != NULL; op = end) {
        end = op->kind == STORE_LEASE ? op->next : group_end(op);
        if (op->kind == STORE_LEASE)
            run_lease(st, op, counts);
        else
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

    if (!line_open(&st->main, st->url, LINE_WRITES))
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

static int64_t forget(struct store_postgres *st, enum pg_statement s, int64_t before_ms)
{
    params_reset(&st->params);
    param_i64(&st->params, before_ms);
    param_i64(&st->params, FORGET_ROWS);
    return ask_number(st, s, &st->params);
}

bool pg_batch_forget(struct store *base, int64_t before_ms)
{
    struct store_postgres *st = postgres_of(base);

    pthread_mutex_lock(&st->db_lock);
    int64_t keys = forget(st, PG_FORGET_SEEN, before_ms);
    int64_t once = forget(st, PG_FORGET_ONCE, before_ms);
    pg_limbo_forget(&st->limbo, before_ms);
    pthread_mutex_unlock(&st->db_lock);
    if (keys < 0 || once < 0)
        log_warn(&st->log, "forgetting old deduplication keys: %s; tried again later",
                 st->main.problem);
    return keys < FORGET_ROWS && once < FORGET_ROWS;
}

int64_t pg_batch_tend_due_us(struct store *base)
{
    struct store_postgres *st = postgres_of(base);

    if (!worker_is_healthy(&st->worker))
        return worker_now_us() + LINE_RETRY_MS * 1000;
    return st->look_us;
}

/* Nobody may submit a write while the server is away, so we look ourselves whether it is back. */
void pg_batch_tend(struct store *base, bool quiet)
{
    struct store_postgres *st = postgres_of(base);
    struct store_stats counts = {0};
    bool ill = !worker_is_healthy(&st->worker);

    if (!quiet || (!ill && worker_now_us() < st->look_us))
        return;
    pthread_mutex_lock(&st->db_lock);
    int64_t bytes = ask_number(st, PG_SIZE, NULL);
    st->look_us = worker_now_us() + SIZE_LOOK_MS * 1000;
    if (bytes >= 0)
        __atomic_store_n(&st->told_bytes, bytes, __ATOMIC_RELAXED);
    counts.commits = bytes >= 0;
    if (bytes < 0)
        snprintf(counts.problem, sizeof counts.problem, "%.150s", st->main.problem);
    pthread_mutex_unlock(&st->db_lock);
    if (ill || bytes < 0)
        worker_count(&st->worker, &counts);
}
