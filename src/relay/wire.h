/* wire.h - the interface through which a session writes to a gateway's socket.
 *
 *      session --wire->ops--> the WebSocket          the WebSocket --session_data(), ...--> session
 *
 * No operation blocks or calls back into the session.  After close() the wire's owner calls
 * session_closed() later.  The WebSocket route implements struct wire; the unit tests and the
 * simulator have small implementations of their own. */
#pragma once
#include "base/buf.h"
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
     * may not. The delivery @row, called @id by its ack, ends with the message being written, or
     * else with the last one. */
    void (*sent)(struct wire *w, uint64_t row, struct str id);
    /* The same for the result of the action @request_id. */
    void (*answered)(struct wire *w, struct str request_id);
    /* @yes: the socket is the receiver of its instance, and the next process shall have it.
     * @rank is for session_past. */
    void (*keep)(struct wire *w, bool yes, uint64_t rank);
    /* Of a session that pulls (in/inside.h): mail waits, or is on disk now. */
    void (*mail)(struct wire *w);
    /* Appends the URL by which this gateway fetches a file.  @sign: the gateway sends no
     * credential, so the URL is signed.  NULL: files are not supported. */
    void (*media_url)(struct wire *w, struct str id, bool sign, struct buf *out);
};
struct wire {
    const struct wire_ops *ops;
};
