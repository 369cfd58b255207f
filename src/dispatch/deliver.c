/* deliver.c - dispatch_deliver(): puts a payload into an agent's mailbox and tells its fate.
 *
 *      payload --> mailbox --new--> agent away --> receipt, in one commit with the row
 *                        |     '--> agent takes it, or CONFIRM_MS --> receipt
 *                        '--known--> first delivery on disk --> its receipt, a warning
 *
 * A crash or a disk error may leave a delivery without a receipt.  A caller that repeats the call
 * then gets a new receipt for the old delivery. */
#include <stdio.h>
#include "base/jw.h"
#include "dispatch/call.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/payload.h"
#include "dispatch/sessions.h"
#include "dispatch/track.h"
#include "dispatch/substrate.h"

#define CONFIRM_MS 2000    /* how long a caller waits for the agent to take its payload */
#define CONFIRM_FIRST_MS 1 /* interval of checks whether it has; it doubles */
#define CONFIRM_LONGEST_MS 20

struct delivering {
    struct dispatch_call call;
    bool tracked; /* track.h goes on without the call */
    bool keeping; /* the receipt is not on disk yet */
    bool skipped; /* the agent's own receipt says so */
    struct delivered_facts facts;
    struct timer confirm; /* set: waits for the agent to take it */
    int64_t pause_ms, deadline_ms;
    struct delivered_entry entry;
};

static void delivering_free(struct dispatch_call *c)
{
    struct delivering *w = container_of(c, struct delivering, call);

    timer_stop(c->d->env.clock, &w->confirm);
    if (c->fate.id != 0 && w->facts.queued_ms != 0 && !w->tracked)
        track_drop(c->d->tracks, c->fate.id);
    delivered_forget(&w->entry);
}

/* Ends the call once both the row and the receipt are on disk or have failed. */
static void delivery_finish(struct delivering *w)
{
    if (w->call.accepting || w->keeping || timer_is_set(&w->confirm))
        return;
    if (w->call.fault.cls == FAULT_NONE)
        w->call.d->n.delivered++;
    call_end(&w->call);
}

static void on_kept(void *ctx, enum bh_err err)
{
    struct delivering *w = ctx;

    w->keeping = false;
    w->entry.done = NULL;
    if (err != BH_OK && w->call.fault.cls == FAULT_NONE)
        call_fail_store(&w->call, BH_UNAVAILABLE); /* a repeated call finds the delivery */
    delivery_finish(w);
}

/* {"delivered_at", "delivery_id", "session_id"?, "delivery_skipped"?, "warnings"?}.  @a NULL: the
 * agent is gone.  @waits: why nobody has got it yet; NULL: the agent has taken it now. */
static void keep_receipt(struct delivering *w, struct recipient *a, const char *waits)
{
    struct receipt_name name = call_receipt(&w->call);
    struct jw j = jw_begin(&w->call.json);

    if (waits != NULL)
        call_warn(&w->call, str_of(waits));
    jw_obj(&j);
    jw_ki64(&j, "delivered_at",
            waits != NULL ? w->call.at_ms : clock_wall_ms(w->call.d->env.clock));
    jw_kstr(&j, "delivery_id", name.id);
    if (waits != NULL || w->skipped)
        jw_kbool(&j, "delivery_skipped", true);
    call_write_session(&w->call, a, &j);
    jw_end_obj(&j);
    if (waits == NULL && !w->skipped && w->call.took != NULL)
        session_seen(w->call.d, name.tenant, name.agent, str_of(w->call.took));
    w->keeping = true;
    w->tracked = track_note(w->call.d->tracks, waits != NULL, &w->facts);
    delivered_keep(w->call.d->receipts, &name, buf_str(&w->call.json), &w->facts, &w->entry,
                   on_kept, w);
}

/* ---- until the agent has taken it ---- */

static void on_confirm(struct timer *t)
{
    struct delivering *w = container_of(t, struct delivering, confirm);
    struct dispatch *d = w->call.d;
    struct recipient *a = agents_find(d->agents, str_of(w->call.tenant), str_of(w->call.agent));
    const char *waits = NULL;

    if (a != NULL &&
        relay_waits(d->env.relay, str_of(a->tenant), str_of(a->instance), w->call.fate.id)) {
        waits = call_waits(a);
        if (waits == NULL && clock_now_ms(d->env.clock) < w->deadline_ms) {
            timer_set(d->env.clock, &w->confirm, w->pause_ms);
            w->pause_ms =
                w->pause_ms * 2 < CONFIRM_LONGEST_MS ? w->pause_ms * 2 : CONFIRM_LONGEST_MS;
            return;
        }
        if (waits == NULL)
            waits = "the agent has not taken it yet: it is on its way";
    }
    keep_receipt(w, a, waits);
}

/* Of a new delivery: the receipt at once if nobody can take it now. */
static void await_agent(struct delivering *w, struct recipient *a)
{
    struct receipt_name name = call_receipt(&w->call);
    struct clock *clock = w->call.d->env.clock;
    const char *waits = call_waits(a);

    if (waits != NULL) {
        keep_receipt(w, a, waits);
        return;
    }
    receipt_name_add(&w->call.claim, &name); /* for delivery_told() */
    map_put(&w->call.d->claims, buf_str(&w->call.claim), &w->call);
    w->pause_ms = CONFIRM_FIRST_MS;
    w->deadline_ms = clock_now_ms(clock) + CONFIRM_MS;
    timer_set(clock, &w->confirm, w->pause_ms);
}

static struct delivering *under_way(struct dispatch *d, const struct receipt_name *name)
{
    BUF_LOCAL key = BUF_INIT;

    receipt_name_add(&key, name);
    struct dispatch_call *c = map_get(&d->claims, buf_str(&key));
    return c != NULL ? container_of(c, struct delivering, call) : NULL;
}

const struct delivered_facts *delivery_under_way(struct dispatch *d,
                                                 const struct receipt_name *name)
{
    struct delivering *w = under_way(d, name);

    return w != NULL ? &w->facts : NULL;
}

void delivery_told(struct recipient *a, struct str word, struct str dispatch_id,
                   const struct errand_end *e)
{
    struct receipt_name name = {str_of(a->tenant), str_of(a->id), word, dispatch_id};
    struct delivering *w = under_way(a->d, &name);

    if (w == NULL)
        return; /* nobody waits for it any more */
    w->skipped |= e->skipped;
    call_told(&w->call, e);
}

/* ---- a repeated one ---- */

static void on_delivery_found(void *ctx, struct str json, const struct delivered_facts *facts)
{
    struct delivering *w = ctx;
    struct dispatch *d = w->call.d;
    struct recipient *a = agents_find(d->agents, str_of(w->call.tenant), str_of(w->call.agent));
    struct instance_view v;
    /* Nothing that came as early as this payload is in the mailbox any more. */
    bool arrived = a != NULL &&
                   relay_instance(d->env.relay, str_of(a->tenant), str_of(a->instance), &v) &&
                   (v.entries == 0 || v.oldest_ms > w->call.fate.known_ms);

    w->call.look = NULL;
    if (json.p == NULL) {
        keep_receipt(w, a, arrived ? NULL : "it was delivered before, and waits in the mailbox");
        return;
    }
    d->n.repeated++;
    receipt_add_warning(d->json, json,
                        STR("this dispatch_id was delivered before: the first receipt is repeated"),
                        arrived, &w->call.json);
    call_end(&w->call);
}

static void on_delivery_accepted(void *ctx, enum bh_err err)
{
    struct delivering *w = ctx;
    struct receipt_name name = call_receipt(&w->call);

    w->call.accepting = false;
    if (err == BH_OK && w->call.fate.known_ms > 0) {
        w->call.look =
            delivered_find(w->call.d, &name, w->call.fate.known_ms, on_delivery_found, w);
        return;
    }
    if (err != BH_OK) {
        timer_stop(w->call.d->env.clock, &w->confirm);
        if (w->call.fault.cls == FAULT_NONE)
            call_fail_store(&w->call, err);
    }
    delivery_finish(w);
}

struct dispatch_call *dispatch_deliver(struct dispatch *d, const struct dispatch_who *who,
                                       struct str address, struct json body, dispatch_cb *done,
                                       void *ctx)
{
    struct delivering *w = call_new(d, sizeof *w, delivering_free, done, ctx);
    struct str session, named = json_str(body, "agent_id");
    struct recipient *a = call_agent(&w->call, who, address, &session);
    struct payload p;

    timer_init(&w->confirm, on_confirm);
    if (a != NULL && named.p != NULL && !who->any_name && !str_eq(named, address) &&
        !str_eq(named, str_of(a->id))) {
        fault_set(&w->call.fault, FAULT_INVALID, "agent_id in the body names another agent.");
        a = NULL;
    }
    if (a != NULL && payload_read(body, address, &p, &w->call.fault) &&
        call_session_ok(&w->call, a, p.session.p != NULL ? p.session : session) &&
        call_has_room(&w->call, str_of(a->tenant))) {
        if (p.session.p == NULL)
            p.session = session;
        p.caller = who->caller.for_agent;
        p.trace = who->caller.trace;
        call_begin(&w->call, a, p.session, payload_kind(&p), p.dispatch_id);
        call_post(&w->call, a, &p, a->cfg->s.wake_on_deliver, on_delivery_accepted);
        w->facts.queued_ms = w->call.fate.known_ms > 0 ? w->call.fate.known_ms : w->call.at_ms;
        snprintf(w->facts.by, sizeof w->facts.by, "%.*s", STR_FMT(who->caller.key_id));
        if (w->call.fate.known_ms == 0) {
            w->facts.row = w->call.fate.id;
            track_begin(d->tracks, w->facts.row, w->facts.queued_ms);
            await_agent(w, a);
        }
    } else {
        call_end_later(&w->call);
    }
    return &w->call;
}
