/* mailbox.c - design.  (mailbox.h has the contract.)
 *
 * Acks come in order, so the settled slot is nearly always the head, and the ring behaves like a
 * queue.  Gaps arise behind a parked or slow head.  A ring with more gaps than slots is rebuilt.
 * With a file store, an append for a live socket is not urgent: the store waits a few milliseconds
 * to batch writes, and an early ack shrinks the write to its deduplication key.  Every other append
 * is urgent: a platform waits for the answer, or a shared store must commit before the pump sends.
 *
 * When the store refuses a delivery, the relay reports "unavailable" and forgets the key, so that
 * the platform's replay counts as new.  Two kinds of delivery are retried instead: one that is on a
 * socket, because its ack may come any moment, and one in doubt, because its row may exist.
 *
 * Long because slots, deliveries, revisions and acks are the states of one delivery. */
#include "relay/mailbox/mailbox.h"
#include <assert.h>
#include <stdlib.h>
#include "relay/heart.h"
#include "relay/in/accept.h"
#include "relay/in/allowance.h"
#include "relay/log_limit.h"
#include "relay/session/pump.h"
#include "relay/session/session.h"
#include "relay/sleep/instance.h"
#include "relay/sleep/sleep.h"
#include "store/store.h"

#define MAX_VOLATILE_BYTES (256ull << 20) /* bodies waiting for the disk, all instances together */
#define MAX_KEPT_BYTES (16u << 20)        /* all instances together */
enum {
    BOOT_SHIFT = 40,
    FIRST_CAP = 4,
    SMALL_CAP = 64,
    FIRST_ACKS = 64,
    RING_ACKS = 4096,
    MOST_BATCHES = 4,
};

/* ---- slots ---- */

void mailbox_init(struct mailbox *mb)
{
    *mb = (struct mailbox){0};
    list_init(&mb->held);
}

void mailbox_done(struct mailbox *mb)
{
    assert(list_is_empty(&mb->held));
    free(mb->ring);
    mb->ring = NULL;
    mb->cap = mb->n = 0;
}

/* Copies the slots, without the gaps, into a new ring of @cap. */
static void rebuild(struct mailbox *mb, uint32_t cap)
{
    struct slot *ring = xmalloc(cap * sizeof *ring);
    uint32_t n = 0;

    for (uint32_t i = 0; i < mb->n; i++) {
        const struct slot *slot = mailbox_at(mb, i);
        if ((slot->flags & SLOT_GONE) == 0)
            ring[n++] = *slot;
    }
    free(mb->ring);
    mb->ring = ring;
    mb->cap = cap;
    mb->head = 0;
    mb->n = n;
    mb->gone = 0;
}

static uint32_t units_of(size_t bytes)
{
    size_t most = bytes < SLOT_MAX_BYTES ? bytes : SLOT_MAX_BYTES;

    return (uint32_t)((most + SLOT_UNIT - 1) / SLOT_UNIT) & 0x7ffffu;
}

struct slot *mailbox_push(struct mailbox *mb, const struct store_row *row)
{
    if (mb->n == mb->cap)
        rebuild(mb, mb->cap == 0 ? FIRST_CAP : mb->gone > mb->n / 2 ? mb->cap : mb->cap * 2);
    struct slot *slot = mailbox_at(mb, mb->n++);
    *slot = (struct slot){.id = row->id,
                          .at_s = (uint32_t)(row->at_ms / 1000),
                          .units = units_of(row->frame_bytes),
                          .flags = SLOT_DURABLE};
    mb->units += slot->units;
    if (row->row_kind == STORE_ROW_PASSTHROUGH)
        slot->flags |= SLOT_PASSTHROUGH;
    if ((row->flags & STORE_ROW_QUIET) != 0) {
        slot->flags |= SLOT_QUIET;
        mb->quiet++;
    }
    if ((row->flags & STORE_ROW_HAS_MEDIA) != 0)
        slot->flags |= SLOT_MEDIA;
    slot->attempts = (row->attempts < SLOT_MAX_ATTEMPTS ? row->attempts : SLOT_MAX_ATTEMPTS) & 63u;
    if (row->parked.p != NULL)
        mailbox_park(mb, slot, true);
    return slot;
}

uint32_t mailbox_seek(const struct mailbox *mb, uint64_t id)
{
    uint32_t lo = 0, hi = mb->n;

    if (mb->n == 0 || mailbox_at(mb, 0)->id > id)
        return 0; /* a fresh socket starts at the head */
    if (mailbox_at(mb, mb->n - 1)->id <= id)
        return mb->n; /* a caught-up one waits at the tail */
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (mailbox_at(mb, mid)->id > id)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

struct slot *mailbox_find(struct mailbox *mb, uint64_t id)
{
    uint32_t i = id != 0 ? mailbox_seek(mb, id - 1) : mb->n;
    struct slot *slot = i < mb->n ? mailbox_at(mb, i) : NULL;

    return slot != NULL && slot->id == id && (slot->flags & SLOT_GONE) == 0 ? slot : NULL;
}

void mailbox_drop(struct mailbox *mb, struct slot *slot)
{
    assert((slot->flags & SLOT_GONE) == 0);
    if ((slot->flags & SLOT_PARKED) != 0)
        mailbox_park(mb, slot, false);
    if ((slot->flags & SLOT_QUIET) != 0)
        mb->quiet--;
    slot->flags |= SLOT_GONE;
    slot->d = NULL;
    mb->gone++;
    mb->units -= slot->units;
}

void mailbox_park(struct mailbox *mb, struct slot *slot, bool parked)
{
    bool was = (slot->flags & SLOT_PARKED) != 0;

    if (parked == was)
        return;
    slot->flags ^= SLOT_PARKED;
    mb->parked = parked ? mb->parked + 1 : mb->parked - 1;
    if ((slot->flags & SLOT_QUIET) != 0)
        mb->quiet = parked ? mb->quiet - 1 : mb->quiet + 1;
}

void mailbox_tidy(struct mailbox *mb)
{
    while (mb->n > 0 && (mailbox_at(mb, 0)->flags & SLOT_GONE) != 0) {
        mb->head = (mb->head + 1) & (mb->cap - 1);
        mb->n--;
        mb->gone--;
    }
    while (mb->n > 0 && (mailbox_at(mb, mb->n - 1)->flags & SLOT_GONE) != 0) {
        mb->n--;
        mb->gone--;
    }
    if (mb->n == 0 && mb->cap > SMALL_CAP)
        mailbox_trim(mb);
    else if (mb->n > SMALL_CAP && mb->gone > mb->n / 2)
        rebuild(mb, mb->cap);
}

void mailbox_trim(struct mailbox *mb)
{
    if (mb->n != 0)
        return;
    free(mb->ring);
    mb->ring = NULL;
    mb->cap = mb->head = 0;
}

struct slot_ring mailbox_detach(struct mailbox *mb)
{
    struct slot_ring all = {mb->ring, mb->cap, mb->head, mb->n};

    assert(list_is_empty(&mb->held));
    mailbox_init(mb);
    return all;
}

static int by_id(const void *a, const void *b)
{
    const struct slot *x = a, *y = b;

    return x->id < y->id ? -1 : x->id > y->id;
}

void mailbox_sort(struct mailbox *mb)
{
    if (mb->n == 0)
        return;
    rebuild(mb, mb->cap); /* straightens the ring: the slots lie from 0 on */
    qsort(mb->ring, mb->n, sizeof *mb->ring, by_id);
}

/* ---- deliveries ---- */

struct joined {
    struct joined *next; /* owned */
    struct accept *a;    /* shared */
};

struct deliveries {
    struct list settling;      /* SETTLED deliveries whose append is still pending */
    struct list marks;         /* pending store_mark operations */
    uint64_t next_id;          /* id of the next delivery */
    uint64_t volatile_bytes;   /* bodies not on disk yet */
    uint64_t kept_bytes;       /* bodies on disk that are kept for the pump */
    struct ack_batch *filling; /* owned; the acks of this turn; NULL: none yet */
    uint64_t last_batch;       /* number of the batch that was submitted last */
    uint64_t lost_batch;       /* of one that a drain gave up; 0: none */
    struct list batches;       /* owned; struct ack_batch, submitted or waiting for a retry */
    size_t n_batches;
    struct list doomed; /* owned; struct doomed */
    struct log_limit log_store;
};

struct deliveries *deliveries_new(struct relay *r)
{
    struct deliveries *t = xcalloc(1, sizeof *t);

    t->next_id = r->env.store->boot << BOOT_SHIFT | 1;
    list_init(&t->settling);
    list_init(&t->marks);
    list_init(&t->batches);
    list_init(&t->doomed);
    return t;
}

uint64_t delivery_next_id(const struct relay *r)
{
    return r->deliveries->next_id;
}

uint64_t delivery_take_id(struct relay *r)
{
    return r->deliveries->next_id++;
}

bool delivery_has_room(const struct relay *r, size_t bytes)
{
    return r->deliveries->volatile_bytes + bytes <= MAX_VOLATILE_BYTES;
}

static struct delivery *delivery_of(struct list *link)
{
    return list_entry(link, struct delivery, link);
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

/* @d's append has ended, or will never begin. */
static void group_end(struct delivery *d, bool written)
{
    struct delivery_group *g = d->group;

    d->append.replaces = 0;
    d->append.tied = false;
    d->group = NULL;
    list_remove(&d->group_link);
    g->replaced &= written;
    if (--g->left == 0)
        g->over(g);
}

static void delivery_free(struct delivery *d)
{
    struct relay *r = d->inst->relay;
    struct deliveries *t = r->deliveries;
    uint64_t *bytes = d->state == DELIVERY_KEPT ? &t->kept_bytes : &t->volatile_bytes;

    assert(d->accept == NULL && d->joined == NULL);
    *bytes -= d->append.frame.n;
    if (d->group != NULL)
        group_end(d, false);
    if (d->state != DELIVERY_KEPT)
        drain_release(r);
    list_remove(&d->link);
    free(d);
}

/* ---- to the disk ---- */

static store_done_cb on_appended;
static void submit_revisions(struct instance *i);

/* New mail can be sent.  With a shared store this is called once the commit is known. */
static void announce(struct instance *i)
{
    pump_want(i);
    if (!instance_is_live(i))
        wake_for_mail(i);
}

/* What the append writes besides its row and key, kept in front of the frame. */
struct extra {
    struct store_extra store;
    struct store_kv put;
    struct hash128 keys[]; /* then key and value of @put */
};

static void submit(struct delivery *d)
{
    struct instance *i = d->inst;
    assert(i != NULL);
    struct store *st = i->relay->env.store;
    bool live = instance_is_live(i);

    if ((d->state == DELIVERY_FAILED || d->state == DELIVERY_UNKEYED) && d->append.extra != NULL &&
        d->append.extra->n_puts > 0) {
        allowance_keep(i->relay, d->append.extra->puts[0].key); /* the count may have grown */
        ((struct extra *)(void *)d->bytes)->store.n_puts = 0;
    }
    d->state = DELIVERY_QUEUED;
    d->append.op = (struct store_op){.done = on_appended};
    store_append(st, &d->append, !live || st->shared);
}

static const struct store_extra *extra_put(char *at, const struct delivery_spec *spec)
{
    struct extra *x = (struct extra *)(void *)at;

    x->store = (struct store_extra){.keys = x->keys, .n_keys = spec->n_more};
    if (spec->n_more > 0)
        memcpy(x->keys, spec->more, spec->n_more * sizeof *x->keys);
    if (spec->put != NULL) {
        char *text = (char *)&x->keys[spec->n_more];
        struct str key = spec->put->key, value = spec->put->value;
        memcpy(text, key.p, key.n);
        memcpy(text + key.n, value.p, value.n);
        x->put = (struct store_kv){KV_PUT, spec->put->ns, str_make(text, key.n),
                                   str_make(text + key.n, value.n)};
        x->store.puts = &x->put;
        x->store.n_puts = 1;
    }
    return &x->store;
}

bool delivery_has_key(const struct delivery *d, struct hash128 key)
{
    const struct store_extra *x = d->append.extra;

    if (d->append.has_key && d->append.key.lo == key.lo && d->append.key.hi == key.hi)
        return true;
    for (size_t i = 0; x != NULL && i < x->n_keys; i++)
        if (x->keys[i].lo == key.lo && x->keys[i].hi == key.hi)
            return true;
    return false;
}

uint64_t delivery_add(struct instance *i, const struct delivery_spec *spec, struct accept *a)
{
    struct relay *r = i->relay;
    size_t extra = 0;
    if (spec->n_more > 0 || spec->put != NULL)
        extra = sizeof(struct extra) + spec->n_more * sizeof(struct hash128) +
                (spec->put != NULL ? spec->put->key.n + spec->put->value.n : 0);
    struct delivery *d = xmalloc(sizeof *d + extra + spec->frame.n);
    struct store_row row = {.id = r->deliveries->next_id++,
                            .row_kind = (uint8_t)spec->kind,
                            .flags = spec->flags,
                            .at_ms = clock_wall_ms(r->env.clock),
                            .frame_bytes = spec->frame.n};

    *d = (struct delivery){.inst = i,
                           .accept = a,
                           .state = DELIVERY_WAITING,
                           .of_new_chat = spec->of_new_chat,
                           .append.id = row.id,
                           .append.box = i->box,
                           .append.row_kind = row.row_kind,
                           .append.flags = row.flags,
                           .append.has_key = spec->has_key,
                           .append.key = spec->key,
                           .append.at_ms = row.at_ms,
                           .append.frame = str_make(d->bytes + extra, spec->frame.n)};
    memcpy(d->bytes + extra, spec->frame.p, spec->frame.n);
    list_init(&d->link);
    list_init(&d->group_link);
    if (extra > 0)
        d->append.extra = extra_put(d->bytes, spec);
    struct slot *slot = mailbox_push(&i->mb, &row);
    slot->d = d;
    slot->flags = (slot->flags & ~(unsigned)SLOT_DURABLE) & 127u;
    list_append(&i->mb.held, &d->link);
    accept_hold(a);
    drain_hold(r);
    r->deliveries->volatile_bytes += spec->frame.n;
    if (spec->group != NULL) {
        d->group = spec->group;
        d->group->left++;
        list_append(&d->group->members, &d->group_link);
    } else if (instance_is_recorded(i)) {
        submit(d);
    }
    if (!r->env.store->shared)
        announce(i);
    return row.id;
}

void delivery_group_init(struct delivery_group *g, void (*over)(struct delivery_group *g))
{
    *g = (struct delivery_group){.over = over};
    list_init(&g->members);
}

void delivery_group_submit(struct delivery_group *g, bool whole)
{
    bool first = true;

    list_each (&g->members, it, nxt)
        whole &= instance_is_recorded(list_entry(it, struct delivery, group_link)->inst);
    g->replaced = whole && !list_is_empty(&g->members);
    list_each (&g->members, at, after) {
        struct delivery *d = list_entry(at, struct delivery, group_link);
        list_remove(&d->group_link);
        if (whole) {
            d->append.replaces = g->replaces;
            d->append.tied = !first;
            first = false;
        }
        if (instance_is_recorded(d->inst))
            submit(d);
    }
}

bool delivery_join(struct instance *i, struct hash128 key, struct accept *a)
{
    list_each (&i->mb.held, it, nxt) {
        struct delivery *d = delivery_of(it);
        if (d->state > DELIVERY_FAILED || !delivery_has_key(d, key))
            continue;
        struct joined *j = xmalloc(sizeof *j);
        *j = (struct joined){.next = d->joined, .a = a};
        d->joined = j;
        accept_hold(a);
        return true;
    }
    return false;
}

/* Removes a delivery that the store refused; the platform must send the event again. */
static void give_up(struct delivery *d)
{
    struct instance *i = d->inst;
    struct relay *r = i->relay;
    struct slot *slot = mailbox_find(&i->mb, d->append.id);
    assert(slot != NULL && slot->d == d);
    if ((slot->flags & SLOT_PARKED) == 0)
        session_forget_all(i, slot->id);
    mailbox_drop(&i->mb, slot);
    if (d->append.has_key)
        dedup_remove(&r->dedup, d->append.key);
    for (size_t k = 0; d->append.extra != NULL && k < d->append.extra->n_keys; k++)
        dedup_remove(&r->dedup, d->append.extra->keys[k]);
    if (d->append.extra != NULL && d->append.extra->n_puts > 0)
        allowance_uncount(r, d->append.extra->puts[0].key);
    r->n.refused_store++;
    journal_step(r->journal, clock_wall_ms(r->env.clock), JOURNAL_LOST, d->append.id, 0, STR_NULL);
    answer(d, BH_UNAVAILABLE);
    delivery_free(d);
}

/* True when giving up @d could lose it or deliver it twice. */
static bool must_stay(const struct delivery *d)
{
    return d->in_doubt || session_anyone_has(d->inst, d->append.id);
}

/* Once a commit is in doubt, only a successful retry ends the doubt: a refused retry says nothing
 * about the earlier attempt. */
static void append_failed(struct delivery *d, enum bh_err err)
{
    struct instance *i = d->inst;
    struct relay *r = i->relay;
    uint64_t skipped;

    if (log_limit_passes(&r->deliveries->log_store, clock_now_ms(r->env.clock), &skipped))
        log_warn(NULL, "the store refuses deliveries: instance=%.*s more=%llu",
                 STR_FMT(instance_id(i)), (unsigned long long)skipped);
    d->in_doubt |= err == BH_UNKNOWN;
    bool doubt_ends = r->draining && !session_anyone_has(i, d->append.id);
    if (!must_stay(d) || doubt_ends) { /* the next process learns whether the row exists */
        give_up(d);
        mailbox_tidy(&i->mb);
        sleep_check(i);
        return;
    }
    d->state = DELIVERY_FAILED;
    retry_want(i);
}

static void became_durable(struct delivery *d)
{
    struct instance *i = d->inst;
    struct deliveries *t = i->relay->deliveries;
    struct slot *slot = mailbox_find(&i->mb, d->append.id);
    const struct session *s = i->receiver;

    assert(slot != NULL && slot->d == d);
    slot->flags |= SLOT_DURABLE;
    d->in_doubt = false;
    answer(d, BH_OK);
    if (i->relay->env.store->shared || (s != NULL && s->pulls))
        announce(i);
    if (s != NULL && s->state == SESSION_RECEIVING && !s->pulls && !session_has_sent(s, slot->id) &&
        t->kept_bytes + d->append.frame.n <= MAX_KEPT_BYTES) {
        d->state = DELIVERY_KEPT;
        t->volatile_bytes -= d->append.frame.n;
        t->kept_bytes += d->append.frame.n;
        drain_release(i->relay);
    } else {
        slot->d = NULL;
        delivery_free(d);
    }
    sleep_check(i);
}

/* Only this append brings the keys of a staged event to the disk.  So the staged row stays until
 * the append succeeds, also when the delivery is acked before that.  Without its key a repetition
 * of the event would be new: it could begin a burst, under a bufferId that the gateway drops with
 * all messages of that burst.  A drain does not wait for a store that is down: the next process
 * takes the event from its staged row. */
static void on_appended(struct store_op *op, enum bh_err err)
{
    struct delivery *d = container_of(op, struct delivery, append.op);
    struct relay *r = d->inst->relay;
    bool row_stays = d->group != NULL && err != BH_OK;

    assert(d->state == DELIVERY_QUEUED || d->state == DELIVERY_SETTLED);
    if (d->state == DELIVERY_SETTLED)
        answer(d, BH_OK); /* also when the append failed: the agent has it */
    if (row_stays) {
        d->append.replaces = 0;
        d->append.tied = false;
        d->group->replaced = false;
        d->group->unkeyed |= d->state == DELIVERY_SETTLED && r->draining;
    } else if (d->group != NULL) {
        group_end(d, err == BH_OK);
    }
    if (d->state == DELIVERY_SETTLED && row_stays && !r->draining) {
        d->state = DELIVERY_UNKEYED;
        retry_want_acks(r);
    } else if (d->state == DELIVERY_SETTLED) {
        delivery_free(d);
    } else if (err == BH_OK) {
        became_durable(d);
    } else {
        append_failed(d, err);
    }
}

void delivery_record_done(struct instance *i, enum bh_err err)
{
    list_each (&i->mb.held, it, nxt) {
        struct delivery *d = delivery_of(it);
        if (d->state != DELIVERY_WAITING)
            continue;
        if (err == BH_OK)
            submit(d);
        else if (!must_stay(d))
            give_up(d); /* a delivery on a socket stays until the record's retry succeeds */
    }
    mailbox_tidy(&i->mb);
}

void delivery_retry(struct instance *i)
{
    submit_revisions(i);
    list_each (&i->mb.held, it, nxt)
        if (delivery_of(it)->state == DELIVERY_FAILED)
            submit(delivery_of(it));
}

/* ---- settled and sent ---- */

static void become_settled(struct delivery *d)
{
    struct relay *r = d->inst->relay;

    if (!store_append_shrink(r->env.store, &d->append) && !d->in_doubt)
        acks_add(r, d->append.id); /* too late to shrink: the row is written, then deleted */
    d->state = DELIVERY_SETTLED;
}

void delivery_settle(struct instance *i, struct slot *slot)
{
    struct relay *r = i->relay;
    struct delivery *d = slot->d;
    uint64_t id = slot->id;

    if (i->has_parcels)
        parcel_tell(i, slot, PARCEL_TAKEN, STR_NULL);
    if ((slot->flags & SLOT_PARKED) == 0) /* else it left the flights when it was parked */
        session_forget_all(i, id);
    mailbox_drop(&i->mb, slot);
    r->n.settled++;
    mail_changed(r, i);
    if (d == NULL || d->state == DELIVERY_KEPT || d->in_doubt)
        acks_add(r, id);
    if (d == NULL)
        return;
    if ((d->state == DELIVERY_WAITING || d->state == DELIVERY_FAILED) && d->append.has_key)
        submit(d); /* for its key: the platform may send the event again after a start */
    if (!d->of_new_chat || d->state != DELIVERY_QUEUED)
        answer(d, BH_OK);
    if (d->state == DELIVERY_QUEUED) {
        become_settled(d);
        list_move(&d->link, &r->deliveries->settling);
    } else {
        delivery_free(d);
    }
    if (i->sleep.owed > 0)
        sleep_check(i);
}

uint64_t delivery_settle_until(struct instance *i, uint64_t up_to, int64_t before_s, uint64_t most)
{
    uint64_t n = 0;

    for (uint32_t at = 0; at < i->mb.n && n < most; at++) {
        struct slot *slot = mailbox_at(&i->mb, at);
        if ((slot->flags & SLOT_GONE) != 0)
            continue;
        if (slot->id > up_to || slot->at_s >= before_s)
            break;
        delivery_settle(i, slot);
        n++;
    }
    mailbox_tidy(&i->mb);
    return n;
}

void delivery_sent(struct instance *i, struct slot *slot)
{
    struct delivery *d = slot->d;

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
        if (refused && !must_stay(d))
            give_up(d);
    }
    mailbox_tidy(&i->mb);
}

bool delivery_safe_up_to(const struct instance *i, uint64_t id)
{
    for (const struct list *it = i->mb.held.next; it != &i->mb.held; it = it->next) {
        const struct delivery *d = list_entry(it, struct delivery, link);
        if (d->state <= DELIVERY_FAILED) /* only in memory */
            return d->append.id > id;
    }
    return true;
}

/* ---- attempts ---- */

struct mark {
    struct store_mark op;
    struct list link; /* deliveries->marks */
    char parked[];
};

/* Errors are ignored: a lost count of attempts allows one more after a restart. */
static void on_marked(struct store_op *op, enum bh_err err)
{
    struct mark *m = container_of(op, struct mark, op.op);

    list_remove(&m->link);
    free(m);
}

void delivery_mark(struct instance *i, const struct slot *slot, struct str parked)
{
    struct mark *m = xmalloc(sizeof *m + parked.n);

    *m = (struct mark){
        .op = {.op = {.done = on_marked}, .id = slot->id, .attempts = slot->attempts}};
    if (parked.p != NULL) {
        memcpy(m->parked, parked.p, parked.n);
        m->op.parked = str_make(m->parked, parked.n);
    }
    list_append(&i->relay->deliveries->marks, &m->link);
    store_mark(i->relay->env.store, &m->op);
}

/* ---- revisions ---- */

struct revision {
    struct store_mark op;  /* with the store while @submitted */
    struct list link;      /* instance->revisions; the newest last */
    struct instance *inst; /* borrowed */
    struct accept *accept; /* shared; NULL: none */
    bool submitted;
    char bytes[];
};

static void revision_end(struct revision *v, enum bh_err err)
{
    if (v->accept != NULL)
        accept_release(v->inst->relay, v->accept, err);
    list_remove(&v->link);
    free(v);
}

static void on_revised(struct store_op *op, enum bh_err err)
{
    struct revision *v = container_of(op, struct revision, op.op);

    v->submitted = false;
    if (err == BH_OK || v->inst->relay->draining)
        revision_end(v, err);
    else
        retry_want(v->inst);
}

/* A revision is submitted after the append of its row: the store cannot change a missing row. */
static void submit_revisions(struct instance *i)
{
    list_each (&i->revisions, it, nxt) {
        struct revision *v = list_entry(it, struct revision, link);
        const struct slot *slot = mailbox_find(&i->mb, v->op.id);
        if (slot == NULL && !v->submitted)
            revision_end(v, BH_OK); /* settled meanwhile */
        if (slot == NULL || v->submitted)
            continue;
        if (slot->d != NULL &&
            (slot->d->state == DELIVERY_WAITING || slot->d->state == DELIVERY_FAILED)) {
            retry_want(i);
            continue;
        }
        v->submitted = true;
        v->op.op = (struct store_op){.done = on_revised};
        store_mark(i->relay->env.store, &v->op);
    }
}

void delivery_revise(struct instance *i, struct slot *slot, struct str frame, struct accept *a)
{
    struct revision *v = xmalloc(sizeof *v + frame.n);

    *v = (struct revision){.inst = i, .accept = a};
    memcpy(v->bytes, frame.p, frame.n);
    v->op = (struct store_mark){.id = slot->id, .attempts = slot->attempts};
    v->op.frame = str_make(v->bytes, frame.n);
    list_append(&i->revisions, &v->link);
    if (a != NULL)
        accept_hold(a);
    i->mb.units -= slot->units;
    slot->units = units_of(frame.n);
    i->mb.units += slot->units;
    submit_revisions(i);
    mail_changed(i->relay, i);
}

struct str delivery_revised(const struct instance *i, uint64_t id)
{
    struct str newest = STR_NULL;

    for (const struct list *it = i->revisions.next; it != &i->revisions; it = it->next) {
        const struct revision *v = list_entry(it, struct revision, link);
        if (v->op.id == id)
            newest = v->op.frame;
    }
    return newest;
}

/* ---- acks ----
 *
 * A batch grows until the end of the turn.  A failed batch is retried unchanged.  A purged mailbox
 * adds RING_ACKS ids per turn, while fewer than MOST_BATCHES batches are pending. */

struct doomed {       /* the slots of a purged mailbox, whose rows are to be deleted */
    struct list link; /* deliveries->doomed */
    struct slot_ring all;
    uint32_t at;
};

struct ack_batch {
    struct store_ack op;
    struct relay *relay; /* borrowed */
    struct list link;    /* deliveries->batches once submitted */
    uint64_t number;     /* in the order of submission, counted from 1 */
    uint32_t n, cap;
    bool failed;
    uint64_t ids[];
};

static void doomed_free(struct doomed *d)
{
    list_remove(&d->link);
    free(d->all.slots);
    free(d);
}

void acks_add(struct relay *r, uint64_t id)
{
    struct ack_batch *b = r->deliveries->filling;

    if (b == NULL || b->n == b->cap) {
        uint32_t cap = b != NULL ? b->cap * 2 : FIRST_ACKS;
        b = xrealloc(b, sizeof *b + cap * sizeof b->ids[0]);
        if (r->deliveries->filling == NULL) {
            *b = (struct ack_batch){.relay = r};
            drain_hold(r);
        }
        b->cap = cap;
        r->deliveries->filling = b;
    }
    b->ids[b->n++] = id;
    turn_want(r, TURN_ACKS);
}

void acks_add_ring(struct relay *r, struct slot_ring all)
{
    struct doomed *d = xcalloc(1, sizeof *d);

    d->all = all;
    list_init(&d->link);
    list_append(&r->deliveries->doomed, &d->link);
    drain_hold(r);
    turn_want(r, TURN_ACKS);
}

static void on_acked(struct store_op *op, enum bh_err err)
{
    struct ack_batch *b = container_of(op, struct ack_batch, op.op);
    struct relay *r = b->relay;

    if (err != BH_OK && !r->draining) { /* a drain does not wait for a store that is down */
        b->failed = true;
        retry_want_acks(r);
        return;
    }
    if (err != BH_OK && r->deliveries->lost_batch == 0)
        r->deliveries->lost_batch = b->number; /* relay_acks_safe() stays below it */
    list_remove(&b->link);
    r->deliveries->n_batches--;
    free(b);
    drain_release(r);
    if (!list_is_empty(&r->deliveries->doomed))
        turn_want(r, TURN_ACKS);
}

static void submit_batch(struct relay *r, struct ack_batch *b)
{
    b->failed = false;
    b->op = (struct store_ack){.op = {.done = on_acked}, .ids = b->ids, .n = b->n};
    store_ack(r->env.store, &b->op);
}

void acks_submit(struct relay *r)
{
    struct deliveries *t = r->deliveries;
    bool busy = t->n_batches >= MOST_BATCHES;

    /* Up to RING_ACKS ids of purged mailboxes. */
    for (int k = 0; k < RING_ACKS && !busy && !list_is_empty(&t->doomed); k++) {
        struct doomed *d = list_first(&t->doomed, struct doomed, link);
        if (d->at == d->all.n) {
            doomed_free(d);
            drain_release(r);
            continue;
        }
        const struct slot *slot = &d->all.slots[(d->all.head + d->at++) & (d->all.cap - 1)];
        if ((slot->flags & SLOT_GONE) == 0)
            acks_add(r, slot->id);
    }
    struct ack_batch *b = t->filling;
    if (b == NULL)
        return;
    t->n_batches++;
    t->filling = NULL;
    b->number = ++t->last_batch;
    list_init(&b->link);
    list_append(&t->batches, &b->link);
    submit_batch(r, b);
}

uint64_t relay_acks_mark(const struct relay *r)
{
    return r->deliveries->last_batch + (r->deliveries->filling != NULL);
}

uint64_t relay_acks_safe(const struct relay *r)
{
    const struct deliveries *t = r->deliveries;
    uint64_t safe = t->last_batch;

    if (!list_is_empty(&t->batches))
        safe = list_first(&t->batches, const struct ack_batch, link)->number - 1;
    return t->lost_batch != 0 && safe >= t->lost_batch ? t->lost_batch - 1 : safe;
}

void acks_retry(struct relay *r)
{
    list_each (&r->deliveries->batches, it, nxt) {
        struct ack_batch *b = list_entry(it, struct ack_batch, link);
        if (b->failed)
            submit_batch(r, b);
    }
    list_each (&r->deliveries->settling, at, after) {
        struct delivery *d = delivery_of(at);
        if (d->state != DELIVERY_UNKEYED)
            continue;
        submit(d);
        become_settled(d);
    }
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

void deliveries_free(struct relay *r)
{
    struct deliveries *t = r->deliveries;

    if (t == NULL)
        return;
    list_each (instances_by_age(r), it, nxt) {
        struct instance *i = list_entry(it, struct instance, link);
        free_list(&i->mb.held);
        list_each (&i->revisions, at, after)
            free(list_entry(at, struct revision, link));
    }
    free_list(&t->settling);
    list_each (&t->marks, m, next_m)
        free(list_entry(m, struct mark, link));
    list_each (&t->batches, b, next_b)
        free(list_entry(b, struct ack_batch, link));
    list_each (&t->doomed, o, next_o)
        doomed_free(list_entry(o, struct doomed, link));
    free(t->filling);
    free(t);
}
