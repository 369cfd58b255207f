/* redis_hop.h - connections of bytes between nodes that cannot dial each other, through a Redis
 * server.
 *
 *      node A ──XADD──> stream that B reads ──XREAD──> node B
 *             <──XREAD── stream that A reads <──XADD──
 *
 * Every process has one stream, its inbox, and reads it on a connection that blocks in XREAD; it
 * writes to the inboxes of other nodes on a second connection.  A line is one connection of bytes:
 *
 *      dialer --HELLO: its name--> acceptor       the dialer named the line at random
 *             <--ACCEPT: a salt--                 or REFUSE: why
 *             <==DATA, numbered from 1==>         ... END
 *
 * Every entry is sealed (hop_entry.h).  Any entry but the next one cuts a line: a gap, a repeated
 * entry, a forged one.  So does a lost stream (FLUSHALL, eviction), an XADD that Redis refuses, and
 * the loss of either connection to Redis.  The line's owner is told.  Nothing is repeated on a
 * line, so nothing arrives twice or out of order.
 *
 * The reader deletes the entries it has read and tells the writer how much that was.
 * hop_line_unsent() is the most that Redis still holds.  An inbox expires HOP_EXPIRE_S after the
 * end of its process.
 *
 * Trunks use it (trunk.h) in place of a TCP connection. */
#pragma once
#include "net/tcp_client.h"

struct loop;
struct redis_hop;
struct hop_line;

#define HOP_EXPIRE_S "60"

struct redis_hop_options { /* borrowed for the call */
    const char *url;       /* as in redis_client.h */
    const char *ca;        /* borrowed for good; NULL: the system's authorities */
    const uint8_t *key;    /* TRUNK_KEY_BYTES that all nodes share */
    const char *name;      /* of this process among the nodes, unique */
    const char *protocol;  /* both ends of a line speak it; a literal without blanks */
};

/* NULL: the address is wrong, and @ret_why (256 bytes) says how. */
struct redis_hop *redis_hop_open(struct loop *loop, const struct redis_hop_options *o,
                                 char *ret_why);
/* All lines are gone.  Writes what the socket takes at once.  NULL is fine. */
void redis_hop_close(struct redis_hop *h);

/* Another node dials: hop_line_take() it now and return true, or return false to refuse it.
 * It can be written to once this call has returned. */
typedef bool hop_accept_f(void *ctx, struct hop_line *line);
void redis_hop_listen(struct redis_hop *h, hop_accept_f *accept, void *ctx); /* NULL: refuse all */

/* Handlers as in tcp_client.h: none runs inside a call of this header, on_closed() is the last one
 * and runs once.  A failure of any kind is reported by on_closed(). */
struct hop_line *hop_line_open(struct redis_hop *h, const char *to,
                               const struct tcp_client_handlers *handlers, void *ctx);
void hop_line_take(struct hop_line *line, const struct tcp_client_handlers *handlers, void *ctx);
/* One entry.  Does nothing before on_open() and after the end. */
void hop_line_send(struct hop_line *line, struct str bytes);
size_t hop_line_unsent(const struct hop_line *line); /* sent, and not taken by the other end yet */
/* Silently; the other end is told.  NULL is fine. */
void hop_line_free(struct hop_line *line);

struct redis_hop_state { /* for an operator; borrowed until the loop runs on */
    const char *at;      /* "host:port" */
    const char *problem; /* "": none */
    int64_t heard_ms;    /* since Redis was heard last; -1: never */
    size_t lines;
};
struct redis_hop_state redis_hop_state(const struct redis_hop *h);
