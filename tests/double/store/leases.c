/* leases.c - see leases.h. */
#include "store/leases.h"
#include <stdlib.h>
#include "base/mem.h"

static struct lease_row *row_of(struct leases *l, struct str name)
{
    struct lease_row *row = map_get(&l->by_name, name);

    if (row != NULL)
        return row;
    row = xcalloc(1, sizeof *row);
    row->name = str_dup(name);
    map_put(&l->by_name, str_of(row->name), row);
    return row;
}

void leases_done(struct leases *l)
{
    void *value;

    for (size_t i = 0; map_next(&l->by_name, &i, &value);) {
        struct lease_row *row = value;
        free(row->name);
        free(row);
    }
    map_done(&l->by_name);
}

static bool is_held(const struct lease_row *row, int64_t now_ms)
{
    return row != NULL && row->owner[0] != '\0' && row->until_ms > now_ms;
}

bool leases_hold(const struct leases *l, const struct store_fence *f, int64_t now_ms)
{
    const struct lease_row *row = f->epoch != 0 ? map_get(&l->by_name, f->name) : NULL;

    return f->epoch == 0 || (is_held(row, now_ms) && row->epoch == f->epoch);
}

static enum bh_err take(struct leases *l, struct store_lease *op, int64_t now_ms)
{
    struct lease_row *row = row_of(l, op->name);
    bool held = is_held(row, now_ms), ours = str_eq(str_of(row->owner), op->owner);

    if (held && !ours) {
        memcpy(op->holder, row->owner, sizeof op->holder);
        op->left_ms = row->until_ms - now_ms;
        return BH_CONFLICT;
    }
    row->epoch++; /* also for the same owner: a new request has no memory of the old grant */
    memset(row->owner, 0, sizeof row->owner);
    memcpy(row->owner, op->owner.p, op->owner.n);
    row->until_ms = now_ms + op->ttl_ms;
    op->epoch = row->epoch;
    return BH_OK;
}

enum bh_err leases_run(struct leases *l, struct store_lease *op, int64_t now_ms)
{
    struct store_fence mine = {op->name, op->epoch};
    struct lease_row *row = map_get(&l->by_name, op->name);

    if (op->owner.n == 0 || op->owner.n >= STORE_OWNER_BYTES || op->name.n == 0)
        return BH_REFUSED;
    if (op->verb == LEASE_TAKE)
        return take(l, op, now_ms);
    if (op->epoch == 0 || !leases_hold(l, &mine, now_ms))
        return op->verb == LEASE_RENEW ? BH_FENCED : BH_OK;
    if (op->verb == LEASE_RENEW)
        row->until_ms = now_ms + op->ttl_ms;
    else
        row->owner[0] = '\0';
    return BH_OK;
}
