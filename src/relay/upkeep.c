/* upkeep.c - (upkeep.h has the contract.) */
#include "relay/upkeep.h"
#include <inttypes.h>
#include <stdlib.h>
#include "relay/heart.h"
#include "relay/in/allowance.h"
#include "relay/in/dedup.h"
#include "relay/mailbox/mailbox.h"
#include "relay/out/chat_records.h"
#include "relay/out/spoken.h"
#include "relay/sleep/instance.h"
#include "store/store.h"
#include "store/sweep.h"

#define CHATS_MS (6 * INT64_C(3600000))
enum {
    EVERY_MS = 600000,
    STEP_INSTANCES = 4096,
    STEP_MAIL = 512,
    TRIM_CHATS = 100000, /* chats visited per run: some milliseconds */
    TRIM_SPOKEN = 1000,
};

struct upkeep {
    struct relay *relay; /* borrowed */
    struct timer timer;
    /* RESTING --tick--> STEPPING: STEP_INSTANCES, STEP_MAIL per turn --last instance--> RESTING */
    int64_t retention_ms;
    struct sweep *chats; /* owned; NULL: no retention is set */
    struct timer step;
    struct instance *at; /* borrowed: instances live as long as the relay; NULL: resting */
    uint64_t dropped;    /* in this round */
};

/* ---- retention ---- */

static void on_step(struct timer *timer)
{
    struct upkeep *t = container_of(timer, struct upkeep, step);
    struct relay *r = t->relay;
    int64_t before_s = (clock_wall_ms(r->env.clock) - t->retention_ms) / 1000;
    uint64_t mail = 0;

    for (int k = 0; k < STEP_INSTANCES && t->at != NULL && before_s > 0; k++) {
        mail += delivery_settle_until(t->at, UINT64_MAX, before_s, STEP_MAIL - mail);
        if (mail == STEP_MAIL)
            break; /* this instance may have more */
        t->at = instance_after(r, t->at->box);
    }
    t->dropped += mail;
    r->n.purged += mail;
    if (t->at != NULL && before_s > 0) {
        timer_set(r->env.clock, &t->step, 0);
        return;
    }
    if (t->dropped != 0)
        log_info(NULL, "mail that waited longer than the retention is dropped: entries=%" PRIu64,
                 t->dropped);
    t->at = NULL;
    t->dropped = 0;
}

static void begin_round(struct upkeep *u)
{
    if (u->retention_ms <= 0 || u->at != NULL)
        return;
    u->at = instance_after(u->relay, 0);
    timer_set(u->relay->env.clock, &u->step, 0);
}

void relay_retain(struct relay *r, int64_t retention_ms)
{
    struct upkeep *u = r->upkeep;

    u->retention_ms = retention_ms;
    chats_retain(r, retention_ms);
    if (retention_ms <= 0)
        sweep_stop(&u->chats);
    else if (u->chats == NULL)
        u->chats =
            sweep_start(r->env.store, r->env.clock, chat_form.ns, CHATS_MS, &chats_age_ops, r);
    begin_round(u);
}

/* ---- every ten minutes ---- */

static void on_due(struct timer *t)
{
    struct upkeep *u = container_of(t, struct upkeep, timer);
    struct relay *r = u->relay;
    int64_t before_ms = clock_wall_ms(r->env.clock) - r->lim.dedup_ms;

    dedup_expire(&r->dedup, before_ms);
    chats_trim(r, TRIM_CHATS);
    spoken_expire(r, TRIM_SPOKEN);
    allowances_sweep(r);
    begin_round(u);
    r->env.store->ops->forget_keys(r->env.store, before_ms);
    timer_set(r->env.clock, t, EVERY_MS);
}

struct upkeep *upkeep_new(struct relay *r)
{
    struct upkeep *u = xcalloc(1, sizeof *u);

    u->relay = r;
    timer_init(&u->step, on_step);
    timer_init(&u->timer, on_due);
    timer_set(r->env.clock, &u->timer, EVERY_MS);
    return u;
}

void upkeep_free(struct upkeep *u)
{
    if (u == NULL)
        return;
    sweep_stop(&u->chats);
    timer_stop(u->relay->env.clock, &u->step);
    timer_stop(u->relay->env.clock, &u->timer);
    free(u);
}
