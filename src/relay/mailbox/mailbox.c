/* mailbox.c - design.  (mailbox.h has the contract.)
 *
 * Acks come in order, so the settled slot is nearly always the head, and the ring behaves like a
 * queue.  Gaps arise behind a parked or slow head.  A ring with more gaps than slots is rebuilt, so
 * a delivery that stays parked for weeks does not make the ring grow with the traffic behind it. */
#include "relay/mailbox/mailbox.h"
#include <assert.h>
#include <stdlib.h>
#include "base/mem.h"

enum { FIRST_CAP = 4, SMALL_CAP = 64 };

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

struct slot *mailbox_push(struct mailbox *mb, uint64_t id, size_t bytes, uint32_t at_s)
{
    assert(bytes <= SLOT_MAX_BYTES);
    if (mb->n == mb->cap)
        rebuild(mb, mb->cap == 0 ? FIRST_CAP : mb->gone > mb->n / 2 ? mb->cap : mb->cap * 2);
    struct slot *slot = mailbox_at(mb, mb->n++);
    *slot = (struct slot){.id = id, .at_s = at_s};
    slot->units = (uint32_t)((bytes + SLOT_UNIT - 1) / SLOT_UNIT) & 0x7ffffu;
    mb->units += slot->units;
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
    mailbox_park(mb, slot, false);
    if ((slot->flags & SLOT_QUIET) != 0)
        mb->quiet--;
    slot->flags |= SLOT_GONE;
    slot->d = NULL;
    mb->gone++;
    mb->units -= slot->units;
}

void mailbox_resize(struct mailbox *mb, struct slot *slot, size_t bytes)
{
    assert(bytes <= SLOT_MAX_BYTES);
    mb->units -= slot->units;
    slot->units = (uint32_t)((bytes + SLOT_UNIT - 1) / SLOT_UNIT) & 0x7ffffu;
    mb->units += slot->units;
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

void mailbox_quiet(struct mailbox *mb, struct slot *slot)
{
    assert((slot->flags & (SLOT_GONE | SLOT_PARKED | SLOT_QUIET)) == 0);
    slot->flags |= SLOT_QUIET;
    mb->quiet++;
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
