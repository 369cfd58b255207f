/* receipt_room.c - design.  (receipt_room.h has the contract.)
 *
 * A share is a ring of hours.  Those of the shortest key of a receipt are hex digits that begin
 * with its time, so that a pass at the start counts what is there without opening it.  Receipts
 * written while that pass is under way may be counted twice: for a day there is a little less
 * room. */
#include "dispatch/receipt_room.h"
#include <stdlib.h>
#include "base/clock.h"
#include "base/limits.h"
#include "base/map.h"
#include "base/mem.h"
#include "dispatch/delivered.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/receipt.h"
#include "store/sweep.h"

#define HOUR_MS 3600000
enum { HOURS = 26, HOUR_CHARS = 8, MS_CHARS = 12 };

struct share {
    uint64_t bytes;
    struct {
        int64_t hour;
        uint64_t bytes;
    } of[HOURS];
    char tenant[]; /* "": before this start */
};

struct receipt_room {
    struct dispatch *d; /* borrowed */
    struct map shares;  /* tenant -> share; owned */
    struct sweep *sweeps[2];
};

static int64_t hour_now(const struct receipt_room *t)
{
    return clock_wall_ms(t->d->env.clock) / HOUR_MS;
}

static void tell(struct receipt_room *t, const struct share *s)
{
    ledger_note(t->d->env.ledger, LIMIT_RECEIPT_BYTES, str_of(s->tenant), s->bytes);
}

static void add(struct receipt_room *t, struct str tenant, int64_t hour, size_t bytes)
{
    struct share *s = map_get(&t->shares, tenant);

    if (s == NULL) {
        s = xcalloc(1, sizeof *s + tenant.n + 1);
        memcpy(s->tenant, tenant.p, tenant.n);
        map_put(&t->shares, str_of(s->tenant), s);
    }
    size_t at = (size_t)hour % HOURS;
    if (s->of[at].hour != hour) {
        s->bytes -= s->of[at].bytes;
        s->of[at].hour = hour;
        s->of[at].bytes = 0;
    }
    s->of[at].bytes += bytes;
    s->bytes += bytes;
    tell(t, s);
}

void receipt_room_wrote(struct receipt_room *t, struct str tenant, size_t bytes)
{
    add(t, tenant, hour_now(t), bytes);
}

bool receipt_room_has(struct receipt_room *t, struct str tenant)
{
    struct ledger *l = t->d->env.ledger;
    const struct share *s = map_get(&t->shares, tenant);
    uint64_t each = l != NULL ? ledger_bounds(l, LIMIT_RECEIPT_BYTES).each : 0;

    if (s == NULL || each == 0 || s->bytes < each)
        return ledger_has_room(l, LIMIT_RECEIPT_BYTES);
    ledger_refuse(l, LIMIT_RECEIPT_BYTES);
    return false;
}

void receipt_room_expire(struct receipt_room *t)
{
    int64_t first = hour_now(t) - HOURS + 1;
    void *at;

    for (size_t pos = 0; map_next(&t->shares, &pos, &at);) {
        struct share *s = at;
        for (size_t i = 0; i < HOURS; i++) {
            if (s->of[i].hour >= first)
                continue;
            s->bytes -= s->of[i].bytes;
            s->of[i].bytes = 0;
        }
        tell(t, s);
    }
}

/* ---- what was there ---- */

static int64_t number_of(struct str hex, size_t chars)
{
    int64_t n = 0;

    for (size_t i = 0; i < hex.n && i < chars; i++)
        n = n << 4 | (hex_value(hex.p[i]) & 15);
    return n;
}

static void count(struct receipt_room *t, int64_t hour, struct str key, struct str value)
{
    int64_t now = hour_now(t);

    if (hour > now - HOURS && hour <= now)
        add(t, STR(""), hour, key.n + value.n);
}

static bool on_receipt(void *ctx, struct str key, struct str value)
{
    count(ctx, number_of(key, HOUR_CHARS), key, value);
    return false;
}

static bool on_delivered(void *ctx, struct str key, struct str value)
{
    count(ctx, number_of(key, MS_CHARS) / HOUR_MS, key, value);
    return false;
}

static const struct sweep_ops receipt_pass = {.goes = on_receipt};
static const struct sweep_ops delivered_pass = {.goes = on_delivered};

/* ---- life ---- */

struct receipt_room *receipt_room_new(struct dispatch *d)
{
    struct receipt_room *t = xcalloc(1, sizeof *t);

    t->d = d;
    t->sweeps[0] = sweep_start(d->env.store, d->env.clock, RECEIPT_NS, 0, &receipt_pass, t);
    t->sweeps[1] = sweep_start(d->env.store, d->env.clock, DELIVERED_NS, 0, &delivered_pass, t);
    return t;
}

void receipt_room_free(struct receipt_room *t)
{
    void *s;

    if (t == NULL)
        return;
    for (int i = 0; i < 2; i++)
        sweep_stop(&t->sweeps[i]);
    for (size_t pos = 0; map_next(&t->shares, &pos, &s);)
        free(s);
    map_done(&t->shares);
    free(t);
}
