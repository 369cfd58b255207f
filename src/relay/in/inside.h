/* inside.h - what comes from this program itself, and agents that live in it.
 *
 * A parcel is mail for one instance by name: who sent it was let in by somebody else, so nobody
 * asks the gate.  It has the mailbox's promises, and its name makes it one delivery however often
 * it is sent (core/delivery_id.h).
 *
 * An agent inside has no socket: whoever reaches it (dispatch/courier.h) holds a session over a
 * wire of his own, says hello, and acks what has arrived.  Such a session is never pinged, may take
 * as long as it likes for an ack, and is sent one message of few frames at a time, so that
 * thousands of them cost little.  A lost one counts as nobody's attempt: session_failed() does.
 */
#pragma once
#include "relay/relay.h"

#define PARCEL_TICK_MS 10                    /* so precisely it is known when a parcel was taken */
#define INSIDE_PACK_BYTES ((size_t)64 << 10) /* in one message, but at least one frame */

struct parcel { /* borrowed for the call */
    struct str tenant, instance;
    /* What it is: platform, bot and event_id make its name; without @body it is the message, and
     * the instance may answer in its chat. */
    const struct event *ev;
    struct str body; /* one JSON value without a line break, for an agent inside; absent: @ev */
    bool may_wake;   /* a sleeper is rung for it */
};

/* BH_REFUSED: the names are impossible, or it is too long.  The rest is core/accept.h.
 * @ret_known_ms is set before the call returns: when it was taken before (wall clock, rounded
 * down to PARCEL_TICK_MS; of one that was taken before we started, when it was on disk), and then
 * @done tells when that one is safe; 0: it is new; -1: it is refused. */
struct accept_id relay_deliver(struct relay *r, const struct parcel *p, int64_t *ret_known_ms,
                               accepted_cb *done, void *ctx);

/* As session_open().  @gw is not in the facts: it lives until session_closed(). */
struct session *session_open_inside(struct relay *r, const struct gateway *gw, struct wire *wire);
/* It could not be brought to the agent now: one more attempt.  After limits.max_attempts, or when
 * @park says that trying again is no use, it is parked with the reason @why (a sentence).  True:
 * it is parked, and what comes behind it goes on; false: the caller closes the session and tries
 * again later. */
bool session_failed(struct session *s, struct str buffer_id, struct str why, bool park);
