/* upkeep.c - (upkeep.h has the contract.) */
#include "relay/upkeep.h"
#include <stdlib.h>
#include "relay/out/chats.h"
#include "relay/in/dedup.h"
#include "relay/heart.h"
#include "relay/retain.h"
#include "relay/out/spoken.h"
#include "store/store.h"

enum {
    EVERY_MS = 600000,
    TRIM_CHATS = 100000, /* looked at each time: some milliseconds */
    TRIM_SPOKEN = 1000,
};

struct upkeep {
    struct relay *relay; /* borrowed */
    struct timer timer;
    struct retain *retain; /* owned */
};

static void on_due(struct timer *t)
{
    struct upkeep *u = container_of(t, struct upkeep, timer);
    struct relay *r = u->relay;
    int64_t before_ms = clock_wall_ms(r->env.clock) - r->lim.dedup_ms;

    dedup_expire(&r->dedup, before_ms);
    chats_trim(r, TRIM_CHATS);
    spoken_expire(r, TRIM_SPOKEN);
    retain_tick(u->retain);
    r->env.store->ops->forget_keys(r->env.store, before_ms);
    timer_set(r->env.clock, t, EVERY_MS);
}

struct upkeep *upkeep_new(struct relay *r)
{
    struct upkeep *u = xcalloc(1, sizeof *u);

    u->relay = r;
    u->retain = retain_new(r);
    timer_init(&u->timer, on_due);
    timer_set(r->env.clock, &u->timer, EVERY_MS);
    return u;
}

void upkeep_free(struct upkeep *u)
{
    if (u == NULL)
        return;
    timer_stop(u->relay->env.clock, &u->timer);
    retain_free(u->retain);
    free(u);
}

void relay_retain(struct relay *r, int64_t retention_ms)
{
    retain_set(r->upkeep->retain, retention_ms);
}
