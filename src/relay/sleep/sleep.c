/* sleep.c - design.  (sleep.h has the contract and the picture.) */
#include "relay/sleep/sleep.h"
#include <stdlib.h>
#include "base/observers.h"
#include "core/frame.h"
#include "relay/heart.h"
#include "relay/mailbox/mailbox.h"
#include "relay/session/pump.h"
#include "relay/session/session.h"
#include "relay/sleep/instance.h"
#include "tenancy/facts.h"

enum {
    PER_S = 5,
    AT_ONCE = 100
}; /* each sleep costs a record, two log lines and a state change shown on every page */

void sleep_load(struct instance *i, bool asleep, int64_t since_ms)
{
    i->sleep.asleep = asleep;
    i->sleep.since_ms = since_ms;
}

static void set_asleep(struct instance *i, bool asleep)
{
    if (i->sleep.asleep == asleep)
        return;
    i->sleep.asleep = asleep;
    if (asleep) {
        i->sleep.since_ms = clock_wall_ms(i->relay->env.clock);
        i->relay->n.sleeps++;
    }
    instance_record(i);
    instance_touch(i);
}

static void owe_ack(struct session *s, bool owed)
{
    if (s->sleep_owed == owed)
        return;
    s->sleep_owed = owed;
    s->inst->sleep.owed += owed ? 1u : -1u;
}

static void fall_asleep(struct session *s)
{
    struct instance *i = s->inst;

    if (i->receiver == s || i->receiver == NULL)
        set_asleep(i, true);
    /* Also for an OLD socket: its deliveries must be on disk before its going_idle_ack. */
    i->sleep.mark = delivery_next_id(i->relay) - 1;
    if (i->receiver != s)
        session_enter(s, SESSION_ASLEEP);
    s->sleep_version = i->record_want;
    log_info(&s->log, "going idle: asleep=%d unacked=%llu", i->sleep.asleep,
             (unsigned long long)flight_rows(s->flight));
}

void sleep_begin(struct session *s)
{
    int64_t now_ms = clock_now_ms(s->inst->relay->env.clock);

    if (s->state != SESSION_ASLEEP && !s->sleep_owed) {
        if (!bucket_take(&s->inst->sleep.often, now_ms, PER_S, AT_ONCE)) {
            session_close(s, CLOSE_SLEEPS_TOO_OFTEN);
            return;
        }
        fall_asleep(s);
    }
    owe_ack(s, true);
    sleep_check(s->inst);
}

void sleep_end(struct session *s)
{
    owe_ack(s, false);
    s->sleep_acked = false;
    set_asleep(s->inst, false);
}

void sleep_leave(struct session *s)
{
    owe_ack(s, false);
}

void sleep_check(struct instance *i)
{
    if (i->sleep.owed == 0 || !delivery_safe_up_to(i, i->sleep.mark))
        return;
    list_each (&i->sessions, it, nxt) {
        struct session *s = list_entry(it, struct session, by_inst);
        if (!s->sleep_owed || i->record_done < s->sleep_version)
            continue;
        owe_ack(s, false);
        s->sleep_acked = true;
        if (i->receiver == s) {
            i->receiver = NULL;
            fetch_drop(i);
            delivery_drop_kept(i);
            session_enter(s, SESSION_ASLEEP);
        }
        frame_write_going_idle_ack(s->wire->ops->send_begin(s->wire));
        s->wire->ops->send_end(s->wire);
    }
}

/* ---- wake ----
 *
 * Each step checks again whether a poke is needed, so nothing has to be cancelled when the mailbox
 * empties or the wake URL changes. */

static timer_cb on_due;

struct poke_queue { /* the queue of one tenant, while one of its instances is poked */
    struct list waiting;
    size_t n_poked;
    char tenant[];
};

const struct wake *wake_of(const struct instance *i)
{
    static const struct wake none;

    return i->wake != NULL ? i->wake : &none;
}

static struct wake *make_wake(struct instance *i)
{
    if (i->wake != NULL)
        return i->wake;
    struct wake *w = i->wake = xcalloc(1, sizeof *w);
    w->inst = i;
    list_init(&w->queued);
    timer_init(&w->timer, on_due);
    return w;
}

void wakes_done(struct wakes *w)
{
    void *queue;

    for (size_t i = 0; map_next(&w->queues, &i, &queue);)
        free(queue);
    map_done(&w->queues);
}

void wake_done(struct instance *i)
{
    i->wake_not_before_ms = 0;
    if (i->wake == NULL)
        return;
    timer_stop(i->relay->env.clock, &i->wake->timer);
    list_remove(&i->wake->queued);
    free(i->wake->problem);
    free(i->wake);
    i->wake = NULL;
}

/* The URL to poke; NULL: the instance needs no poke, or has no wake URL. */
static const char *reason_to_poke(const struct instance *i)
{
    if (i->relay->draining || instance_is_live(i) || mailbox_ringing(&i->mb) == 0 ||
        (!i->sleep.asleep && !i->seen))
        return NULL;
    return facts_wake_url(i->relay->env.facts, instance_tenant(i), instance_id(i));
}

static int64_t pause_ms(const struct instance *i)
{
    int64_t cooldown_ms = i->relay->lim.wake_cooldown_ms, ms = cooldown_ms;

    for (unsigned n = 1; n < wake_of(i)->in_vain && ms < WAKE_LONGEST_MS; n++)
        ms *= 2;
    if (ms > WAKE_LONGEST_MS)
        ms = WAKE_LONGEST_MS;
    return ms > cooldown_ms ? ms : cooldown_ms;
}

/* Schedules a poke at @due_ms, but not before @after_last_ms have passed since the last poke.  An
 * earlier schedule stays. */
static void plan(struct instance *i, int64_t due_ms, int64_t after_last_ms)
{
    struct wake *w = make_wake(i);
    int64_t cooled_ms = w->last_ms + after_last_ms;

    if (w->last_wall_ms != 0 && cooled_ms > due_ms)
        due_ms = cooled_ms;
    struct clock *clock = i->relay->env.clock;
    if (timer_is_set(&w->timer) && timer_due_ms(clock, &w->timer) <= due_ms)
        return;
    timer_set(clock, &w->timer, due_ms - clock_now_ms(clock));
}

/* Schedules a poke if one is needed, at least @after_last_ms after the last one. */
static void want(struct instance *i, int64_t after_last_ms)
{
    int64_t due_ms = clock_now_ms(i->relay->env.clock);

    if ((i->wake != NULL && i->wake->poking) || reason_to_poke(i) == NULL)
        return;
    if (!i->sleep.asleep && i->wake_not_before_ms > due_ms)
        due_ms = i->wake_not_before_ms;
    plan(i, due_ms, after_last_ms);
}

void wake_want(struct instance *i)
{
    want(i, pause_ms(i));
}

void wake_for_mail(struct instance *i)
{
    want(i, i->relay->lim.wake_cooldown_ms);
}

void wake_redialling(struct instance *i)
{
    i->wake_not_before_ms = clock_now_ms(i->relay->env.clock) + WAKE_REDIAL_MS;
    if (!wake_of(i)->poking && reason_to_poke(i) != NULL)
        plan(i, i->wake_not_before_ms, pause_ms(i));
}

void wake_stop(struct instance *i)
{
    struct wake *w = i->wake;

    if (w == NULL)
        return;
    if (w->in_vain != 0) {
        w->in_vain = 0;
        if (!i->sleep.asleep) /* else sleep_end() writes the record */
            instance_record(i);
    }
    timer_stop(i->relay->env.clock, &w->timer);
    list_remove(&w->queued);
}

/* ---- the queue of a tenant ---- */

static struct poke_queue *queue_of(struct instance *i)
{
    struct map *queues = &i->relay->wakes.queues;
    struct str tenant = instance_tenant(i);
    struct poke_queue *l = map_get(queues, tenant);

    if (l != NULL)
        return l;
    l = xcalloc(1, sizeof *l + tenant.n + 1);
    memcpy(l->tenant, tenant.p, tenant.n);
    list_init(&l->waiting);
    map_put(queues, str_of(l->tenant), l);
    return l;
}

/* A poke was answered: starts the next queued poke that is still needed. */
static void queue_advance(struct instance *i)
{
    struct map *queues = &i->relay->wakes.queues;
    struct poke_queue *l = queue_of(i);

    l->n_poked--;
    while (!list_is_empty(&l->waiting) && l->n_poked < WAKE_AT_ONCE) {
        struct wake *next = list_first(&l->waiting, struct wake, queued);
        list_remove(&next->queued);
        on_due(&next->timer);
    }
    if (l->n_poked != 0 || !list_is_empty(&l->waiting))
        return;
    map_del(queues, str_of(l->tenant));
    free(l);
}

static void on_poked(void *ctx, bool ok, const char *why)
{
    struct instance *i = ctx;
    struct wake *w = make_wake(i); /* a new life of the name may have begun meanwhile */

    w->poking = false;
    queue_advance(i);
    free(w->problem);
    w->problem = ok ? NULL : xstrdup(why != NULL ? why : "no reason given");
    if (ok && w->in_vain < UINT8_MAX)
        w->in_vain++; /* wake_stop() resets it when the agent connects */
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
    struct wake *w = container_of(t, struct wake, timer);
    struct instance *i = w->inst;
    struct relay *r = i->relay;
    const char *url = reason_to_poke(i);

    if (url == NULL || list_is_linked(&w->queued))
        return;
    struct poke_queue *l = queue_of(i);
    if (l->n_poked >= WAKE_AT_ONCE) {
        list_append(&l->waiting, &w->queued);
        return;
    }
    l->n_poked++;
    w->poking = true;
    w->last_ms = clock_now_ms(r->env.clock);
    w->last_wall_ms = clock_wall_ms(r->env.clock);
    r->n.pokes++;
    instance_record(i);
    log_info(NULL, "wake poke: tenant=%.*s instance=%.*s waiting=%u", STR_FMT(instance_tenant(i)),
             STR_FMT(instance_id(i)), mailbox_waiting(&i->mb));
    r->env.waker->poke(r->env.waker, url, on_poked, i);
}

/* ---- a gateway changed ---- */

static void on_facts(void *ctx, struct str message)
{
    struct relay *r = ctx;
    struct str what;
    const struct gateway *g = str_split(&message, ' ', &what) && str_eq(what, STR("gateway"))
                                  ? facts_gateway(r->env.facts, message)
                                  : NULL;
    struct instance *i =
        g != NULL ? instance_find(r, str_of(g->tenant), str_of(g->instance)) : NULL;

    if (i != NULL)
        wake_for_mail(i);
}

void wake_listen(struct relay *r)
{
    observers_add(r->env.observers, "facts", on_facts, r);
}

/* ---- after a start ---- */

void wake_load(struct instance *i, int64_t last_wall_ms, int64_t in_vain)
{
    struct clock *clock = i->relay->env.clock;
    int64_t ago_ms = clock_wall_ms(clock) - last_wall_ms;

    if (last_wall_ms <= 0)
        return;
    struct wake *w = make_wake(i);
    w->last_wall_ms = last_wall_ms;
    w->last_ms = clock_now_ms(clock) - (ago_ms > 0 ? ago_ms : 0); /* the clock may have been set
                                                                   * back */
    w->in_vain = (uint8_t)(in_vain < 0 ? 0 : in_vain < UINT8_MAX ? in_vain : UINT8_MAX);
}

void wake_after_start(struct relay *r)
{
    int64_t due_ms = clock_now_ms(r->env.clock);

    list_each (instances_by_age(r), it, nxt) {
        struct instance *i = list_entry(it, struct instance, link);
        /* A client that was connected reconnects by itself.  Mail may come before it does. */
        i->wake_not_before_ms = due_ms + (i->sleep.asleep ? 0 : WAKE_REDIAL_MS);
        if (reason_to_poke(i) == NULL)
            continue;
        plan(i, i->wake_not_before_ms, pause_ms(i));
        due_ms += WAKE_START_STEP_MS;
    }
}
