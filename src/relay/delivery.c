/* delivery.c - design.  (delivery.h has the contract.)
 *
 * A delivery for a live socket is appended without urgency: the store waits a few milliseconds for
 * company, and an ack that comes first shrinks the write to its deduplication key.  For everybody
 * else the append is urgent, because somebody waits for the answer.
 *
 * What the store refuses is not ours to keep: we report "unavailable" and forget the key, so that
 * the platform's replay is taken as new.  The exception is a delivery that is on a socket right
 * now: its ack may come any moment, and forgetting it then would only make a duplicate. */
#include "relay/delivery.h"
#include <assert.h>
#include <stdlib.h>
#include "relay/accept.h"
#include "relay/heart.h"
#include "relay/session.h"

#define MAX_KEPT_BYTES (16u << 20) /* all instances together */

struct joined {
    struct joined *next; /* owned */
    struct accept *a;    /* shared */
};

static struct delivery *delivery_of(struct list *link)
{
    return list_entry(link, struct delivery, link);
}

static bool is_volatile(const struct delivery *d)
{
    return d->state <= DELIVERY_FAILED;
}

static void answer(struct delivery *d, enum bh_err err)
{
    struct relay *r = d->inst->relay;

    if (d->accept != NULL)
        accept_release(r, d->accept, err);
    d->accept = NULL;
    while (d->joined != NULL) {
        struct joined *j = d->joined;
        d->joined = j->next;
        accept_release(r, j->a, err);
        free(j);
    }
}

static void delivery_free(struct delivery *d)
{
    struct relay *r = d->inst->relay;
    uint64_t *bytes = d->state == DELIVERY_KEPT ? &r->kept_bytes : &r->volatile_bytes;

    assert(d->accept == NULL && d->joined == NULL);
    *bytes -= d->append.frame.n;
    list_remove(&d->link);
    free(d);
    if (r->draining)
        heart_wake(r);
}

/* ---- to the disk ---- */

static store_done_cb on_appended;

static void submit(struct delivery *d)
{
    struct instance *i = d->inst;
    assert(i != NULL);
    bool live = i->receiver != NULL && i->receiver->state == SESSION_RECEIVING;

    d->state = DELIVERY_QUEUED;
    d->append.op = (struct store_op){.done = on_appended};
    store_append(i->relay->env.store, &d->append, !live);
}

void delivery_add(struct instance *i, const struct delivery_spec *spec, struct accept *a)
{
    struct relay *r = i->relay;
    int64_t wall_ms = clock_wall_ms(r->env.clock);
    struct delivery *d = xmalloc(sizeof *d + spec->frame.n);

    *d = (struct delivery){.inst = i, .accept = a, .state = DELIVERY_WAITING};
    memcpy(d->bytes, spec->frame.p, spec->frame.n);
    d->append = (struct store_append){.id = spec->id,
                                      .box = i->box,
                                      .row_kind = (uint8_t)spec->kind,
                                      .has_key = spec->has_key,
                                      .key = spec->key,
                                      .at_ms = wall_ms,
                                      .frame = str_make(d->bytes, spec->frame.n)};
    struct slot *slot = mailbox_push(&i->mb, spec->id, spec->frame.n, (uint32_t)(wall_ms / 1000));
    slot->d = d;
    if (spec->kind == STORE_ROW_PASSTHROUGH)
        slot->flags |= SLOT_PASSTHROUGH;
    accept_hold(a);
    r->volatile_bytes += spec->frame.n;
    list_append(&i->mb.held, &d->link);
    if (i->record_done != 0)
        submit(d);
}

bool delivery_join(struct instance *i, struct hash128 key, struct accept *a)
{
    list_each (&i->mb.held, it, nxt) {
        struct delivery *d = delivery_of(it);
        if (!is_volatile(d) || !d->append.has_key || d->append.key.lo != key.lo ||
            d->append.key.hi != key.hi)
            continue;
        struct joined *j = xmalloc(sizeof *j);
        *j = (struct joined){.next = d->joined, .a = a};
        d->joined = j;
        accept_hold(a);
        return true;
    }
    return false;
}

/* The store will never have it: whoever sent it must send it again. */
static void give_up(struct delivery *d)
{
    struct instance *i = d->inst;
    struct relay *r = i->relay;
    struct slot *slot = mailbox_find(&i->mb, d->append.id);

    assert(slot != NULL && slot->d == d);
    session_forget_all(i, slot->id);
    mailbox_drop(&i->mb, slot);
    if (d->append.has_key)
        dedup_remove(&r->dedup, d->append.key);
    r->n.refused_store++;
    answer(d, BH_UNAVAILABLE);
    delivery_free(d);
}

static void append_failed(struct delivery *d)
{
    struct instance *i = d->inst;
    uint64_t skipped;

    if (heart_may_log(i->relay, &i->relay->log_store, &skipped))
        log_warn(NULL, "the store refuses deliveries: instance=%.*s more=%llu",
                 STR_FMT(instance_id(i)), (unsigned long long)skipped);
    if (!session_anyone_has(i, d->append.id)) {
        give_up(d);
        mailbox_tidy(&i->mb);
        session_check_idle(i);
        return;
    }
    d->state = DELIVERY_FAILED;
    heart_trouble(i);
}

static void became_durable(struct delivery *d)
{
    struct instance *i = d->inst;
    struct relay *r = i->relay;
    struct slot *slot = mailbox_find(&i->mb, d->append.id);
    const struct session *s = i->receiver;

    assert(slot != NULL && slot->d == d);
    slot->flags |= SLOT_DURABLE;
    answer(d, BH_OK);
    if (s != NULL && s->state == SESSION_RECEIVING && !session_has_sent(s, slot->id) &&
        r->kept_bytes + d->append.frame.n <= MAX_KEPT_BYTES) {
        d->state = DELIVERY_KEPT;
        r->volatile_bytes -= d->append.frame.n;
        r->kept_bytes += d->append.frame.n;
    } else {
        slot->d = NULL;
        delivery_free(d);
    }
    session_check_idle(i);
}

static void on_appended(struct store_op *op, enum bh_err err)
{
    struct delivery *d = container_of(op, struct delivery, append.op);

    assert(d->state == DELIVERY_QUEUED || d->state == DELIVERY_SETTLED);
    if (d->state == DELIVERY_SETTLED)
        delivery_free(d);
    else if (err == BH_OK || err == BH_CONFLICT) /* a retry finds the row that "failed" before */
        became_durable(d);
    else
        append_failed(d);
}

void delivery_record_done(struct instance *i, enum bh_err err)
{
    list_each (&i->mb.held, it, nxt) {
        struct delivery *d = delivery_of(it);
        if (d->state != DELIVERY_WAITING)
            continue;
        if (err == BH_OK)
            submit(d);
        else if (!session_anyone_has(i, d->append.id))
            give_up(d); /* one on a socket stays: the record is written again, then it is */
    }
    mailbox_tidy(&i->mb);
}

void delivery_retry(struct instance *i)
{
    list_each (&i->mb.held, it, nxt)
        if (delivery_of(it)->state == DELIVERY_FAILED)
            submit(delivery_of(it));
}

/* ---- out of it ---- */

void delivery_settle(struct instance *i, struct slot *slot)
{
    struct relay *r = i->relay;
    struct delivery *d = slot->d;
    uint64_t id = slot->id;

    session_forget_all(i, id);
    mailbox_drop(&i->mb, slot);
    r->n.settled++;
    if (d == NULL || d->state == DELIVERY_KEPT)
        acks_add(r, id);
    if (d == NULL)
        return;
    answer(d, BH_OK);
    if (d->state == DELIVERY_QUEUED) {
        if (!store_append_shrink(r->env.store, &d->append))
            acks_add(r, id); /* too late to shrink: the row comes and is deleted after */
        d->state = DELIVERY_SETTLED;
        list_move(&d->link, &r->settling);
    } else {
        delivery_free(d);
    }
    session_check_idle(i);
}

void delivery_sent(struct instance *i, struct slot *slot)
{
    struct delivery *d = slot->d;

    (void)i;
    slot->flags |= SLOT_SENT;
    if (d == NULL || d->state != DELIVERY_KEPT)
        return;
    slot->d = NULL;
    delivery_free(d);
}

void delivery_drop_kept(struct instance *i)
{
    list_each (&i->mb.held, it, nxt) {
        struct delivery *d = delivery_of(it);
        if (d->state != DELIVERY_KEPT)
            continue;
        mailbox_find(&i->mb, d->append.id)->d = NULL;
        delivery_free(d);
    }
}

void delivery_socket_lost(struct instance *i)
{
    list_each (&i->mb.held, it, nxt) {
        struct delivery *d = delivery_of(it);
        bool refused =
            d->state == DELIVERY_FAILED || (d->state == DELIVERY_WAITING && i->record_writing == 0);
        if (refused && !session_anyone_has(i, d->append.id))
            give_up(d);
    }
    mailbox_tidy(&i->mb);
}

bool delivery_safe_up_to(const struct instance *i, uint64_t id)
{
    for (const struct list *it = i->mb.held.next; it != &i->mb.held; it = it->next) {
        const struct delivery *d = list_entry(it, struct delivery, link);
        if (is_volatile(d))
            return d->append.id > id;
    }
    return true;
}

/* ---- attempts ---- */

struct mark {
    struct store_mark op;
    struct list link; /* relay->marks */
    char reason[];
};

static void on_marked(struct store_op *op, enum bh_err err)
{
    struct mark *m = container_of(op, struct mark, op.op);

    (void)err; /* a lost mark costs one more attempt after a restart, nothing else */
    list_remove(&m->link);
    free(m);
}

void delivery_mark(struct instance *i, const struct slot *slot, struct str parked)
{
    struct mark *m = xmalloc(sizeof *m + parked.n);

    memcpy(m->reason, parked.n != 0 ? parked.p : "", parked.n);
    m->op =
        (struct store_mark){.op = {.done = on_marked}, .id = slot->id, .attempts = slot->attempts};
    if (parked.p != NULL)
        m->op.parked = str_make(m->reason, parked.n);
    list_append(&i->relay->marks, &m->link);
    store_mark(i->relay->env.store, &m->op);
}

/* ---- acks ---- */

enum { FIRST_ACKS = 64 };
struct ack_batch {
    struct store_ack op;
    struct relay *relay; /* borrowed */
    struct list link;    /* relay->ack_batches once submitted */
    uint32_t n, cap;
    bool failed;
    uint64_t ids[];
};

void acks_add(struct relay *r, uint64_t id)
{
    struct ack_batch *b = r->acks;

    if (b == NULL || b->n == b->cap) {
        uint32_t cap = b != NULL ? b->cap * 2 : FIRST_ACKS;
        b = xrealloc(b, sizeof *b + cap * sizeof b->ids[0]);
        if (r->acks == NULL)
            *b = (struct ack_batch){.relay = r};
        b->cap = cap;
        r->acks = b;
    }
    b->ids[b->n++] = id;
    heart_wake(r);
}

static void on_acked(struct store_op *op, enum bh_err err)
{
    struct ack_batch *b = container_of(op, struct ack_batch, op.op);
    struct relay *r = b->relay;

    if (err != BH_OK && !r->draining) { /* a drain does not wait for a store that is down */
        b->failed = true;
        if (!timer_is_set(&r->retry))
            timer_set(r->env.clock, &r->retry, RETRY_MS);
        return;
    }
    list_remove(&b->link);
    free(b);
    if (r->draining)
        heart_wake(r);
}

static void submit_batch(struct relay *r, struct ack_batch *b)
{
    b->failed = false;
    b->op = (struct store_ack){.op = {.done = on_acked}, .ids = b->ids, .n = b->n};
    store_ack(r->env.store, &b->op);
}

void acks_submit(struct relay *r)
{
    struct ack_batch *b = r->acks;

    if (b == NULL)
        return;
    r->acks = NULL;
    list_init(&b->link);
    list_append(&r->ack_batches, &b->link);
    submit_batch(r, b);
}

void acks_retry(struct relay *r)
{
    list_each (&r->ack_batches, it, nxt) {
        struct ack_batch *b = list_entry(it, struct ack_batch, link);
        if (b->failed)
            submit_batch(r, b);
    }
}

bool acks_pending(const struct relay *r)
{
    return r->acks != NULL || !list_is_empty(&r->ack_batches);
}

/* ---- the end ---- */

static void free_list(struct list *head)
{
    list_each (head, it, nxt) {
        struct delivery *d = delivery_of(it);
        while (d->joined != NULL) {
            struct joined *j = d->joined;
            d->joined = j->next;
            free(j);
        }
        list_remove(&d->link);
        free(d);
    }
}

void delivery_free_all(struct relay *r)
{
    list_each (&r->instances, it, nxt)
        free_list(&list_entry(it, struct instance, link)->mb.held);
    free_list(&r->settling);
    list_each (&r->marks, m, next_m)
        free(list_entry(m, struct mark, link));
    list_each (&r->ack_batches, b, next_b)
        free(list_entry(b, struct ack_batch, link));
    free(r->acks);
}
