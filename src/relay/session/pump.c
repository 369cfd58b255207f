/* pump.c - design.  (pump.h has the contract.)
 *
 * Pumps run when the turn ends, so events that came in one turn share a message.  A window of bytes
 * in flight is bounded by window * pack_bytes; the reads ahead of it by fetch.h. */
#include "relay/session/pump.h"
#include <assert.h>
#include <stdlib.h>
#include "core/delivery_id.h"
#include "core/event.h"
#include "relay/session/acking.h"
#include "relay/sleep/activity.h"
#include "relay/mailbox/delivery.h"
#include "relay/mailbox/fetch.h"
#include "relay/heart.h"
#include "relay/in/inside.h"
#include "relay/sleep/instance.h"
#include "relay/session/pulse.h"
#include "relay/session/session.h"
#include "relay/turn.h"
#include "store/store.h"
#include "tenancy/facts.h"

struct pump {
    struct list wanting; /* instances, by pump_link */
    struct buf placed;   /* scratch: a frame with the addresses of its files */
};

struct pump *pump_new(void)
{
    struct pump *p = xcalloc(1, sizeof *p);

    list_init(&p->wanting);
    return p;
}

void pump_free(struct pump *p)
{
    if (p != NULL)
        buf_done(&p->placed);
    free(p);
}

void pump_want(struct instance *i)
{
    if (list_is_linked(&i->pump_link) || i->receiver == NULL)
        return;
    list_append(&i->relay->pump->wanting, &i->pump_link);
    turn_want(i->relay);
}

void pump_again(struct instance *i, uint64_t id)
{
    struct session *s = i->receiver;

    if (s == NULL || id > s->sent_id || (s->number <= i->park_mark && !s->inside) ||
        s->n_again == UINT16_MAX)
        return;
    s->again = xrealloc(s->again, (s->n_again + 1u) * sizeof s->again[0]);
    s->again[s->n_again++] = id;
}

struct pack { /* one message being put together; on the stack */
    struct session *s;
    struct buf *out; /* borrowed from the wire; NULL: not begun */
    size_t start;    /* bytes in @out before us */
    uint64_t first, last;
    uint32_t n;
    bool soft, solo;
};

/* A frame too long for one message: the wire is a stream, so it may be cut between characters. */
static void send_pieces(struct session *s, struct str frame)
{
    while (frame.n > 0) {
        size_t n = frame.n < PUMP_MESSAGE_MAX ? frame.n : PUMP_MESSAGE_MAX;
        while (n < frame.n && ((unsigned char)frame.p[n] & 0xc0u) == 0x80u)
            n--;
        s->wire->ops->send(s->wire, str_make(frame.p, n));
        frame = str_skip(frame, n);
    }
}

static bool pack_has_room(const struct pack *p, size_t bytes)
{
    size_t max = p->s->inside ? INSIDE_PACK_BYTES : p->s->inst->relay->lim.pack_bytes;

    if (p->n == 0)
        return true;
    if (max > PUMP_MESSAGE_MAX)
        max = PUMP_MESSAGE_MAX;
    return !p->solo && p->out != NULL && p->out->n - p->start + bytes <= max;
}

/* An ack will name it by its bufferId. */
static void note_name(struct instance *i, const struct slot *slot, struct str body)
{
    struct str name = delivery_id_in(body);

    if (name.p != NULL)
        sent_ids_add(&i->sent, &i->mb, hash64(&i->relay->env.store->dedup_key, name), slot->id);
}

static void pack_add(struct pack *p, struct slot *slot, struct str body)
{
    struct instance *i = p->s->inst;
    struct relay *r = i->relay;
    bool again = (slot->flags & SLOT_SENT) != 0 || slot->attempts > 0;

    if (body.n > PUMP_MESSAGE_MAX) {
        assert(p->n == 0);
        send_pieces(p->s, body);
    } else {
        if (p->out == NULL) {
            p->out = p->s->wire->ops->send_begin(p->s->wire);
            p->start = p->out->n;
        }
        buf_add_str(p->out, body);
    }
    note_name(i, slot, body);
    if (p->n++ == 0)
        p->first = slot->id;
    p->last = slot->id;
    p->soft |= acking_is_soft(p->s, slot);
    p->solo |= slot->attempts >= PUMP_SOLO_ATTEMPTS;
    r->n.delivered++;
    r->n.redelivered += again;
    delivery_sent(i, slot);
}

static void pack_end(struct pack *p)
{
    struct session *s = p->s;
    struct relay *r = s->inst->relay;

    if (p->out != NULL)
        s->wire->ops->send_end(s->wire);
    if (flight_count(s->flight) == 0)
        s->ack_since_ms = clock_now_ms(r->env.clock);
    flight_add(&s->flight, p->first, p->last, p->n);
    s->flight->solo = p->solo;
    if (p->last > s->sent_id)
        s->sent_id = p->last;
    if (p->soft)
        acking_sent_soft(s, p->last);
    activity_inbound(s->inst);
    session_arm(s);
}

/* The store lost a row: nothing can be delivered, and waiting for it would stop all behind it. */
static void row_lost(struct instance *i, struct slot *slot)
{
    log_error(NULL, "a delivery is missing from the store: tenant=%.*s instance=%.*s id=%llx",
              STR_FMT(instance_tenant(i)), STR_FMT(instance_id(i)), (unsigned long long)slot->id);
    delivery_settle(i, slot);
}

static void place_url(void *ctx, struct str id, struct buf *out)
{
    struct session *s = ctx;

    s->wire->ops->media_url(s->wire, id, !s->gw->newer, out);
}

/* Where a file is read depends on who reads it and when, so it is said only now. */
static struct str place_media(struct session *s, struct str body)
{
    struct buf *placed = &s->inst->relay->pump->placed;

    if (s->wire->ops->media_url == NULL)
        return body;
    buf_reset(placed);
    event_place_media(placed, body, place_url, s);
    return buf_str(placed);
}

/* Adds @slot if it can go now.  False: the message ends before it. */
static bool try_add(struct pack *p, struct slot *slot)
{
    struct instance *i = p->s->inst;
    struct str body;
    bool suspect = slot->attempts >= PUMP_SOLO_ATTEMPTS;

    if (suspect && (p->n > 0 || flight_count(p->s->flight) > 0))
        return false;
    switch (fetch_body(i, slot, &body)) {
    case FETCH_WAIT:
        return false;
    case FETCH_LOST:
        row_lost(i, slot);
        return true;
    case FETCH_HERE:
        break;
    }
    if ((slot->flags & SLOT_MEDIA) != 0)
        body = place_media(p->s, body);
    if (!pack_has_room(p, body.n))
        return false;
    pack_add(p, slot, body);
    return true;
}

/* Redriven deliveries that lie behind this socket: one by one, before anything newer. */
static bool send_again(struct pack *p)
{
    struct session *s = p->s;

    while (s->n_again > 0 && p->n == 0) {
        struct slot *slot = mailbox_find(&s->inst->mb, s->again[0]);
        if (slot != NULL && slot_waits(slot) && !try_add(p, slot))
            return false;
        s->n_again--;
        memmove(s->again, s->again + 1, s->n_again * sizeof s->again[0]);
    }
    return p->n > 0;
}

static bool send_next(struct pack *p)
{
    struct mailbox *mb = &p->s->inst->mb;

    for (uint32_t at = mailbox_seek(mb, p->s->sent_id); at < mb->n; at++) {
        struct slot *slot = mailbox_at(mb, at);
        if (slot_waits(slot) && !try_add(p, slot))
            break;
    }
    return p->n > 0;
}

static bool send_message(struct instance *i)
{
    struct session *s = i->receiver;
    struct pack p = {.s = s};

    if (s == NULL || s->state != SESSION_RECEIVING || i->relay->draining ||
        clock_now_ms(i->relay->env.clock) < i->hold_until_ms ||
        flight_count(s->flight) >= (s->inside ? 1 : i->relay->lim.window) ||
        (s->flight != NULL && s->flight->solo))
        return false;
    bool any = send_again(&p) || (s->n_again == 0 && send_next(&p));
    if (any)
        pack_end(&p);
    return any;
}

void pump_all(struct relay *r)
{
    struct list *wanting = &r->pump->wanting;

    while (!list_is_empty(wanting)) {
        struct instance *i = list_first(wanting, struct instance, pump_link);
        list_remove(&i->pump_link);
        while (send_message(i))
            ;
        mailbox_tidy(&i->mb);
    }
}
