/* wire.h - a gateway's socket as the heart sees it.
 *
 *      session --wire->ops--> the WebSocket          the WebSocket --session_data(), ...--> session
 *
 * All of it is asynchronous and calls nobody back; after close() the owner calls session_closed()
 * later.  The WebSocket route implements it, the unit tests and the simulator with a few lines. */
#pragma once
#include "base/buf.h"
#include "core/contract.h"

struct wire;
struct wire_ops {
    void (*send)(struct wire *w, struct str message); /* one WebSocket text message; copied */
    /* The same without a copy: append to the buffer, then send_end(). */
    struct buf *(*send_begin)(struct wire *w);
    void (*send_end)(struct wire *w);
    void (*ping)(struct wire *w, uint32_t number); /* session_pong() gets the number back */
    void (*close)(struct wire *w, enum close_reason why);
    /* Append the address by which this gateway fetches a file; @sign: it shows no credential of its
     * own.  NULL: there are no files. */
    void (*media_url)(struct wire *w, struct str id, bool sign, struct buf *out);
};
struct wire {
    const struct wire_ops *ops;
};
