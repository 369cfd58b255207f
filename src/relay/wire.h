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
    /* Of a session that pulls (in/inside.h): mail waits, or is on disk now. */
    void (*mail)(struct wire *w);
    /* Appends the URL by which this gateway fetches a file.  @sign: the gateway sends no
     * credential, so the URL is signed.  NULL: files are not supported. */
    void (*media_url)(struct wire *w, struct str id, bool sign, struct buf *out);
};
struct wire {
    const struct wire_ops *ops;
};
