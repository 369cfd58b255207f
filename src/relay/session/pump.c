/* pump.c - design.  (pump.h has the contract.)
 *
 * An unplanned end of a receiver counts as an attempt of each delivery on it, once per socket.
 * Either the socket is lost, or a newer socket replaces it: a client whose reader died reconnects
 * and leaves its old socket open.
 *
 * Pumps run when the turn ends, so events of one turn share a message.  Bytes in flight on a socket
 * are bounded by window * pack_bytes, read-ahead by FETCH_TOTAL_BYTES.  Of a gateway that acks late
 * the pong to a ping behind so many bytes proves that it has read them. */
#include "relay/session/pump.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "core/event.h"
#include "relay/heart.h"
#include "relay/in/accept.h"
#include "relay/log_limit.h"
#include "relay/latency.h"
#include "relay/mailbox/mailbox.h"
#include "relay/session/session.h"
#include "relay/sleep/instance.h"
#include "store/store.h"
#include "tenancy/facts.h"

struct pump {
    struct fifo wanting; /* instances */
    struct list fetches; /* every read of bodies, owned */
    struct list hungry;  /* instances that found no room for a read, by hungry_link */
    uint64_t fetched;    /* bytes of finished and pending reads */
    struct buf filled;   /* scratch: a frame with the addresses of its files */
    struct log_limit log_parked;
};

struct pump *pump_new(void)
{
    struct pump *p = xcalloc(1, sizeof *p);

    list_init(&p->fetches);
    list_init(&p->hungry);
    return p;
}

/* ---- flight ----
 *
 * Lookups go from the newest message back: a redriven delivery is sent in a message of its own,
 * whose id may lie inside the range of an older message. */

enum { FIRST_FLIGHT = 4 };

void flight_add(struct flight **ret_f, uint64_t first, uint64_t last, uint32_t n)
{
    struct flight *f = *ret_f;

    if (f == NULL || f->n == f->cap) {
        uint16_t cap = f != NULL ? (uint16_t)(f->cap * 2) : FIRST_FLIGHT;
        f = xrealloc(f, sizeof *f + cap * sizeof f->msg[0]);
        if (*ret_f == NULL)
            *f = (struct flight){0};
        f->cap = cap;
        *ret_f = f;
    }
    f->msg[f->n++] = (struct flight_message){.first = first, .last = last, .left = n};
}

bool flight_forget(struct flight *f, uint64_t id)
{
    size_t i = f != NULL ? f->n : 0;

    while (i > 0 && (id < f->msg[i - 1].first || id > f->msg[i - 1].last))
        i--;
    if (i == 0 || --f->msg[i - 1].left != 0)
        return false;
    f->n--;
    memmove(&f->msg[i - 1], &f->msg[i], (f->n - (i - 1)) * sizeof f->msg[0]);
    if (f->n == 0)
        f->solo = false;
    return true;
}

uint64_t flight_rows(const struct flight *f)
{
    uint64_t n = 0;

    for (size_t i = 0; f != NULL && i < f->n; i++)
        n += f->msg[i].left;
    return n;
}

/* ---- sent_ids ----
 *
 * Open addressing with linear probing; removal closes the gap, so there are no tombstones.  Entries
 * of deliveries that were settled without an ack stay until the table is full, then are swept. */

enum { FIRST_SENT = 16 };

/* An id is digits of a keyed hash, of which the last sixteen are enough.  Others are hashed: nobody
 * may choose the place of an entry. */
static uint64_t tag_of(const struct relay *r, struct str id)
{
    uint64_t a, b;

    if (id.n != DELIVERY_ID_CHARS)
        return hash64_brief(&r->env.store->dedup_key, id);
    memcpy(&a, id.p + id.n - 16, sizeof a);
    memcpy(&b, id.p + id.n - 8, sizeof b);
    a += b * 0x9e3779b97f4a7c15u;
    return a ^ a >> 32;
}

static void sent_put(struct sent_ids *t, struct sent_id e)
{
    uint32_t mask = t->cap - 1, at = (uint32_t)e.tag & mask;

    while (t->at[at].tag != 0) {
        if (t->at[at].tag == e.tag && t->at[at].id == e.id)
            return; /* sent again on another socket */
        at = (at + 1) & mask;
    }
    t->at[at] = e;
    t->n++;
}

/* Rebuilds the table with the unsettled pairs only, at most a quarter full. */
static void sent_sweep(struct sent_ids *t, struct mailbox *mb)
{
    struct sent_ids was = *t;
    uint32_t alive = 0;

    for (uint32_t i = 0; i < was.cap; i++) {
        if (was.at[i].tag != 0 && mailbox_find(mb, was.at[i].id) == NULL)
            was.at[i].tag = 0;
        alive += was.at[i].tag != 0;
    }
    *t = (struct sent_ids){.cap = FIRST_SENT};
    while (t->cap < alive * 4)
        t->cap *= 2;
    t->at = xcalloc(t->cap, sizeof t->at[0]);
    for (uint32_t i = 0; i < was.cap; i++)
        if (was.at[i].tag != 0)
            sent_put(t, was.at[i]);
    free(was.at);
}

void sent_ids_add(struct sent_ids *t, struct mailbox *mb, uint64_t tag, uint64_t id)
{
    if (t->n * 2 >= t->cap)
        sent_sweep(t, mb);
    sent_put(t, (struct sent_id){tag != 0 ? tag : 1, id});
}

uint64_t sent_ids_take(struct sent_ids *t, uint64_t tag)
{
    uint32_t mask = t->cap - 1, gap;

    if (tag == 0)
        tag = 1;
    if (t->n == 0)
        return 0;
    for (gap = (uint32_t)tag & mask; t->at[gap].tag != tag; gap = (gap + 1) & mask)
        if (t->at[gap].tag == 0)
            return 0;
    uint64_t id = t->at[gap].id;
    /* Later entries of the same run move into the gap. */
    for (uint32_t at = (gap + 1) & mask; t->at[at].tag != 0; at = (at + 1) & mask) {
        uint32_t home = (uint32_t)t->at[at].tag & mask;
        if (((at - home) & mask) >= ((at - gap) & mask)) {
            t->at[gap] = t->at[at];
            gap = at;
        }
    }
    t->at[gap].tag = 0;
    t->n--;
    return id;
}

void sent_ids_done(struct sent_ids *t)
{
    free(t->at);
    *t = (struct sent_ids){0};
}

/* ---- fetch ----
 *
 * A read that is dropped while the store works on it is disowned (inst is NULL); its done callback
 * frees it. */

enum fetch_verdict {
    FETCH_HERE, /* @ret_bytes is set, borrowed until the next call */
    FETCH_WAIT, /* the read is pending: on_fetched() pumps the instance */
    FETCH_LOST, /* the store has no such row */
};

enum { FETCH_ROWS = 4096 };

struct fetch {
    struct store_fetch op;
    struct list link;      /* pump->fetches */
    struct relay *relay;   /* borrowed */
    struct instance *inst; /* borrowed; NULL: disowned */
    size_t bytes;          /* counted in pump->fetched */
    size_t next;           /* row to be used next */
    bool ready;
    uint64_t ids[];
};

static void fetch_free(struct fetch *f)
{
    struct relay *r = f->relay;
    struct pump *t = r->pump;

    if (f->ready)
        store_fetch_free(&f->op);
    t->fetched -= f->bytes;
    list_remove(&f->link);
    free(f);
    if (!list_is_empty(&t->hungry)) {
        struct instance *i = list_first(&t->hungry, struct instance, hungry_link);
        list_remove(&i->hungry_link);
        pump_want(i);
    }
}

static void on_fetched(struct store_op *op, enum bh_err err)
{
    struct fetch *f = container_of(op, struct fetch, op.op);
    struct instance *i = f->inst;

    f->ready = err == BH_OK;
    if (i == NULL) {
        fetch_free(f);
        return;
    }
    if (err != BH_OK) { /* drop both reads: the second continues the first */
        f->inst = NULL;
        i->fetch[i->fetch[0] == f ? 0 : 1] = NULL;
        fetch_free(f);
        fetch_drop(i);
        retry_want(i);
        return;
    }
    pump_want(i);
}

/* Reads rows from @id on that the receiver has not sent and that are only in the store. */
static struct fetch *fetch_start(struct instance *i, uint64_t id)
{
    struct relay *r = i->relay;
    struct pump *t = r->pump;
    const struct mailbox *mb = &i->mb;
    uint64_t ids[FETCH_ROWS];
    size_t n = 0, bytes = 0;

    for (uint32_t at = mailbox_seek(mb, id - 1); at < mb->n && n < FETCH_ROWS; at++) {
        const struct slot *slot = mailbox_at(mb, at);
        if (!slot_waits(slot) || slot->d != NULL || session_has_sent(i->receiver, slot->id))
            continue;
        if (n > 0 && bytes + slot->units * SLOT_UNIT > FETCH_BYTES)
            break;
        bytes += slot->units * SLOT_UNIT;
        ids[n++] = slot->id;
    }
    if (n == 0)
        return NULL;
    if (t->fetched != 0 && t->fetched + bytes > FETCH_TOTAL_BYTES) {
        list_move(&i->hungry_link, &t->hungry);
        return NULL;
    }
    struct fetch *f = xmalloc(sizeof *f + n * sizeof ids[0]);
    *f = (struct fetch){.relay = r, .inst = i, .bytes = bytes};
    memcpy(f->ids, ids, n * sizeof ids[0]);
    f->op = (struct store_fetch){
        .op = {.done = on_fetched}, .ids = f->ids, .n = n, .expected_bytes = bytes, .loose = true};
    list_append(&t->fetches, &f->link);
    t->fetched += bytes;
    store_fetch(r->env.store, &f->op);
    return f;
}

static uint64_t last_id(const struct fetch *f)
{
    return f->ids[f->op.n - 1];
}

static void shift(struct instance *i)
{
    struct fetch *used = i->fetch[0];

    i->fetch[0] = i->fetch[1];
    i->fetch[1] = NULL;
    used->inst = NULL;
    if (used->ready)
        fetch_free(used);
}

/* Looks @id up in the instance's reads.  FETCH_LOST: they do not contain it. */
static enum fetch_verdict from_reads(struct instance *i, uint64_t id, struct str *ret_bytes)
{
    while (i->fetch[0] != NULL) {
        struct fetch *f = i->fetch[0];
        if (!f->ready)
            return last_id(f) < id || f->ids[0] > id ? FETCH_LOST : FETCH_WAIT;
        while (f->next < f->op.n_rows && f->op.rows[f->next].id < id)
            f->next++;
        if (f->next < f->op.n_rows) {
            if (f->op.rows[f->next].id != id)
                return FETCH_LOST;
            *ret_bytes = f->op.rows[f->next].frame;
            return FETCH_HERE;
        }
        shift(i);
    }
    return FETCH_LOST;
}

/* Gets the bytes of @slot from memory or from a read.  Must be called in the order of sending. */
static enum fetch_verdict fetch_body(struct instance *i, struct slot *slot, struct str *ret_bytes)
{
    if (!list_is_empty(&i->revisions)) {
        *ret_bytes = delivery_revised(i, slot->id);
        if (ret_bytes->p != NULL)
            return FETCH_HERE;
    }
    if (slot->d != NULL) {
        *ret_bytes = slot->d->append.frame;
        return FETCH_HERE;
    }
    const struct fetch *f = i->fetch[0];
    if (f != NULL && f->ready && f->ids[0] == slot->id &&
        (f->op.n_rows == 0 || f->op.rows[0].id != slot->id)) {
        fetch_drop(i);
        return FETCH_LOST; /* it was asked for, and the store had no such row */
    }
    enum fetch_verdict v = from_reads(i, slot->id, ret_bytes);
    if (v == FETCH_LOST) {
        fetch_drop(i);
        i->fetch[0] = fetch_start(i, slot->id);
        v = FETCH_WAIT;
    }
    if (i->fetch[0] != NULL && i->fetch[0]->ready && i->fetch[0]->next == 0 && i->fetch[1] == NULL)
        i->fetch[1] = fetch_start(i, last_id(i->fetch[0]) + 1);
    return v;
}

void fetch_drop(struct instance *i)
{
    list_remove(&i->hungry_link);
    while (i->fetch[0] != NULL || i->fetch[1] != NULL) {
        if (i->fetch[0] == NULL) {
            i->fetch[0] = i->fetch[1];
            i->fetch[1] = NULL;
        }
        shift(i);
    }
}

void pump_free(struct relay *r)
{
    if (r->pump == NULL)
        return;
    list_each (&r->pump->fetches, it, nxt) {
        struct fetch *f = list_entry(it, struct fetch, link);
        if (f->ready)
            store_fetch_free(&f->op);
        free(f);
    }
    fifo_done(&r->pump->wanting);
    buf_done(&r->pump->filled);
    free(r->pump);
}

/* ---- the pump ---- */

void pump_want(struct instance *i)
{
    if (i->wants_pump || i->receiver == NULL)
        return;
    i->wants_pump = true;
    fifo_push(&i->relay->pump->wanting, i);
    turn_want(i->relay, TURN_PUMP);
}

void pump_again(struct instance *i, uint64_t id)
{
    struct session *s = i->receiver;

    if (s == NULL || id > s->sent_id || (s->number <= i->park_mark && !s->inside))
        return;
    struct again *a = s->again;
    if (a == NULL) {
        a = xmalloc(sizeof *a + sizeof a->ids[0]);
        a->n = a->at = 0;
    } else if (a->n < UINT16_MAX && (a->n & (a->n - 1u)) == 0) { /* full: a power of two */
        a = xrealloc(a, sizeof *a + a->n * 2u * sizeof a->ids[0]);
    }
    s->again = a;
    size_t k = again_seek(a, id);
    if (a->n == UINT16_MAX || (k < a->n && a->ids[k] == id))
        return;
    memmove(a->ids + k + 1, a->ids + k, (a->n - k) * sizeof a->ids[0]);
    a->ids[k] = id;
    a->n++;
}

/* ---- soft deliveries ---- */

static bool is_soft(const struct session *s, const struct slot *slot)
{
    return !s->inside && (s->acking.never || (slot->flags & SLOT_PASSTHROUGH) != 0 ||
                          !s->inst->relay->lim.live_acks);
}

void pump_soften(struct session *s, uint64_t last)
{
    struct flight *f = s->flight;

    session_ping(s);
    if (!f->soft || last > f->ping_upto)
        f->ping_upto = last;
    f->soft = true;
    f->ping_no = s->ping_no;
}

/* Settles the soft deliveries of this socket up to @id. */
static void settle_soft(struct session *s, uint64_t id)
{
    struct instance *i = s->inst;

    for (uint32_t at = 0; at < i->mb.n; at++) {
        struct slot *slot = mailbox_at(&i->mb, at);
        if (slot->id > id)
            break;
        if (slot_waits(slot) && is_soft(s, slot) && session_has_sent(s, slot->id)) {
            journal_step(i->relay->journal, clock_wall_ms(i->relay->env.clock), JOURNAL_SETTLED,
                         slot->id, slot->attempts, STR_NULL);
            delivery_settle(i, slot);
        }
    }
    mailbox_tidy(&i->mb);
}

void pump_ponged(struct session *s, uint32_t number)
{
    struct flight *f = s->flight;

    if (f == NULL || !f->soft || number < f->ping_no)
        return;
    f->soft = false;
    settle_soft(s, f->ping_upto);
    s->ack_since_ms = clock_now_ms(s->inst->relay->env.clock);
}

void pump_acked(struct session *s, struct str buffer_id)
{
    struct instance *i = s->inst;
    uint64_t id = 0, tag = tag_of(i->relay, buffer_id);
    struct slot *slot = NULL;

    /* An earlier copy that the store refused may have been sent under the same bufferId. */
    while (slot == NULL && (id = sent_ids_take(&i->sent, tag)) != 0)
        slot = mailbox_find(&i->mb, id);
    if (s->flight != NULL && s->flight->soft && id > 0) {
        settle_soft(s, id - 1); /* gateways read in order: earlier deliveries were read too */
        slot = mailbox_find(&i->mb, id);
    }
    if (slot == NULL)
        return; /* already settled, or a bufferId that was never sent */
    i->relay->n.acked++;
    latency_note(i, slot, 1);
    journal_step(i->relay->journal, clock_wall_ms(i->relay->env.clock), JOURNAL_ACKED, slot->id,
                 slot->attempts, STR_NULL);
    if (i->relay->env.outside->acked != NULL)
        i->relay->env.outside->acked(i->relay->env.outside, instance_tenant(i), instance_id(i),
                                     buffer_id);
    delivery_settle(i, slot);
    mailbox_tidy(&i->mb);
}

/* ---- what a gateway that acks late has not read ---- */

/* Bytes that may be on a socket before its gateway has read them. */
static uint64_t most_unread(const struct relay *r)
{
    return (uint64_t)r->lim.window * r->lim.pack_bytes;
}

/* It was sent so many bytes more. */
static void add_unread(struct session *s, uint64_t bytes, bool solo)
{
    uint64_t most = most_unread(s->inst->relay), all = s->late_bytes + bytes;

    s->late_ping = s->ping_no;
    s->late_bytes = (uint32_t)(all < most ? all : most);
    if (solo || all >= most)
        session_ping(s);
}

/* ---- a socket that the previous process had: session_resume() ---- */

/* Whether a delivery that waits was left out when later ones went down this socket: its ack came on
 * another socket and is lost, or it was parked then and redriven since. */
static bool left_one_out(const struct session *s, const struct session_row *rows, size_t n)
{
    const struct mailbox *mb = &s->inst->mb;
    uint64_t newest = n > 0 ? rows[n - 1].row : 0;
    size_t k = 0;

    for (uint32_t at = 0; at < mb->n && mailbox_at(mb, at)->id < newest; at++) {
        const struct slot *slot = mailbox_at(mb, at);
        while (rows[k].row < slot->id)
            k++;
        if (slot_waits(slot) && rows[k].row != slot->id)
            return true;
    }
    return false;
}

bool pump_resume(struct session *s, const struct session_row *rows, size_t n)
{
    struct instance *i = s->inst;
    uint64_t first = 0, last = 0, bytes = 0;
    uint32_t left = 0;
    bool soft = false, solo = false;

    for (size_t k = 0; k < n; k++) {
        struct slot *slot = mailbox_find(&i->mb, rows[k].row);
        s->sent_id = rows[k].row > s->sent_id ? rows[k].row : s->sent_id;
        if (slot == NULL)
            continue;
        sent_ids_add(&i->sent, &i->mb, tag_of(i->relay, rows[k].id), slot->id);
        if (!slot_waits(slot)) { /* parked: an ack settles it, and this socket had it */
            i->park_mark = session_newest(i->relay);
            continue;
        }
        first = left++ == 0 ? slot->id : first;
        last = slot->id;
        bytes += slot->units * SLOT_UNIT;
        soft |= is_soft(s, slot);
        solo |= slot->attempts >= PUMP_SOLO_ATTEMPTS;
        delivery_sent(i, slot);
    }
    if (left > 0) {
        flight_add(&s->flight, first, last, left);
        s->flight->solo = solo;
    }
    if (soft)
        pump_soften(s, s->sent_id);
    if (left > 0 && s->late_acks)
        add_unread(s, bytes, solo);
    return !left_one_out(s, rows, n);
}

/* ---- attempts ---- */

/* Parks a delivery for the reason @why: no socket gets it until it is redriven. */
static void park_slot(struct session *s, struct slot *slot, struct str why)
{
    struct instance *i = s->inst;
    struct relay *r = i->relay;
    uint64_t skipped;

    mailbox_park(&i->mb, slot, true);
    i->park_mark = session_newest(r);
    r->n.parked++;
    journal_step(r->journal, clock_wall_ms(r->env.clock), JOURNAL_PARKED, slot->id, slot->attempts,
                 why);
    if (log_limit_passes(&r->pump->log_parked, clock_now_ms(r->env.clock), &skipped))
        log_warn(&s->log, "delivery parked: delivery=%llu attempts=%u more=%llu",
                 (unsigned long long)slot->id, (unsigned)slot->attempts,
                 (unsigned long long)skipped);
    if (i->has_parcels)
        parcel_tell(i, slot, PARCEL_PARKED, why);
    delivery_mark(i, slot, why);
    session_forget_all(i, slot->id);
}

void pump_lost(struct session *s)
{
    struct instance *i = s->inst;
    struct mailbox *mb = &i->mb;
    char why[160];

    for (uint32_t at = mailbox_seek(mb, s->counted_id); at < mb->n; at++) {
        struct slot *slot = mailbox_at(mb, at);
        if (slot->id > s->sent_id)
            break;
        if (!slot_waits(slot) || !session_has_sent(s, slot->id))
            continue;
        if (slot->attempts < SLOT_MAX_ATTEMPTS)
            slot->attempts++;
        if (slot->attempts < i->relay->lim.max_attempts) {
            delivery_mark(i, slot, STR_NULL);
            continue;
        }
        if (slot->attempts == 1)
            snprintf(why, sizeof why, "1 socket was lost with it, session %u of %s", s->number,
                     s->gw->id);
        else
            snprintf(why, sizeof why, "%u sockets were lost with it, the last one session %u of %s",
                     (unsigned)slot->attempts, s->number, s->gw->id);
        park_slot(s, slot, str_of(why));
    }
    s->counted_id = s->sent_id;
}

bool session_failed(struct session *s, struct str buffer_id, struct str why, bool park)
{
    struct instance *i = s->inst;
    struct relay *r = i->relay;
    uint64_t tag = tag_of(r, buffer_id);
    uint64_t id = sent_ids_take(&i->sent, tag);
    struct slot *slot = id != 0 ? mailbox_find(&i->mb, id) : NULL;

    if (slot == NULL)
        return true; /* purged meanwhile: nothing to retry */
    if (slot->attempts < SLOT_MAX_ATTEMPTS)
        slot->attempts++;
    if (!park && slot->attempts < r->lim.max_attempts) {
        sent_ids_add(&i->sent, &i->mb, tag, id);
        delivery_mark(i, slot, STR_NULL);
        return false;
    }
    park_slot(s, slot, why);
    pump_want(i);
    return true;
}

/* ---- messages ---- */

struct pack { /* one message being put together; on the stack */
    struct session *s;
    struct buf *out; /* borrowed from the wire; NULL: not begun */
    size_t start;    /* bytes in @out before us */
    size_t max;      /* bytes of a message with several deliveries */
    uint64_t first, last;
    size_t bytes;
    uint32_t n, most; /* deliveries, and how many fit */
    bool soft, solo;
};

/* Splits a frame that is too long for one message.  Gateways read a byte stream, so a frame may be
 * cut between any two characters. */
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
    struct str name = delivery_id_in(body); /* by which the ack names this delivery */
    if (name.p != NULL)
        sent_ids_add(&i->sent, &i->mb, tag_of(r, name), slot->id);
    if (p->s->wire->ops->sent != NULL && name.p != NULL)
        p->s->wire->ops->sent(p->s->wire, slot->id, name);
    if (p->n++ == 0)
        p->first = slot->id;
    p->last = slot->id;
    p->bytes += body.n;
    p->soft |= is_soft(p->s, slot);
    p->solo |= slot->attempts >= PUMP_SOLO_ATTEMPTS;
    r->n.delivered++;
    r->n.redelivered += again;
    if (!again)
        latency_note(i, slot, 0);
    journal_step(r->journal, clock_wall_ms(r->env.clock), again ? JOURNAL_RESENT : JOURNAL_SENT,
                 slot->id, slot->attempts, STR_NULL);
    if (i->has_parcels && !p->s->inside)
        parcel_tell(i, slot, PARCEL_SENT, STR_NULL);
    delivery_sent(i, slot);
}

static void pack_end(struct pack *p)
{
    struct session *s = p->s;

    if (p->out != NULL)
        s->wire->ops->send_end(s->wire);
    if (flight_count(s->flight) == 0)
        s->ack_since_ms = clock_now_ms(s->inst->relay->env.clock);
    flight_add(&s->flight, p->first, p->last, p->n);
    s->flight->solo = p->solo;
    if (p->last > s->sent_id)
        s->sent_id = p->last;
    if (p->soft)
        pump_soften(s, p->last);
    if (s->late_acks)
        add_unread(s, p->bytes, p->solo);
    activity_note(s->inst, &s->inst->last_inbound_ms);
    session_arm(s);
}

static void write_media_url(void *ctx, struct str id, struct buf *out)
{
    struct session *s = ctx;

    s->wire->ops->media_url(s->wire, id, !s->gw->newer, out);
}

/* A suspect is sent when nothing else is on the socket, or, of a gateway that acks late, unread. */
static bool may_be_alone(const struct pack *p)
{
    struct session *s = p->s;

    if (p->n > 0 || !s->late_acks)
        return p->n == 0 && flight_count(s->flight) == 0;
    if (s->late_bytes > 0 && s->ping_no == s->late_ping)
        session_ping(s);
    return s->late_bytes == 0;
}

/* Adds @slot to the message if it can be sent now.  False: the message ends before @slot. */
static bool try_add(struct pack *p, struct slot *slot)
{
    struct instance *i = p->s->inst;
    struct str body;

    if (!delivery_may_leave(i->relay->env.store, slot) ||
        (slot->attempts >= PUMP_SOLO_ATTEMPTS && !may_be_alone(p)))
        return false;
    switch (fetch_body(i, slot, &body)) {
    case FETCH_WAIT:
        return false;
    case FETCH_LOST: /* settled, because waiting would block those behind it */
        log_error(NULL, "a delivery is missing from the store: tenant=%.*s instance=%.*s id=%llx",
                  STR_FMT(instance_tenant(i)), STR_FMT(instance_id(i)),
                  (unsigned long long)slot->id);
        delivery_settle(i, slot);
        return true;
    case FETCH_HERE:
        break;
    }
    if ((slot->flags & SLOT_MEDIA) != 0 && p->s->wire->ops->media_url != NULL) {
        /* The URLs of files depend on the gateway and the time, so they are inserted now. */
        struct buf *filled = &i->relay->pump->filled;
        buf_reset(filled);
        event_fill_media(filled, body, write_media_url, p->s);
        body = buf_str(filled);
    }
    if (p->n > 0 &&
        (p->solo || p->n == p->most || p->out == NULL || p->out->n - p->start + body.n > p->max))
        return false; /* it begins the next message */
    pack_add(p, slot, body);
    return true;
}

/* Adds a redriven delivery that this socket has passed: one per message, before newer ones. */
static void send_again(struct pack *p)
{
    struct session *s = p->s;

    while (s->again != NULL && p->n == 0) {
        struct again *a = s->again;
        struct slot *slot = mailbox_find(&s->inst->mb, a->ids[a->at]);
        if (slot != NULL && slot_waits(slot) && !try_add(p, slot))
            return;
        if (++a->at == a->n) {
            free(a);
            s->again = NULL;
        }
    }
}

static bool send_message(struct instance *i)
{
    struct session *s = i->receiver;
    const struct mailbox *mb = &i->mb;
    size_t most = i->relay->lim.pack_bytes;
    struct pack p = {.s = s,
                     .max = most < PUMP_MESSAGE_MAX ? most : PUMP_MESSAGE_MAX,
                     .most = UINT32_MAX};
    uint64_t unacked = 0;

    if (s != NULL && s->late_acks)
        unacked = flight_rows(s->flight);
    if (s == NULL || s->state != SESSION_RECEIVING || i->relay->draining ||
        (s->late_acks ? unacked >= PUMP_LATE_MAX || s->late_bytes >= most_unread(i->relay)
                      : flight_count(s->flight) >= (s->inside ? 1 : i->relay->lim.window)) ||
        (s->flight != NULL && s->flight->solo) || session_settles(s))
        return false;
    if (s->pulls) {
        s->wire->ops->mail(s->wire);
        return false;
    }
    if (s->inside)
        p.max = INSIDE_PACK_BYTES;
    if (s->late_acks)
        p.most = PUMP_LATE_MAX - (uint32_t)unacked;
    if (s->again != NULL)
        send_again(&p);
    if (s->again == NULL && p.n == 0)
        for (uint32_t at = mailbox_seek(mb, s->sent_id); at < mb->n; at++) {
            struct slot *slot = mailbox_at(mb, at);
            if (slot_waits(slot) && !try_add(&p, slot))
                break;
        }
    if (p.n == 0)
        return false;
    pack_end(&p);
    return true;
}

void pump_all(struct relay *r)
{
    for (struct instance *i; (i = fifo_pop(&r->pump->wanting)) != NULL;) {
        i->wants_pump = false;
        while (send_message(i))
            ;
        mailbox_tidy(&i->mb);
    }
}
