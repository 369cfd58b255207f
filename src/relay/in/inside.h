/* inside.h - mail from bellhop itself, and sessions of agents without a socket.
 *
 * A parcel is mail for one named instance.  The caller has authorized the sender, so the relay does
 * not ask the gate.  A parcel is as durable as other mail.  Sending a parcel is idempotent: its
 * name is the deduplication key (core/event.h).
 *
 * An agent inside has no socket.  Its courier (dispatch/courier.h) opens a session over a wire of
 * its own, says hello, and acks deliveries.  Such a session has no pings and no ack timeout, and
 * gets one small message at a time, so that thousands of sessions cost little.  Only
 * session_failed() counts an attempt; closing the session does not.
 *
 * A pulling session is a session inside for an agent whose acks come minutes or days later (a model
 * that works on a message).  The pump sends nothing on a pulling session.  The agent reads its mail
 * by a cursor, as many deliveries as it wants, and settles each by its id:
 *
 *      session_open_pulling() --> receiver --mail waits--> wire->ops->mail()
 *      session_pull(after)    --> the next deliveries are marked on disk, then read
 *      relay_mailbox_done(id) --> settled
 *
 * Ids ascend in order of acceptance, so an agent that goes on from the newest id it has read gets
 * every delivery once and in order, also across a restart of bellhop.  An agent that begins at 0
 * gets everything that is not settled.  The mark is on disk before the bytes are handed out, so
 * mailbox_line.attempts is above 1 for every delivery that an agent may have seen before.
 */
#pragma once
#include "relay/relay.h"

#define PARCEL_TICK_MS 10                    /* resolution of known_ms */
#define INSIDE_PACK_BYTES ((size_t)64 << 10) /* in one message, but at least one frame */
#define PULL_BYTES ((size_t)1 << 20)         /* of one session_pull(), but at least one frame */

struct parcel { /* borrowed for the call */
    struct str tenant, instance;
    /* Platform, bot and event_id make the parcel's name.  Without @body the event is the message,
     * and the instance may answer in its chat. */
    const struct event *ev;
    struct str body; /* one JSON value without a line break, for an agent inside; absent: @ev */
    bool may_wake;   /* wakes a sleeping instance */
};

struct parcel_fate {
    /* 0   the parcel is new
     * -1  the parcel is refused
     * >0  a duplicate: the wall time of the first acceptance, rounded down to PARCEL_TICK_MS (or of
     *     its write, if that was before a restart) */
    int64_t known_ms;
    uint64_t id; /* names a new parcel in its mailbox */
};

/* Delivers a parcel (contract: core/accept.h).  BH_REFUSED: a name is invalid, or the parcel is too
 * long.  @ret_fate is set before the call returns.  For a duplicate, @done runs when the first
 * parcel of that name is on disk. */
struct accept_id relay_deliver(struct relay *r, const struct parcel *p,
                               struct parcel_fate *ret_fate, accepted_cb *done, void *ctx);
/* When the instance got this event, or the parcel of this name, as known_ms of struct parcel_fate;
 * 0: never, or longer ago than deduplication keys are kept. */
int64_t relay_known_ms(struct relay *r, struct str tenant, struct str instance,
                       const struct event *ev);

enum parcel_news {
    PARCEL_SENT,    /* on a socket; may be told again.  Not told of an agent inside */
    PARCEL_TAKEN,   /* acked: over */
    PARCEL_PARKED,  /* given up for the reason @why; a redrive sends it again */
    PARCEL_REMOVED, /* purged, expired or lost before anybody got it: over */
};
/* @id is parcel_fate.id.  Also called for other mail of an instance that had a parcel.  The callee
 * must not call the relay. */
typedef void parcel_cb(void *ctx, uint64_t id, enum parcel_news news, struct str why);
/* Tells @cb of the parcels from now on, and of those that wait in a mailbox.  NULL: ends it. */
void relay_watch_parcels(struct relay *r, parcel_cb *cb, void *ctx);

/* Like session_open().  @gw is not in the facts; it must live until session_closed(). */
struct session *session_open_inside(struct relay *r, const struct gateway *gw, struct wire *wire);
/* Like session_open(), for an agent that pulls; it is the receiver at once.  A newer receiver
 * closes it with CLOSE_REPLACED. */
struct session *session_open_pulling(struct relay *r, const struct gateway *gw, struct wire *wire);
/* Reads at most @limit deliveries above the id @after, about PULL_BYTES of them, oldest first;
 * parked ones are left out.  @peek marks nothing: the deliveries count as unread.  The callbacks
 * run later, as those of relay_mailbox_show(), and may outlive @s. */
void session_pull(struct session *s, uint64_t after, size_t limit, bool peek, mailbox_line_cb *each,
                  accepted_cb *done, void *ctx);
/* Settles a delivery of the instance, as its ack would.  False: it is unknown or settled. */
bool relay_mailbox_done(struct relay *r, struct str tenant, struct str instance, uint64_t id);

/* Reports that a delivery did not reach the agent, and counts an attempt.  After max_attempts, or
 * with @park (a retry is pointless), the delivery is parked with the reason @why, a sentence.
 * True: it is parked or purged, and the session goes on.  False: the caller closes the session and
 * retries later. */
bool session_failed(struct session *s, struct str buffer_id, struct str why, bool park);
