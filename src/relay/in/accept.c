/* accept.c - design.  (accept.h has the contract.)
 *
 * This is the hot path: one allocation per copy (the delivery), accepts from a freelist, frames
 * written into a reused buffer.  The order of writes matters: the chat's record goes to the store
 * before its delivery, and the platform is answered after both.  So after a crash the guard still
 * lets the agent answer. */
#include "relay/in/accept.h"
#include <assert.h>
#include <stdlib.h>
#include "base/handles.h"
#include "base/uncleared.h"
#include "core/event.h"
#include "core/frame.h"
#include "core/session_key.h"
#include "relay/heart.h"
#include "relay/in/allowance.h"
#include "relay/in/burst.h"
#include "relay/in/edits.h"
#include "relay/in/inside.h"
#include "relay/in/commands.h"
#include "relay/in/judge.h"
#include "relay/in/staged.h"
#include "relay/latency.h"
#include "relay/log_limit.h"
#include "relay/mailbox/mailbox.h"
#include "relay/out/chats.h"
#include "relay/out/traced.h"
#include "relay/relay.h"
#include "relay/session/pump.h"
#include "relay/sleep/instance.h"
#include "tenancy/pairing.h"

struct accept {
    struct list link; /* accepts->waiting, then ->answers, then ->spare */
    accepted_cb *done;
    void *ctx;        /* borrowed */
    uint32_t pending; /* holds that are not released yet */
    struct handle handle;
    uint8_t err; /* enum bh_err */
};

struct accepts {
    struct handles handles; /* struct accept, until its answer */
    struct list waiting;    /* accepts with holds; owned, as those in the other lists */
    struct list answers;    /* to be answered at the end of the turn */
    struct list spare;      /* the freelist */
    struct buf frame, key;  /* scratch: the frame being written, the session key of its event */
    struct log_limit log_busy, log_unrouted;
};

struct accepts *accepts_new(struct relay *r)
{
    struct accepts *t = xcalloc(1, sizeof *t);

    handles_init(&t->handles, r->env.rand);
    list_init(&t->waiting);
    list_init(&t->answers);
    list_init(&t->spare);
    return t;
}

void accepts_free(struct accepts *t)
{
    if (t == NULL)
        return;
    struct list *const all[] = {&t->waiting, &t->answers, &t->spare};
    for (size_t k = 0; k < ARRAY_LEN(all); k++)
        list_each (all[k], it, nxt)
            free(list_entry(it, struct accept, link));
    handles_done(&t->handles);
    buf_done(&t->frame);
    buf_done(&t->key);
    free(t);
}

struct accept *accept_new(struct relay *r, accepted_cb *done, void *ctx)
{
    struct accepts *t = r->accepts;
    struct accept *a;

    if (list_is_empty(&t->spare)) {
        a = xcalloc(1, sizeof *a);
        list_init(&a->link);
    } else {
        a = list_first(&t->spare, struct accept, link);
    }
    list_move(&a->link, &t->waiting);
    a->handle = handles_add(&t->handles, a);
    a->done = done;
    a->ctx = ctx;
    a->pending = 1;
    a->err = BH_OK;
    return a;
}

void accept_hold(struct accept *a)
{
    a->pending++;
}

void accept_release(struct relay *r, struct accept *a, enum bh_err err)
{
    assert(a->pending > 0);
    if (err != BH_OK && a->err == BH_OK)
        a->err = (uint8_t)err;
    if (--a->pending != 0)
        return;
    list_move(&a->link, &r->accepts->answers);
    drain_hold(r);
    turn_want(r, TURN_ANSWERS);
}

void accept_answer_all(struct relay *r)
{
    struct accepts *t = r->accepts;
    struct list now; /* answers that the callbacks add wait for the next turn */

    assert(!list_is_empty(&t->answers));
    now = t->answers;
    now.next->prev = now.prev->next = &now;
    list_init(&t->answers);
    while (!list_is_empty(&now)) {
        struct accept *a = list_first(&now, struct accept, link);
        accepted_cb *done = a->done;
        void *ctx = a->ctx;
        enum bh_err err = a->err;
        list_move(&a->link, &t->spare);
        handles_remove(&t->handles, a->handle);
        if (done != NULL)
            done(ctx, err);
        drain_release(r);
    }
}

void relay_accept_cancel(struct relay *r, struct accept_id id)
{
    struct accept *a = handles_find(&r->accepts->handles, (struct handle){id.index, id.generation});

    if (a != NULL)
        a->done = NULL;
}

/* ---- the context of each copy ----
 *
 * An event has one context, the messages before it.  A copy gets the context only if its
 * gateway is of the newer generation and the instance may look back: judge_reads_context().
 * If the author is an owner of the instance, the author's own messages are left out: they
 * were delivered already. */

struct context_room { /* for context_shown(); must outlive its result */
    struct event ev;
    struct event_said said[EVENT_MAX_CONTEXT];
};

/* A copy of @ev in @room, with the context that the instance of @v gets (@v NULL: none). */
static const struct event *context_shown(struct relay *r, const struct gate_verdict *v,
                                         const struct event *ev, struct context_room *room)
{
    bool may = v != NULL && judge_reads_context(r, v, ev);
    room->ev = *ev;
    room->ev.context = room->said;
    room->ev.n_context = 0;
    room->ev.context_error &= may;
    for (size_t i = 0; may && i < ev->n_context; i++) {
        const struct event_said *s = &ev->context[i];
        /* All messages of an owner are delivered, so the agent has them already. */
        if (v->reason != GATE_YES_OWNER || !str_eq(s->user_id, ev->user_id))
            room->said[room->ev.n_context++] = *s;
    }
    return &room->ev;
}

/* ---- one event ---- */

struct intake { /* one event being accepted; on the stack */
    struct relay *relay;
    const struct event *ev;
    struct str forward; /* a passthrough; absent: an inbound */
    struct str body;    /* for an agent inside; absent: the event */
    struct accept *a;
    bool alone;                   /* the event has one recipient only */
    int64_t known_ms;             /* a duplicate: when the first one was accepted; 0: new */
    uint64_t row;                 /* of the newest copy; 0: none */
    bool quiet;                   /* does not wake a sleeping instance */
    enum stop_text stop;          /* a /stop waits for nothing in its chat */
    bool joined;                  /* a duplicate whose first copy is not on disk yet */
    struct delivery_group *group; /* of a staged event; NULL: not staged */
    bool noted;                   /* another part of it is told to `why` and counted */
    const struct staged_to *to;   /* its recipients when it arrived; NULL: no restriction */
    size_t n_to;
    const struct gate_verdict *verdict; /* of this copy; NULL: the gate was not asked */
};

static enum bh_err refuse_busy(struct instance *i, const char *what)
{
    struct relay *r = i->relay;
    uint64_t skipped;

    r->n.refused_busy++;
    if (log_limit_passes(&r->accepts->log_busy, clock_now_ms(r->env.clock), &skipped))
        log_warn(NULL,
                 "delivery refused, %s: tenant=%.*s instance=%.*s entries=%u bytes=%llu more=%llu",
                 what, STR_FMT(instance_tenant(i)), STR_FMT(instance_id(i)),
                 mailbox_entries(&i->mb), (unsigned long long)mailbox_bytes(&i->mb),
                 (unsigned long long)skipped);
    return BH_BUSY;
}

/* Writes the frame into accepts->frame and checks that there is room for it. */
static enum bh_err write_frame(const struct intake *in, struct instance *i,
                               const struct hash128 *name)
{
    struct relay *r = in->relay;
    struct buf *frame = &r->accepts->frame;
    const struct hash128 *shown = r->lim.live_acks ? name : NULL;
    BH_UNCLEARED struct context_room room;

    const struct event *told = in->ev;
    if (in->ev->n_context > 0 || in->ev->context_error)
        told = context_shown(r, in->verdict, in->ev, &room);
    buf_reset(frame);
    if (in->forward.p != NULL)
        frame_write_passthrough(frame, in->forward, shown);
    else if (in->body.p != NULL)
        frame_write_dispatch(frame, in->body, *name);
    else
        event_write_frame(frame, told, shown);
    if (buf_failed(frame) || frame->n > SLOT_MAX_BYTES)
        return BH_REFUSED;
    if (mailbox_bytes(&i->mb) + frame->n > r->lim.max_mailbox_bytes)
        return refuse_busy(i, "mailbox full");
    if (!delivery_has_room(r, frame->n))
        return refuse_busy(i, "the store is behind");
    return BH_OK;
}

/* What allowances limit: a message of a person, an edit that the agent is told of, and a forwarded
 * command.  Each of them is a turn of the agent. */
static bool is_counted(const struct intake *in)
{
    return (in->forward.p == NULL || in->ev->user_id.n > 0) && in->ev->press.prompt_id.n == 0 &&
           !in->ev->edit.silent &&
           !command_is_stop(in->ev); /* its text may have waited: @stop is of the arrival */
}

/* The deduplication keys of a burst's other messages. */
static void add_parts(const struct intake *in, const struct instance *i, struct delivery_spec *spec,
                      struct hash128 keys[EVENT_MAX_PARTS])
{
    struct relay *r = in->relay;
    struct event part = *in->ev;

    for (size_t k = 1; k < in->ev->n_parts; k++) {
        part.event_id = in->ev->parts[k].event_id;
        if (delivery_id_of(&part, &r->env.store->dedup_key, instance_tenant(i), instance_id(i),
                           &keys[spec->n_more]))
            dedup_add(&r->dedup, keys[spec->n_more++], clock_wall_ms(r->env.clock),
                      r->lim.dedup_max);
    }
    spec->more = keys;
}

static enum bh_err take_copy(struct intake *in, struct instance *i)
{
    struct relay *r = in->relay;
    struct delivery_spec spec = {.flags = in->quiet ? STORE_ROW_QUIET : 0, .group = in->group};
    int64_t wall_ms = clock_wall_ms(r->env.clock);
    struct outside *o = r->env.outside;

    spec.kind = in->forward.p != NULL ? STORE_ROW_PASSTHROUGH : STORE_ROW_INBOUND;
    spec.has_key = delivery_id_of(in->ev, &r->env.store->dedup_key, instance_tenant(i),
                                  instance_id(i), &spec.key);
    if (!spec.has_key)
        rand_bytes(r->env.rand, &spec.key, sizeof spec.key);
    if (spec.has_key && dedup_has(&r->dedup, spec.key)) {
        r->n.duplicates++;
        in->known_ms = dedup_at(&r->dedup, spec.key);
        in->joined |= delivery_join(i, spec.key, in->a);
        return BH_OK;
    }
    enum bh_err err = write_frame(in, i, &spec.key);
    if (err != BH_OK)
        return err;
    spec.frame = buf_str(&r->accepts->frame);
    if (spec.has_key)
        dedup_add(&r->dedup, spec.key, wall_ms, r->lim.dedup_max);
    BH_UNCLEARED struct hash128 keys[EVENT_MAX_PARTS];
    if (in->ev->n_parts > 0)
        add_parts(in, i, &spec, keys);
    if (in->verdict != NULL && in->verdict->to->allowance != NULL && is_counted(in))
        spec.put = allowance_count(r, in->verdict, in->ev);
    uint64_t session = interrupt_key(i, buf_str(&r->accepts->key));
    bool owner = in->verdict != NULL && in->verdict->reason == GATE_YES_OWNER;
    uint32_t n_chats = i->n_chats;
    struct known_chat *chat = in->body.p == NULL ? chats_note(i, in->ev, session, owner) : NULL;
    if (chat != NULL) {
        interrupt_note(chat, session, in->alone);
        spec.of_new_chat = chat->writing;
    }
    if (in->verdict != NULL && in->forward.p == NULL)
        stop_note(i, in->ev);
    bool has_media = false;
    for (size_t n = 0; in->forward.p == NULL && n < in->ev->n_media; n++)
        has_media |= in->ev->media[n].id.n > 0;
    if (has_media)
        spec.flags |= STORE_ROW_HAS_MEDIA;
    if (r->traced != NULL || in->ev->trace.n > 0)
        traced_note(i, in->ev);
    in->row = delivery_add(i, &spec, in->a);
    latency_accepted(r, in->row);
    for (size_t n = 0; has_media && n < in->ev->n_media && o->holds != NULL; n++)
        if (in->ev->media[n].id.n > 0)
            o->holds(o, in->ev->media[n].id, instance_tenant(i), instance_id(i), in->row);
    r->n.accepted++;
    if (r->on_mail != NULL)
        mail_tell(i, in->ev, i->n_chats > n_chats);
    return BH_OK;
}

static struct journal_copy deliver(struct intake *in, const struct gate_verdict *v)
{
    const struct gate_instance *to = v->to;
    struct instance *i = instance_get(in->relay, to->tenant, to->instance);

    if (i != NULL && i->life != to->life)
        life_follow(i, to->life);
    in->verdict = v;
    in->row = 0;
    enum bh_err err = i != NULL ? take_copy(in, i) : BH_REFUSED;

    if (err != BH_OK) {
        accept_hold(in->a);
        accept_release(in->relay, in->a, err);
        return (struct journal_copy){.fate = JOURNAL_BUSY};
    }
    return (struct journal_copy){in->row, in->row != 0 ? JOURNAL_ACCEPTED : JOURNAL_DUPLICATE};
}

/* Each message of a burst can be asked about. */
static void note_parts(const struct intake *in, const struct gate_verdict *verdicts,
                       const struct journal_copy *copies, size_t n)
{
    struct relay *r = in->relay;
    struct event part = *in->ev;

    for (size_t i = 0; i < in->ev->n_parts; i++) {
        part.message_id = in->ev->parts[i].message_id;
        if (part.message_id.n > 0 && !str_eq(part.message_id, in->ev->message_id))
            journal_event(r->journal, clock_wall_ms(r->env.clock), &part, JOURNAL_JUDGED, NULL,
                          verdicts, copies, n);
    }
}

/* No instance received the event: its author may wait to be let in (tenancy/pairing.h).  Not an
 * author whom an instance hears and whose message was refused for another reason, nor one on a chat
 * page, where nobody can be linked. */
static void note_stranger(const struct intake *in, const struct gate_verdict *verdicts, size_t n)
{
    struct relay *r = in->relay;
    const struct event *ev = in->ev;
    const struct outlet *at = r->env.outside->find(r->env.outside, ev->platform, ev->bot);

    if (at == NULL || at->secret_chats || at->answers || ev->edit.set || ev->press.prompt_id.n > 0)
        return;
    for (size_t i = 0; i < n; i++)
        switch (verdicts[i].reason) {
        case GATE_NO_OWNER_ONLY:
        case GATE_NO_CLOSED:
        case GATE_NO_OTHER_TENANT:
        case GATE_NO_NOT_LISTED:
        case GATE_NO_CHANNEL_OWNER:
        case GATE_NO_LINKED_ON_OTHER_BOT:
        case GATE_NO_FOREIGN_BOT:
            break;
        default:
            return;
        }
    pairing_wrote(r->env.pairing, ev,
                  in->forward.p != NULL || ev->mentions_bot || ev->replies_to_bot);
}

/* Asks the gate and delivers to the recipients, or stages the event if it must wait. */
static enum bh_err distribute(struct intake *in)
{
    struct relay *r = in->relay;
    BH_UNCLEARED struct gate_verdict verdicts[GATE_CANDIDATES];
    BH_UNCLEARED struct journal_copy copies[GATE_CANDIDATES];
    BH_UNCLEARED struct event silent; /* over its allowance an edit changes what waits, no more */
    enum bh_err err = BH_OK;

    size_t all = judge_ask(r, in->ev, verdicts), n = 0, n_yes = 0;
    if (all == 0 && r->expected > 0 && in->group == NULL) {
        r->n.refused_busy++;
        return BH_BUSY;
    }
    bool may_wait = in->group == NULL && in->forward.p == NULL && in->stop == STOP_NONE;
    for (size_t i = 0; i < all; i++) /* a recipient must have passed when the event arrived, too */
        if (in->to == NULL || !gate_is_yes(verdicts[i].reason) ||
            staged_has(in->to, in->n_to, verdicts[i].to))
            verdicts[n++] = verdicts[i];
    for (size_t i = 0; i < n; i++)
        if (verdicts[i].to->allowance != NULL && is_counted(in) &&
            (in->group != NULL || !stage_has(r, in->ev))) {
            allowances_judge(r, in->ev, verdicts, n);
            break;
        }
    if (may_wait && stage_defer(r, in->ev, verdicts, n, in->a, &err))
        return err;
    if (!may_wait && in->group == NULL)
        bursts_end(r, in->ev, verdicts, n);
    if (in->ev->edit.set && edit_staged(r, in->ev, verdicts, &n, in->a) && n == 0)
        return BH_OK;
    if (in->ev->edit.set && in->ev->edit.silent) {
        for (size_t i = 0; i < n; i++)
            edit_take(r, verdicts[i].to, in->ev, in->a);
        return BH_OK;
    }
    if ((may_wait || in->stop == STOP_HELD) &&
        stage_take(r, in->ev, verdicts, &n, in->stop == STOP_HELD, in->a, &err))
        return err;
    if (!in->noted)
        judge_note(r, in->ev);
    buf_reset(&r->accepts->key);
    session_key_of_event(&r->accepts->key, in->ev);
    for (size_t i = 0; i < n; i++)
        n_yes += gate_is_yes(verdicts[i].reason);
    in->alone = n_yes == 1;
    for (size_t i = 0; i < n; i++) {
        bool yes = gate_is_yes(verdicts[i].reason);
        bool over = in->ev->edit.set && verdicts[i].reason == GATE_NO_ALLOWANCE;
        if (over) {
            silent = *in->ev;
            silent.edit.silent = true;
        }
        r->n.verdicts[verdicts[i].reason]++;
        if ((yes || over) && in->ev->edit.set &&
            edit_take(r, verdicts[i].to, over ? &silent : in->ev, in->a))
            copies[i] = (struct journal_copy){.fate = JOURNAL_EDITED};
        else
            copies[i] = yes ? deliver(in, &verdicts[i]) : (struct journal_copy){0};
    }
    in->verdict = NULL;
    journal_event(r->journal, clock_wall_ms(r->env.clock), in->ev, JOURNAL_JUDGED, NULL, verdicts,
                  copies, n);
    if (in->ev->n_parts > 0)
        note_parts(in, verdicts, copies, n);
    uint64_t skipped;
    r->n.unrouted += n == 0;
    r->n.gated += n > 0 && n_yes == 0;
    if (n_yes == 0 && r->env.pairing != NULL)
        note_stranger(in, verdicts, n);
    if (n == 0 && log_limit_passes(&r->accepts->log_unrouted, clock_now_ms(r->env.clock), &skipped))
        log_info(NULL, "no route and no link: platform=%.*s key=%.*s message=%.*s more=%llu",
                 STR_FMT(in->ev->platform), STR_FMT(in->ev->route_key), STR_FMT(in->ev->message_id),
                 (unsigned long long)skipped);
    return err;
}

void relay_expect(struct relay *r, int n)
{
    r->expected += n;
    assert(r->expected >= 0);
}

bool accept_is_known(struct relay *r, const struct event *ev, const struct gate_verdict *verdicts,
                     size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (gate_may_yet(verdicts[i].reason) &&
            relay_known_ms(r, verdicts[i].to->tenant, verdicts[i].to->instance, ev) == 0)
            return false;
    return true;
}

void accept_staged(struct relay *r, const struct event *ev, const struct staged_to *to, size_t n_to,
                   bool noted, struct delivery_group *g, accepted_cb *done, void *ctx)
{
    struct event routed = judge_route(r, ev);
    struct intake in = {.relay = r,
                        .ev = &routed,
                        .group = g,
                        .noted = noted,
                        .to = to,
                        .n_to = n_to,
                        .a = accept_new(r, done, ctx)};

    distribute(&in);
    delivery_group_submit(g, in.a->err == BH_OK && !in.joined);
    accept_release(r, in.a, BH_OK);
}

void accept_resume(struct relay *r, const struct event *ev, const struct staged_to *to, size_t n_to,
                   struct accept *a)
{
    struct intake in = {.relay = r, .ev = ev, .to = to, .n_to = n_to, .a = a};

    accept_release(r, a, r->draining ? BH_BUSY : distribute(&in));
}

struct accept_id relay_take_in(struct relay *r, const struct event *ev, struct str forward,
                               accepted_cb *done, void *ctx)
{
    struct event routed = judge_route(r, ev);
    struct intake in = {.relay = r,
                        .ev = &routed,
                        .forward = forward,
                        .a = accept_new(r, done, ctx)};
    enum bh_err err = BH_OK;

    if (r->draining) {
        r->n.refused_busy++;
        err = BH_BUSY;
    } else if (forward.p != NULL || ev->press.prompt_id.n > 0 || ev->edit.silent ||
               !command_take(r, &routed, in.a, &in.stop)) {
        err = distribute(&in);
    }
    accept_release(r, in.a, err); /* @done runs at the end of the turn, never in here */
    return (struct accept_id){in.a->handle.index, in.a->handle.generation};
}

_Static_assert(PARCEL_TICK_MS == DEDUP_TICK_MS, "relay_deliver() tells what dedup_at() knows");

struct accept_id relay_deliver(struct relay *r, const struct parcel *p,
                               struct parcel_fate *ret_fate, accepted_cb *done, void *ctx)
{
    struct intake in = {.relay = r,
                        .ev = p->ev,
                        .body = p->body,
                        .quiet = !p->may_wake,
                        .alone = true,
                        .a = accept_new(r, done, ctx)};
    struct instance *i = r->draining ? NULL : instance_get(r, p->tenant, p->instance);
    enum bh_err err = r->draining ? BH_BUSY : BH_REFUSED;

    if (r->draining)
        r->n.refused_busy++;
    if (i != NULL) {
        i->has_parcels = true;
        life_follow(i, life_now(r, p->tenant, p->instance));
        buf_reset(&r->accepts->key);
        session_key_of_event(&r->accepts->key, p->ev);
        err = take_copy(&in, i);
    }
    *ret_fate = (struct parcel_fate){err == BH_OK ? in.known_ms : -1, in.row};
    accept_release(r, in.a, err);
    return (struct accept_id){in.a->handle.index, in.a->handle.generation};
}

int64_t relay_known_ms(struct relay *r, struct str tenant, struct str instance,
                       const struct event *ev)
{
    struct hash128 key;

    return delivery_id_of(ev, &r->env.store->dedup_key, tenant, instance, &key)
               ? dedup_at(&r->dedup, key)
               : 0;
}

void parcel_tell(const struct instance *i, const struct slot *slot, enum parcel_news news,
                 struct str why)
{
    const struct relay *r = i->relay;

    if (news == PARCEL_TAKEN && !r->taking && (slot->flags & SLOT_SENT) == 0)
        news = PARCEL_REMOVED; /* nobody can have acked it */
    if (r->on_parcel != NULL)
        r->on_parcel(r->parcel_ctx, slot->id, news, why);
}

void relay_watch_parcels(struct relay *r, parcel_cb *cb, void *ctx)
{
    r->on_parcel = cb;
    r->parcel_ctx = ctx;
    list_each (instances_by_age(r), it, nxt) {
        struct instance *i = list_entry(it, struct instance, link);
        i->has_parcels |= mailbox_entries(&i->mb) > 0;
    }
}
