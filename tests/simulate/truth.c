/* truth.c - see truth.h. */
#include "simulate/truth.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include "cluster/node.h"

static void BH_PRINTF(2, 3) lie(struct truth *t, const char *fmt, ...)
{
    va_list ap;
    if (t->broken[0] != '\0')
        return;
    va_start(ap, fmt);
    vsnprintf(t->broken, sizeof t->broken, fmt, ap);
    va_end(ap);
}

bool truth_holds(const struct truth *t, uint64_t epoch, int64_t now_ms)
{
    return epoch != 0 && epoch == t->epoch && now_ms < t->until_ms;
}

static void granted(struct truth *t, const struct store_lease *op, int64_t now_ms)
{
    if (now_ms < t->until_ms && !str_eq(op->owner, str_of(t->owner)))
        lie(t, "%.*s got the lease %" PRId64 " ms before it ended for %s", STR_FMT(op->owner),
            t->until_ms - now_ms, t->owner);
    if (op->epoch <= t->epoch)
        lie(t, "epoch %" PRIu64 " was granted after %" PRIu64, op->epoch, t->epoch);
    t->epoch = op->epoch;
    t->until_ms = now_ms + op->ttl_ms;
    snprintf(t->owner, sizeof t->owner, "%.*s", STR_FMT(op->owner));
    t->grants++;
}

void truth_leased(struct truth *t, const struct store_lease *op, int64_t now_ms)
{
    switch (op->verb) {
    case LEASE_TAKE:
        granted(t, op, now_ms);
        break;
    case LEASE_RENEW:
        if (!truth_holds(t, op->epoch, now_ms))
            lie(t, "%.*s renewed epoch %" PRIu64 " after its end", STR_FMT(op->owner), op->epoch);
        t->until_ms = now_ms + op->ttl_ms;
        break;
    case LEASE_RELEASE:
        if (op->epoch == t->epoch)
            t->until_ms = now_ms;
    }
}

/* A node that waits says so in its record, and nothing else. */
static bool is_sign_of_life(const struct store_op *op)
{
    if (op->kind != STORE_TX)
        return false;
    const struct store_tx *tx = container_of(op, const struct store_tx, op);
    for (size_t i = 0; i < tx->n; i++)
        if (strcmp(tx->items[i].ns, node_form.ns) != 0)
            return false;
    return true;
}

void truth_written(struct truth *t, const struct store_op *op, uint64_t epoch, int64_t begun_ms)
{
    static const char *const words[] = {"an append", "a delete", "a mark", "a record",
                                        "an erasure"};
    if (!truth_holds(t, epoch, begun_ms) && (epoch != 0 || !is_sign_of_life(op)))
        lie(t,
            "%s under epoch %" PRIu64 ", but %" PRIu64 " is the newest, and ended %" PRId64
            " ms before",
            words[op->kind], epoch, t->epoch, begun_ms - t->until_ms);
}
