/* delivery.h - one delivery on its way to the disk and out of it again.
 *
 * A struct delivery exists while the bytes are in memory: from the accept until they are on disk,
 * and a little longer when a live socket will want them soon.  Its slot in the mailbox exists from
 * the accept until the delivery is settled.
 *
 *      WAITING --record on disk--> QUEUED --done--> durable: freed, or KEPT until sent
 *                                   |  ^
 *        failed, on a socket; or in  v  | RETRY_MS, with the same id
 *        doubt                      FAILED         failed otherwise: removed, "unavailable"
 *
 *      every state --acked--> freed; a QUEUED one becomes SETTLED and is freed by done()
 *
 * In a file a delivery may be sent while its write is queued.  In a shared store the answer to a
 * commit can be lost, so there the pump stops at a slot until its row is known to be committed
 * (delivery_may_leave()): neither that delivery nor one behind it is sent sooner.  A delivery in
 * doubt (BH_UNKNOWN) is retried until the store says that the row is there; when it is settled
 * meanwhile, its row is deleted by an ack all the same.
 *
 * WAITING: the instance's record (its mailbox number) is not on disk yet; a row that nobody could
 * find after a crash would be a lost delivery, so it is not written before.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "relay/mailbox/mailbox.h"
#include "store/store.h"

struct accept;
struct acks;
struct deliveries;
struct instance;
struct relay;
struct slot_ring;

enum delivery_state {
    DELIVERY_WAITING,
    DELIVERY_QUEUED,
    DELIVERY_FAILED,
    DELIVERY_KEPT,
    DELIVERY_SETTLED,
};

/* The copies of an event that has waited (staged.h).  One transaction appends all of them and
 * removes the event's own row, unless one of them has to wait or fails; @replaced tells. */
struct delivery_group {
    uint64_t replaces;                      /* that row */
    struct list members;                    /* not submitted yet: deliveries by group_link */
    uint32_t left;                          /* members whose append has not ended */
    bool replaced;                          /* once none is left: the row has gone with them */
    void (*over)(struct delivery_group *g); /* none is left */
};

struct delivery {
    struct store_append append;   /* belongs to the store while QUEUED or SETTLED */
    struct list link;             /* mailbox.held by id; SETTLED: deliveries->settling */
    struct instance *inst;        /* borrowed */
    struct accept *accept;        /* shared; NULL: answered */
    struct joined *joined;        /* owned; duplicates that came before it was answered */
    struct delivery_group *group; /* borrowed until its append ended; NULL: none */
    struct list group_link;
    uint8_t state;
    bool in_doubt; /* an append ended with BH_UNKNOWN: the row may be there, or may come */
    char bytes[];
};

struct delivery_spec {
    uint64_t id;
    struct str frame; /* copied */
    enum store_row_kind kind;
    bool quiet;    /* nobody is woken for it */
    uint8_t flags; /* of enum store_row_flag */
    bool has_key;
    struct hash128 key;
    struct delivery_group *group; /* NULL: it is written at once */
};

struct deliveries *deliveries_new(struct relay *r);
/* NULL is fine.  Before the instances; the store holds none of our operations any more. */
void deliveries_free(struct relay *r);

/* Ids grow with acceptance and are never used again: the one for the next delivery_add(). */
uint64_t delivery_next_id(const struct relay *r);
uint64_t delivery_take_id(struct relay *r); /* the same, for another row: it is used up */
bool delivery_has_room(const struct relay *r, size_t bytes); /* or too much waits for the disk */
bool delivery_any_volatile(const struct relay *r);           /* something is not on disk yet */

/* At the tail of the mailbox and on its way to the disk.  Holds @a until it is durable or
 * settled. */
void delivery_add(struct instance *i, const struct delivery_spec *spec, struct accept *a);
void delivery_group_init(struct delivery_group *g, void (*over)(struct delivery_group *g));
/* All its members are there, or none.  @whole: no other copy of the event is owed to anybody. */
void delivery_group_submit(struct delivery_group *g, bool whole);
/* An accept of the same event waits with the one under way.  False: nothing is under way. */
bool delivery_join(struct instance *i, struct hash128 key, struct accept *a);

/* Acked, or as good as: it is never sent again.  The caller tidies the mailbox when it is done. */
void delivery_settle(struct instance *i, struct slot *slot);
/* It went down the receiver's socket: bytes that are on disk too are not needed any more. */
void delivery_sent(struct instance *i, struct slot *slot);

/* False: its commit is not known yet, so the pump stops before it. */
static inline bool delivery_may_leave(const struct store *st, const struct slot *slot)
{
    return !st->shared || (slot->flags & SLOT_DURABLE) != 0;
}
void delivery_drop_kept(struct instance *i); /* nobody will want these bytes soon */
/* A socket has gone: what the store refused and no other socket holds cannot be kept. */
void delivery_socket_lost(struct instance *i);
/* The instance's record was written, or could not be. */
void delivery_record_done(struct instance *i, enum bh_err err);
void delivery_retry(struct instance *i); /* what the store refused */
/* True when nothing up to @id is only in memory. */
bool delivery_safe_up_to(const struct instance *i, uint64_t id);

/* Attempts and parking, for the store. */
void delivery_mark(struct instance *i, const struct slot *slot, struct str parked);

/* ---- revisions: what a row says is changed while it waits ----
 *
 * The new bytes are in memory until the store has them. */
/* @a, which may be NULL, is held until then. */
void delivery_revise(struct instance *i, struct slot *slot, struct str frame, struct accept *a);
struct str delivery_revised(const struct instance *i, uint64_t id); /* absent: it was not */

/* ---- acks: the rows of settled deliveries are deleted ----
 *
 * The ids of one turn are collected and written as one operation, which is retried until the store
 * has it. */
struct acks *acks_new(void);
void acks_free(struct acks *t); /* NULL is fine; the store holds none of them any more */

void acks_add(struct relay *r, uint64_t id);
/* Everything in @all, which is owned from now on: some in a turn, as fast as the store deletes. */
void acks_add_ring(struct relay *r, struct slot_ring all);
void acks_submit(struct relay *r); /* at the end of a turn */
void acks_retry(struct relay *r);  /* those the store refused */
bool acks_pending(const struct relay *r);
