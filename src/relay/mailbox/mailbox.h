/* mailbox.h - the order of one instance's deliveries.
 *
 * A ring of small slots, ascending by id, one per delivery that is not settled.  The bytes are not
 * here: they are in the store, and for a while in a struct delivery (delivery.h).  So a sleeper's
 * backlog costs 24 bytes of memory per delivery.
 *
 * A slot that is settled out of turn stays as a gap until mailbox_tidy(); slot pointers and indexes
 * are valid until then or until the next push.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "base/list.h"

struct delivery;

enum slot_flag {
    SLOT_GONE = 1,        /* settled, waits for mailbox_tidy() */
    SLOT_PARKED = 2,      /* given up after too many attempts; skipped until redriven */
    SLOT_PASSTHROUGH = 4, /* a forward: released gateways never ack it */
    SLOT_DURABLE = 8,     /* its row is on disk */
    SLOT_SENT = 16,       /* has gone down some socket since we started */
    SLOT_QUIET = 32,      /* nobody is woken for it */
    SLOT_MEDIA = 64,      /* names files whose addresses are put in when it is sent */
};

struct slot {
    uint64_t id;
    struct delivery *d;    /* borrowed from the held list; NULL: the bytes are in the store only */
    uint32_t at_s;         /* wall seconds */
    uint32_t units : 19;   /* size in SLOT_UNIT bytes, rounded up */
    uint32_t attempts : 6; /* sockets lost with it */
    uint32_t flags : 7;    /* enum slot_flag */
};
#define SLOT_UNIT 16u
#define SLOT_MAX_BYTES ((((size_t)1 << 19) - 1) * SLOT_UNIT)
#define SLOT_MAX_ATTEMPTS 63u

struct mailbox {
    struct slot *ring;     /* owned; cap is a power of two */
    uint32_t cap, head, n; /* n counts gaps too */
    uint32_t gone, parked;
    uint32_t quiet; /* that wait, and wake nobody */
    uint64_t units;
    struct list held; /* deliveries with bytes in memory, by id */
};

void mailbox_init(struct mailbox *mb);
void mailbox_done(struct mailbox *mb); /* frees the ring; the held list must be empty */

/* @id is larger than all before it (else see mailbox_sort()). */
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
void mailbox_tidy(struct mailbox *mb); /* closes gaps; frees a large ring when empty */
void mailbox_trim(struct mailbox *mb); /* frees the ring when empty */
void mailbox_sort(struct mailbox *mb); /* after loading rows that were not in order */

struct slot_ring {      /* as in a mailbox */
    struct slot *slots; /* owned; NULL: there are none */
    uint32_t cap, head, n;
};
/* All that waits, in one go, for whoever settles it; the mailbox is empty then.  No delivery of it
 * has bytes in memory. */
struct slot_ring mailbox_detach(struct mailbox *mb);

void mailbox_quiet(struct mailbox *mb, struct slot *slot); /* just pushed: nobody is woken for it */

static inline bool slot_waits(const struct slot *slot) /* wants to be delivered */
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
static inline uint32_t mailbox_ringing(const struct mailbox *mb) /* worth waking somebody */
{
    return mailbox_waiting(mb) - mb->quiet;
}
static inline uint64_t mailbox_bytes(const struct mailbox *mb)
{
    return mb->units * SLOT_UNIT;
}
