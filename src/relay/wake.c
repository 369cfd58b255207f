/* wake.c - design.  (wake.h has the contract.)
 *
 * Whether a poke is needed is asked again at every step, so nothing has to be called off when the
 * mailbox empties or the route to the URL changes. */
#include "relay/wake.h"
#include <stdlib.h>
#include "relay/heart.h"
#include "relay/instance.h"
#include "tenancy/facts.h"

static timer_cb on_due;

void wake_init(struct wake *w)
{
    *w = (struct wake){0};
    timer_init(&w->timer, on_due);
}

void wake_done(struct instance *i)
{
    timer_stop(i->relay->env.clock, &i->wake.timer);
    free(i->wake.problem);
    i->wake.problem = NULL;
}

/* The URL to poke, NULL when there is no reason to. */
static const char *reason_to_poke(const struct instance *i)
{
    if (i->relay->draining || instance_is_live(i) || mailbox_waiting(&i->mb) == 0 ||
        (!i->sleep.asleep && !i->seen))
        return NULL;
    return facts_wake_url(i->relay->env.facts, instance_tenant(i), instance_id(i));
}

/* Poke at @due_ms, or later if the cooldown says so, or earlier if that was planned already. */
static void plan(struct instance *i, int64_t due_ms)
{
    struct wake *w = &i->wake;
    int64_t cooled_ms = w->last_ms + i->relay->lim.wake_cooldown_ms;

    if (w->last_wall_ms != 0 && cooled_ms > due_ms)
        due_ms = cooled_ms;
    if (timer_is_set(&w->timer) && w->timer.due_ms <= due_ms)
        return;
    timer_set(i->relay->env.clock, &w->timer, due_ms - clock_now_ms(i->relay->env.clock));
}

void wake_want(struct instance *i)
{
    int64_t now_ms = clock_now_ms(i->relay->env.clock);

    if (i->wake.poking || reason_to_poke(i) == NULL)
        return;
    plan(i, !i->sleep.asleep && i->wake.not_before_ms > now_ms ? i->wake.not_before_ms : now_ms);
}

void wake_redialling(struct instance *i)
{
    i->wake.not_before_ms = clock_now_ms(i->relay->env.clock) + WAKE_REDIAL_MS;
    if (!i->wake.poking && reason_to_poke(i) != NULL)
        plan(i, i->wake.not_before_ms);
}

void wake_stop(struct instance *i)
{
    timer_stop(i->relay->env.clock, &i->wake.timer);
}

static void on_poked(void *ctx, bool ok, const char *why)
{
    struct instance *i = ctx;
    struct wake *w = &i->wake;

    w->poking = false;
    free(w->problem);
    w->problem = ok ? NULL : xstrdup(why != NULL ? why : "no reason given");
    if (!ok) {
        i->relay->n.pokes_failed++;
        log_warn(NULL, "wake poke failed: tenant=%.*s instance=%.*s why=%s retry_ms=%lld",
                 STR_FMT(instance_tenant(i)), STR_FMT(instance_id(i)), w->problem,
                 (long long)i->relay->lim.wake_cooldown_ms);
    }
    wake_want(i);
}

static void on_due(struct timer *t)
{
    struct instance *i = container_of(t, struct instance, wake.timer);
    struct relay *r = i->relay;
    const char *url = reason_to_poke(i);

    if (url == NULL)
        return;
    i->wake.poking = true;
    i->wake.last_ms = clock_now_ms(r->env.clock);
    i->wake.last_wall_ms = clock_wall_ms(r->env.clock);
    r->n.pokes++;
    log_info(NULL, "wake poke: tenant=%.*s instance=%.*s waiting=%u", STR_FMT(instance_tenant(i)),
             STR_FMT(instance_id(i)), mailbox_waiting(&i->mb));
    r->env.waker->poke(r->env.waker, url, on_poked, i);
}
