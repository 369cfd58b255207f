/* owner.c - leases, and what a fence says, in the database: it has the only clock that all nodes
 * agree on. */
#include "store/postgres/impl.h"
#include <stdio.h>
#include <stdlib.h>
#include "store/leases.h"

/* ---- fences ---- */

static const struct store_fence *fence_of(const struct store_op *op)
{
    const struct store_fence *f = store_fence_of(op);
    return f != NULL && f->epoch != 0 ? f : NULL;
}

/* The database sorts them, and takes each once. */
bool pg_owner_ask_fences(struct store_postgres *st, struct store_op *first, struct store_op *end)
{
    size_t n = 0;
    struct str last = STR_NULL;

    params_reset(&st->params);
    array_begin(&st->params, PARAM_BYTES);
    for (struct store_op *op = first; op != end; op = op->next) {
        const struct store_fence *f = fence_of(op);
        if (f == NULL || (n > 0 && str_eq(f->name, last)))
            continue;
        array_bytes(&st->params, f->name);
        last = f->name;
        n++;
    }
    if (pg_is_guarded(st)) {
        array_bytes(&st->params, st->base.guard.name);
        n++;
    }
    array_end(&st->params);
    if (n > 0)
        line_ask(&st->main, PG_FENCES, &st->params);
    return n > 0;
}

/* The answer is sorted by name: is @f in it? */
static bool holds(const PGresult *r, const struct store_fence *f)
{
    int lo = 0, hi = PQntuples(r);

    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        int c = str_cmp(column_bytes(r, mid, 0), f->name);
        if (c == 0)
            return (uint64_t)column_int(r, mid, 1) == f->epoch;
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return false;
}

enum line_end pg_owner_read_fences(struct store_postgres *st, struct store_op *first,
                                   struct store_op *end)
{
    PGresult *r;
    enum line_end e = line_answer(&st->main, &r);

    if (e != LINE_OK)
        return e;
    bool guarded = !pg_is_guarded(st) || holds(r, &st->base.guard);
    for (struct store_op *op = first; op != end; op = op->next) {
        const struct store_fence *f = fence_of(op);
        if (f != NULL && !holds(r, f))
            op->err = BH_FENCED;
    }
    PQclear(r);
    if (!guarded)
        snprintf(st->main.problem, sizeof st->main.problem, "another process serves by now");
    return guarded ? LINE_OK : LINE_FENCED;
}

/* ---- leases ---- */

static void ask(struct store_postgres *st, const struct store_lease *l)
{
    struct params *p = &st->params;

    params_reset(p);
    param_i32(p, (int32_t)l->verb);
    param_bytes(p, l->name);
    param_bytes(p, l->owner);
    param_i64(p, l->ttl_ms);
    if (l->under.epoch != 0)
        param_bytes(p, l->under.name);
    else
        param_null(p);
    param_i64(p, (int64_t)l->under.epoch);
    param_i64(p, (int64_t)l->epoch);
    line_ask(&st->main, PG_LEASE, p);
    line_send(&st->main);
}

static void settle(struct store_lease *l, const PGresult *r)
{
    static const enum bh_err ends[] = {BH_OK, BH_CONFLICT, BH_FENCED};
    struct str holder = column_bytes(r, 0, 3);
    int64_t end = column_int(r, 0, 0);

    l->op.err = (uint8_t)(end >= 0 && end < 3 ? ends[end] : BH_UNAVAILABLE);
    if (end == 0 && l->verb <= LEASE_STEAL)
        l->epoch = (uint64_t)column_int(r, 0, 1);
    if (end != 1)
        return;
    l->left_ms = column_int(r, 0, 2);
    size_t n = holder.n < sizeof l->holder ? holder.n : sizeof l->holder - 1;
    memset(l->holder, 0, sizeof l->holder);
    if (n > 0)
        memcpy(l->holder, holder.p, n);
}

/* A transaction of its own: one statement.  What was granted in an answer that never came runs out
 * by itself, and whoever asks again gets a larger epoch. */
enum line_end pg_owner_run(struct store_postgres *st, struct store_lease *l)
{
    PGresult *r;

    if (l->owner.n == 0 || l->owner.n >= STORE_OWNER_BYTES || l->name.n == 0) {
        l->op.err = BH_REFUSED;
        return LINE_OK;
    }
    line_begin(&st->main, st->answer_ms);
    ask(st, l);
    enum line_end e = line_answer(&st->main, &r);
    if (r != NULL) {
        settle(l, r);
        PQclear(r);
    }
    if (e != LINE_LOST && line_done(&st->main) == LINE_LOST)
        return LINE_LOST;
    return e;
}
