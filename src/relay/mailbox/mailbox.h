/* mailbox.h - the durable queue of one instance's deliveries, in order.
 *
 * A mailbox is a ring of small slots, ascending by id, one per delivery that is not settled.  The
 * bytes are in the store, and for a while in a struct delivery.  So the backlog of a sleeping
 * instance costs 24 bytes of memory per delivery.
 *
 * A slot that is settled out of order stays as a gap until mailbox_tidy().  Slot pointers and
 * indexes are valid until mailbox_tidy() or the next push.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/list.h"
#include "store/store.h"

struct relay;

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

/* Appends a slot for @row, which is on disk.  Its id is larger than all ids in the mailbox (else
 * call mailbox_sort() later). */
struct slot *mailbox_push(struct mailbox *mb, const struct store_row *row);
struct slot *mailbox_find(struct mailbox *mb, uint64_t id); /* NULL: unknown or settled */
/* Index of the first slot with an id above @id; mb->n when there is none. */
uint32_t mailbox_seek(const struct mailbox *mb, uint64_t id);
static inline struct slot *mailbox_at(const struct mailbox *mb, uint32_t i)
{
    return &mb->ring[(mb->head + i) & (mb->cap - 1)];
}
void mailbox_drop(struct mailbox *mb, struct slot *slot); /* makes a gap */
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

/* ---- deliveries: written to the store, and deleted when they are settled ----
 *
 *      WAITING --record on disk--> QUEUED --done--> durable: freed, or KEPT until sent
 *                                   |  ^
 *        failed, on a socket; or in  v  | RETRY_MS, with the same id
 *        doubt                      FAILED         failed otherwise: removed, "unavailable"
 *
 *      every state --acked--> freed; a QUEUED one becomes SETTLED and is freed by done()
 *      SETTLED --failed, of a staged event--> UNKEYED --RETRY_MS--> SETTLED
 *
 * A struct delivery exists while the bytes are in memory: from the accept until they are on disk,
 * and a little longer (KEPT) when a live socket will send them soon.  The delivery's slot in the
 * mailbox exists from the accept until the delivery is settled.
 *
 * With a file store a delivery may be sent while its write is queued.  With a shared store the
 * answer to a commit can be lost.  So with a shared store the pump stops at a slot until its commit
 * is known (delivery_may_leave()), and holds back the slots behind it.
 *
 * A delivery is in doubt after BH_UNKNOWN: the row may exist.  The append is retried until the
 * store confirms the row, or until a drain leaves the question to the next process.  If the
 * delivery is settled meanwhile, an ack deletes the row in any case.
 *
 * The platform is answered when the delivery is on disk or acked, whichever comes first.  For the
 * first delivery of a chat the answer waits for the disk.  Otherwise a crash could lose the record
 * of a chat whose message the agent has, and the agent could not answer there.
 *
 * WAITING: the instance's record, which has the mailbox number, is not on disk yet.  A row without
 * that record would be lost after a crash, so the record is written first.
 *
 * accept.c adds deliveries and the pump reports them sent.  Acks, pongs, edits, the retention and
 * operators settle them.  This module never writes to a socket.
 */

enum delivery_state {
    DELIVERY_WAITING,
    DELIVERY_QUEUED,
    DELIVERY_FAILED,
    DELIVERY_KEPT,
    DELIVERY_SETTLED,
    DELIVERY_UNKEYED,
};

/* The deliveries of one staged event (staged.h).  One transaction appends all of them and deletes
 * the event's own row, unless a member has to wait for its record or another copy is pending or
 * refused; then each is written by itself. */
struct delivery_group {
    uint64_t replaces;                      /* the row of the staged event */
    struct list members;                    /* not submitted yet: deliveries by group_link */
    uint32_t left;                          /* members whose append has not ended */
    bool replaced;                          /* valid at @left 0: the transaction deleted the row */
    bool unkeyed;                           /* a drain left the keys to the row */
    void (*over)(struct delivery_group *g); /* runs when @left becomes 0 */
};

struct delivery {
    struct store_append append;   /* belongs to the store while QUEUED or SETTLED */
    struct list link;             /* mailbox.held by id; SETTLED: deliveries->settling */
    struct instance *inst;        /* borrowed */
    struct accept *accept;        /* shared; NULL: answered */
    struct joined *joined;        /* owned; accepts of duplicates that wait for the same append */
    struct delivery_group *group; /* borrowed until the append has ended; NULL: none */
    struct list group_link;
    uint8_t state;
    bool in_doubt;    /* an append ended with BH_UNKNOWN: the row may exist, or appear later */
    bool of_new_chat; /* the chat's record is on disk when the append is, not sooner */
    _Alignas(8) char bytes[]; /* a struct extra, if there is one; then the frame */
};

struct delivery_spec {
    struct str frame; /* copied */
    enum store_row_kind kind;
    uint8_t flags; /* of enum store_row_flag */
    bool has_key, of_new_chat;
    struct hash128 key;
    const struct hash128 *more; /* further deduplication keys, of a burst; copied */
    size_t n_more;
    const struct store_kv *put;   /* a record of the same transaction; copied.  NULL: none */
    struct delivery_group *group; /* NULL: written at once */
};

struct deliveries *deliveries_new(struct relay *r);
/* Called before instances_free(), with the store closed.  Drops pending acks too. */
void deliveries_free(struct relay *r);

/* The id of the next row.  Ids ascend in order of acceptance and are never reused. */
uint64_t delivery_next_id(const struct relay *r);
uint64_t delivery_take_id(struct relay *r); /* consumes it */
/* False: too many bytes wait for the disk already. */
bool delivery_has_room(const struct relay *r, size_t bytes);

/* Appends a delivery to the mailbox and starts its write.  Holds @a until the delivery is durable,
 * settled or given up.  Returns its id. */
uint64_t delivery_add(struct instance *i, const struct delivery_spec *spec, struct accept *a);
void delivery_group_init(struct delivery_group *g, void (*over)(struct delivery_group *g));
/* Submits the members, all of which have been added.  @whole: the event has no other copies, so the
 * same transaction may delete its row. */
void delivery_group_submit(struct delivery_group *g, bool whole);
/* True when @key is a deduplication key of the delivery. */
bool delivery_has_key(const struct delivery *d, struct hash128 key);
/* Makes @a, an accept of a duplicate, wait for the delivery with this key that is not on disk yet.
 * False: there is none. */
bool delivery_join(struct instance *i, struct hash128 key, struct accept *a);

/* Settles a delivery: it is never sent again and its row is deleted.  The caller calls
 * mailbox_tidy() afterwards. */
void delivery_settle(struct instance *i, struct slot *slot);
/* Settles at most @most deliveries up to the id @up_to that were accepted before @before_s (wall
 * seconds), parked ones included, and tidies.  Returns how many. */
uint64_t delivery_settle_until(struct instance *i, uint64_t up_to, int64_t before_s, uint64_t most);
/* The delivery was sent to the receiver: frees its bytes if they are on disk. */
void delivery_sent(struct instance *i, struct slot *slot);

/* False: the commit is not known yet, so the pump stops before this slot. */
static inline bool delivery_may_leave(const struct store *st, const struct slot *slot)
{
    return !st->shared || (slot->flags & SLOT_DURABLE) != 0;
}
void delivery_drop_kept(struct instance *i); /* frees KEPT bytes: no live socket needs them soon */
/* A socket has closed: gives up deliveries that the store refused and that no other open socket has
 * sent. */
void delivery_socket_lost(struct instance *i);
/* The write of the instance's record has ended: submits WAITING deliveries, or gives them up. */
void delivery_record_done(struct instance *i, enum bh_err err);
void delivery_retry(struct instance *i); /* resubmits failed appends and revisions */
/* True when every delivery up to @id is on disk or settled. */
bool delivery_safe_up_to(const struct instance *i, uint64_t id);

/* Writes the slot's attempts, and the reason @parked if it is parked, to the store. */
void delivery_mark(struct instance *i, const struct slot *slot, struct str parked);

/* ---- revisions: replace the bytes of a waiting delivery ----
 *
 * The new bytes stay in memory until the store has them. */
/* @a, which may be NULL, is held until the store has the new bytes. */
void delivery_revise(struct instance *i, struct slot *slot, struct str frame, struct accept *a);
/* The newest bytes that the store does not have yet; absent: no revision is pending. */
struct str delivery_revised(const struct instance *i, uint64_t id);

/* ---- acks: delete the rows of settled deliveries ----
 *
 * The ids of one turn are one store operation, which is retried until it succeeds; a drain does not
 * retry. */
void acks_add(struct relay *r, uint64_t id);
/* Deletes all rows of @all, which the acks own from now on: a batch per turn, as fast as the store
 * deletes. */
void acks_add_ring(struct relay *r, struct slot_ring all);
void acks_submit(struct relay *r); /* at the end of a turn */
void acks_retry(struct relay *r);  /* resubmits failed batches */
