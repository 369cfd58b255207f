/* leases.c - see leases.h. */
#include "store/leases.h"
#include <stdlib.h>
#include "base/mem.h"

struct lease_row *leases_row(struct leases *l, struct str name)
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
        free(row->under);
        free(row);
    }
    map_done(&l->by_name);
}

/* Held by anybody.  A lease under another one lives as long as that one, which has a time of its
 * own: there is no third storey. */
static bool is_held(const struct leases *l, const struct lease_row *row, int64_t now_ms)
{
    if (row == NULL || row->owner[0] == '\0')
        return false;
    if (row->under == NULL)
        return row->until_ms > now_ms;
    const struct lease_row *under = map_get(&l->by_name, str_of(row->under));
    return under != NULL && under->owner[0] != '\0' && under->epoch == row->under_epoch &&
           under->under == NULL && under->until_ms > now_ms;
}

bool leases_hold(const struct leases *l, const struct store_fence *f, int64_t now_ms)
{
    const struct lease_row *row;

    if (f->epoch == 0)
        return true;
    row = map_get(&l->by_name, f->name);
    return row != NULL && row->epoch == f->epoch && is_held(l, row, now_ms);
}

static void set_owner(struct lease_row *row, struct str owner)
{
    memset(row->owner, 0, sizeof row->owner);
    memcpy(row->owner, owner.p, owner.n);
}

static void set_life(struct lease_row *row, const struct store_lease *op, int64_t now_ms)
{
    free(row->under);
    row->under = op->under.epoch != 0 ? str_dup(op->under.name) : NULL;
    row->under_epoch = op->under.epoch;
    row->until_ms = now_ms + op->ttl_ms;
}

static void tell_holder(const struct leases *l, const struct lease_row *row, struct store_lease *op,
                        int64_t now_ms)
{
    memcpy(op->holder, row->owner, sizeof op->holder);
    op->left_ms = row->under != NULL ? -1 : row->until_ms - now_ms;
}

static enum bh_err grant(struct leases *l, struct store_lease *op, int64_t now_ms,
                         const struct lease_row **ret_row)
{
    struct lease_row *row = leases_row(l, op->name);
    bool held = is_held(l, row, now_ms), ours = str_eq(str_of(row->owner), op->owner);

    if (!leases_hold(l, &op->under, now_ms))
        return BH_FENCED;
    if (held && !ours && op->verb == LEASE_TAKE) {
        tell_holder(l, row, op, now_ms);
        return BH_CONFLICT;
    }
    row->epoch++; /* also when it was ours: whoever asks anew has forgotten what it did under it */
    set_owner(row, op->owner);
    set_life(row, op, now_ms);
    op->epoch = row->epoch;
    *ret_row = row;
    return BH_OK;
}

enum bh_err leases_run(struct leases *l, struct store_lease *op, int64_t now_ms,
                       const struct lease_row **ret_row)
{
    struct store_fence mine = {op->name, op->epoch};
    struct lease_row *row = map_get(&l->by_name, op->name);

    *ret_row = NULL;
    if (op->owner.n == 0 || op->owner.n >= STORE_OWNER_BYTES || op->name.n == 0)
        return BH_REFUSED;
    if (op->verb == LEASE_TAKE || op->verb == LEASE_STEAL)
        return grant(l, op, now_ms, ret_row);
    if (op->epoch == 0 || !leases_hold(l, &mine, now_ms))
        return op->verb == LEASE_RENEW ? BH_FENCED : BH_OK;
    if (op->verb == LEASE_RENEW)
        row->until_ms = now_ms + op->ttl_ms;
    else
        row->owner[0] = '\0';
    *ret_row = row;
    return BH_OK;
}

const struct store_fence *store_fence_of(const struct store_op *op)
{
    switch ((enum store_kind)op->kind) {
    case STORE_ACK:
        return &container_of(op, const struct store_ack, op)->fence;
    case STORE_MARK:
        return &container_of(op, const struct store_mark, op)->fence;
    case STORE_TX:
        return &container_of(op, const struct store_tx, op)->fence;
    case STORE_ERASE:
        return &container_of(op, const struct store_erase, op)->fence;
    default:
        return NULL;
    }
}
