/* acks.c - design.  (acks.h has the contract.)
 *
 * A batch grows while the turn lasts; what the store refuses stays as it is and goes again.  Of a
 * whole mailbox RING_ACKS are added to a turn, while no more than MOST_BATCHES are under way. */
#include "relay/mailbox/acks.h"
#include <stdlib.h>
#include "relay/heart.h"
#include "relay/mailbox/mailbox.h"
#include "relay/mailbox/retry.h"
#include "relay/turn.h"
#include "store/store.h"

enum { FIRST_ACKS = 64, RING_ACKS = 4096, MOST_BATCHES = 4 };

struct doomed {       /* a mailbox that was emptied */
    struct list link; /* acks->doomed */
    struct slot_ring all;
    uint32_t at;
};

struct ack_batch {
    struct store_ack op;
    struct relay *relay; /* borrowed */
    struct list link;    /* acks->batches once submitted */
    uint32_t n, cap;
    bool failed;
    uint64_t ids[];
};

struct acks {
    struct ack_batch *filling; /* owned; of this turn; NULL: none yet */
    struct list batches;       /* owned; submitted or waiting for a retry */
    size_t n_batches;
    struct list doomed; /* owned; struct doomed */
};

struct acks *acks_new(void)
{
    struct acks *t = xcalloc(1, sizeof *t);

    list_init(&t->batches);
    list_init(&t->doomed);
    return t;
}

static void doomed_free(struct doomed *d)
{
    list_remove(&d->link);
    free(d->all.slots);
    free(d);
}

void acks_free(struct acks *t)
{
    if (t == NULL)
        return;
    list_each (&t->batches, it, nxt)
        free(list_entry(it, struct ack_batch, link));
    list_each (&t->doomed, it, nxt)
        doomed_free(list_entry(it, struct doomed, link));
    free(t->filling);
    free(t);
}

void acks_add(struct relay *r, uint64_t id)
{
    struct ack_batch *b = r->acks->filling;

    if (b == NULL || b->n == b->cap) {
        uint32_t cap = b != NULL ? b->cap * 2 : FIRST_ACKS;
        b = xrealloc(b, sizeof *b + cap * sizeof b->ids[0]);
        if (r->acks->filling == NULL)
            *b = (struct ack_batch){.relay = r};
        b->cap = cap;
        r->acks->filling = b;
    }
    b->ids[b->n++] = id;
    turn_want(r);
}

void acks_add_ring(struct relay *r, struct slot_ring all)
{
    struct doomed *d = xcalloc(1, sizeof *d);

    d->all = all;
    list_init(&d->link);
    list_append(&r->acks->doomed, &d->link);
    turn_want(r);
}

/* Some of what is doomed joins this turn's acks. */
static void add_doomed(struct relay *r)
{
    struct acks *t = r->acks;

    for (int k = 0; k < RING_ACKS && !list_is_empty(&t->doomed); k++) {
        struct doomed *d = list_first(&t->doomed, struct doomed, link);
        if (d->at == d->all.n) {
            doomed_free(d);
            continue;
        }
        const struct slot *slot = &d->all.slots[(d->all.head + d->at++) & (d->all.cap - 1)];
        if ((slot->flags & SLOT_GONE) == 0)
            acks_add(r, slot->id);
    }
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
    list_remove(&b->link);
    r->acks->n_batches--;
    free(b);
    if (r->draining || !list_is_empty(&r->acks->doomed))
        turn_want(r);
}

static void submit_batch(struct relay *r, struct ack_batch *b)
{
    b->failed = false;
    b->op = (struct store_ack){.op = {.done = on_acked}, .ids = b->ids, .n = b->n};
    store_ack(r->env.store, &b->op);
}

void acks_submit(struct relay *r)
{
    struct ack_batch *b;

    if (r->acks->n_batches < MOST_BATCHES)
        add_doomed(r);
    b = r->acks->filling;
    if (b == NULL)
        return;
    r->acks->n_batches++;
    r->acks->filling = NULL;
    list_init(&b->link);
    list_append(&r->acks->batches, &b->link);
    submit_batch(r, b);
}

void acks_retry(struct relay *r)
{
    list_each (&r->acks->batches, it, nxt) {
        struct ack_batch *b = list_entry(it, struct ack_batch, link);
        if (b->failed)
            submit_batch(r, b);
    }
}

bool acks_pending(const struct relay *r)
{
    return r->acks->filling != NULL || !list_is_empty(&r->acks->batches) ||
           !list_is_empty(&r->acks->doomed);
}
