/* mailbox.h - the queue of one instance's unsettled deliveries, in order.
 *
 * A mailbox is a ring of small slots, ascending by id, one per delivery that is not settled.  The
 * bytes are in the store, and for a while in a struct delivery (delivery.h).  So the backlog of a
 * sleeping instance costs 24 bytes of memory per delivery.
 *
 * A slot that is settled out of order stays as a gap until mailbox_tidy().  Slot pointers and
 * indexes are valid until mailbox_tidy() or the next push.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "base/list.h"

struct delivery;

enum slot_flag {
    SLOT_GONE = 1,        /* settled: a gap until mailbox_tidy() */
    SLOT_PARKED = 2,      /* given up after too many attempts; skipped until redriven */
    SLOT_PASSTHROUGH = 4, /* a forwarded webhook: released gateways never ack it */
    SLOT_DURABLE = 8,     /* the row is on disk */
    SLOT_SENT = 16,       /* sent on some socket since the process started */
    SLOT_QUIET = 32,      /* does not wake a sleeping instance */
    SLOT_MEDIA = 64,      /* refers to files, whose URLs are inserted when it is sent */
};

struct slot {
    uint64_t id;
    struct delivery *d;    /* borrowed from the held list; NULL: the bytes are in the store only */
    uint32_t at_s;         /* time of acceptance, wall seconds */
    uint32_t units : 19;   /* size in SLOT_UNIT bytes, rounded up */
    uint32_t attempts : 6; /* sockets lost while the delivery was on them */
    uint32_t flags : 7;    /* enum slot_flag */
};
#define SLOT_UNIT 16u
#define SLOT_MAX_BYTES ((((size_t)1 << 19) - 1) * SLOT_UNIT)
#define SLOT_MAX_ATTEMPTS 63u

struct mailbox {
    struct slot *ring;     /* owned; cap is a power of two */
    uint32_t cap, head, n; /* n counts gaps too */
    uint32_t gone, parked;
    uint32_t quiet; /* waiting slots with SLOT_QUIET */
    uint64_t units;
    struct list held; /* deliveries with bytes in memory, by id */
};

void mailbox_init(struct mailbox *mb);
void mailbox_done(struct mailbox *mb); /* frees the ring; the held list must be empty */

/* Appends a slot.  @id is larger than all ids in the mailbox (else call mailbox_sort() later). */
struct slot *mailbox_push(struct mailbox *mb, uint64_t id, size_t bytes, uint32_t at_s);
struct slot *mailbox_find(struct mailbox *mb, uint64_t id); /* NULL: unknown or settled */
/* Index of the first slot with an id above @id; mb->n when there is none. */
uint32_t mailbox_seek(const struct mailbox *mb, uint64_t id);
static inline struct slot *mailbox_at(const struct mailbox *mb, uint32_t i)
{
    return &mb->ring[(mb->head + i) & (mb->cap - 1)];
}
void mailbox_drop(struct mailbox *mb, struct slot *slot); /* makes a gap */
void mailbox_resize(struct mailbox *mb, struct slot *slot, size_t bytes);
void mailbox_park(struct mailbox *mb, struct slot *slot, bool parked);
void mailbox_tidy(struct mailbox *mb); /* removes gaps at both ends; frees a large empty ring */
void mailbox_trim(struct mailbox *mb); /* frees the ring when empty */
void mailbox_sort(struct mailbox *mb); /* after loading rows that were not in order */

struct slot_ring {      /* the ring of a mailbox, detached from it */
    struct slot *slots; /* owned; NULL: empty */
    uint32_t cap, head, n;
};
/* Moves all slots to the caller, who settles them.  No slot may have bytes in memory. */
struct slot_ring mailbox_detach(struct mailbox *mb);

void mailbox_quiet(struct mailbox *mb, struct slot *slot); /* sets SLOT_QUIET on a new slot */

static inline bool slot_waits(const struct slot *slot) /* to be delivered: not settled or parked */
{
    return (slot->flags & (SLOT_GONE | SLOT_PARKED)) == 0;
}
static inline uint32_t mailbox_entries(const struct mailbox *mb)
{
    return mb->n - mb->gone;
}
static inline uint32_t mailbox_waiting(const struct mailbox *mb)
{
    return mb->n - mb->gone - mb->parked;
}
static inline uint32_t mailbox_ringing(const struct mailbox *mb) /* waiting and not quiet */
{
    return mailbox_waiting(mb) - mb->quiet;
}
static inline uint64_t mailbox_bytes(const struct mailbox *mb)
{
    return mb->units * SLOT_UNIT;
}
