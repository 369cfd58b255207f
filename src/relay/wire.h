/* wire.h - the interface through which a session writes to a gateway's socket.
 *
 *      session --wire->ops--> the WebSocket          the WebSocket --session_data(), ...--> session
 *
 * No operation blocks or calls back into the session.  After close() the wire's owner calls
 * session_closed() later.  The WebSocket route implements struct wire.  A session of bellhop itself
 * has no socket: it writes to struct inner_wire.  The unit tests and the simulator have small
 * implementations of their own. */
#pragma once
#include "base/buf.h"
#include "base/clock.h"
#include "core/contract.h"

struct wire;
struct wire_ops {
    void (*send)(struct wire *w, struct str message); /* one WebSocket text message; copied */
    /* send() without a copy: append the message to the buffer, then call send_end(). */
    struct buf *(*send_begin)(struct wire *w);
    void (*send_end)(struct wire *w);
    void (*ping)(struct wire *w, uint32_t number); /* session_pong() gets the number back */
    void (*close)(struct wire *w, enum close_reason why);
    /* The next three are for a socket that may outlive this process (session_resume()); NULL: it
     * may not.  The last byte of the delivery @row, whose ack says @id, is in the message being
     * written, or in the last one if none is. */
    void (*sent)(struct wire *w, uint64_t row, struct str id);
    /* The same for the result of the action @request_id. */
    void (*answered)(struct wire *w, struct str request_id);
    /* @yes: the socket is the receiver of its instance, and the next process shall have it.
     * @rank is for session_past. */
    void (*keep)(struct wire *w, bool yes, uint64_t rank);
    /* For a session that pulls (in/inside.h): mail waits, or is on disk now. */
    void (*mail)(struct wire *w);
    /* Appends the URL by which this gateway fetches a file.  @sign: the gateway sends no
     * credential, so the URL is signed.  NULL: files are not supported. */
    void (*media_url)(struct wire *w, struct str id, bool sign, struct buf *out);
};
struct wire {
    const struct wire_ops *ops;
};

/* A wire without a socket.  It collects what the session sends and calls @on_turn when the turn
 * ends, so its owner never calls the relay from inside one of the relay's calls. */
struct inner_wire {
    struct wire wire;
    struct clock *clock; /* borrowed */
    void (*on_turn)(struct inner_wire *w);
    struct timer turn;
    struct buf got;        /* the frames, one per line; the owner removes what it has read */
    bool mail;             /* mail() was called; the owner resets it */
    bool closed;           /* the session closed the wire, for the reason @why */
    enum close_reason why; /* valid while @closed */
};
void inner_wire_init(struct inner_wire *w, struct clock *clock,
                     void (*on_turn)(struct inner_wire *w));
void inner_wire_done(struct inner_wire *w);
void inner_wire_wake(struct inner_wire *w); /* on_turn() runs when the turn ends */
