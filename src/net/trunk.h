/* trunk.h - one connection between an edge and the heart, over which the heart serves the edge's
 * clients.
 *
 *      clients ── sockets, TLS, HTTP, WebSocket ── edge ══ trunk ══ heart ── its http_server: the
 *                                                                            handler, the sessions
 *
 * The edge is a node of a cluster that does not hold the lease; the heart is the node that does.
 * Threads of the heart's own process are edges too: edges.h runs this code over rings.
 * The edge owns the sockets and parses what comes: it sends whole requests, pieces of bodies, texts
 * of WebSockets and acks.  The heart answers with bytes for a socket.  Each side collects its
 * messages during a turn of the loop and sends them as one batch (net/batch.h).
 *
 * Both sides prove that they know one secret key; neither sends it:
 *
 *      edge --GET /cluster/trunk, Upgrade: bellhop-trunk-2--> heart
 *           <--101, CHALLENGE: a number--                       NEW, for as long as a head may
 *           --PROOF: a number, HMAC of both, its name-->                       take
 *           <--WELCOME: HMAC of both, its name--                UP
 *
 * A heart of another version refuses the upgrade, and the edge stands by.  Where nodes cannot dial
 * each other a trunk runs over Redis (net/redis_hop.h): the same messages without the upgrade.
 *
 * Each side sends at most TRUNK_WINDOW bytes of a connection before the other has taken them, so
 * a client that does not read delays no other client.  Where the trunk itself is slow, a bounded
 * number of bytes waits for it; then tenants and addresses take turns, and new requests wait at the
 * edge.
 *
 * When a trunk is lost, requests that wait for their answers are closed.  A gateway's WebSocket
 * stays open at the edge, and is presented to the next heart (net/kept.h). */
#pragma once
#include "base/str.h"

struct http_req;
struct http_server;
struct loop;
struct redis_hop;

#define TRUNK_PROTOCOL "bellhop-trunk-2" /* in the Upgrade header */
#define TRUNK_KEY_BYTES 32
#define TRUNK_NAME_BYTES 64       /* of a node, at most */
#define TRUNK_WINDOW (64u * 1024) /* memory at the edge of a client that does not read */
#define TRUNK_BEAT_MS 1000        /* between heartbeats of an edge */
#define TRUNK_SILENT_MS 8000      /* without a heartbeat: the trunk is lost */

/* ---- the heart ---- */

struct trunk_heart { /* borrowed for the call */
    const uint8_t *key;
    const char *name; /* of this node; the edge checks it */
    void *admin_tag;  /* of connections to the edge's admin socket: http_listener_tag() */
};
/* Answers the request in every case.  If the request is valid, its connection becomes the trunk. */
void trunk_accept(struct http_server *s, struct http_req *req, const struct trunk_heart *h);
/* Accepts the trunks that come over @hop, which outlives @s. */
void trunk_listen(struct http_server *s, struct redis_hop *hop, const struct trunk_heart *h);
/* Trunks that are up, at either end, and the connections on them. */
struct trunk_tally {
    size_t trunks, connections;
};
struct trunk_tally trunk_tally(const struct http_server *s);

/* During a drain: every edge that is alive has stopped to send requests. */
bool trunk_all_quiet(const struct http_server *s);

/* Acks that edges report are numbered.  mark() is the number of the acks heard until now, and
 * safe() of those that are on disk: an edge holds an ack until then. */
struct trunk_acks {
    uint64_t (*mark)(void *ctx);
    uint64_t (*safe)(void *ctx);
    void *ctx;
};
void trunk_set_acks(struct http_server *s, const struct trunk_acks *a); /* copied */

/* Send @question to the edge @node.  The callers at both ends define what it means.  @done runs
 * once, later, with the answer; an absent answer means that the trunk was lost and the outcome is
 * unknown.  NULL: no edge of that name is connected, or its trunk is full. */
#define TRUNK_MAX_QUESTION (4u << 20)
typedef void trunk_told_cb(void *ctx, struct str answer);
struct trunk_ask *trunk_ask(struct http_server *s, struct str node, struct str question,
                            trunk_told_cb *done, void *ctx);
void trunk_ask_cancel(struct trunk_ask **a); /* NULL is fine */
bool trunk_reaches(const struct http_server *s, struct str node);
/* trunk_ask() without an answer.  False: no edge of that name is connected. */
bool trunk_say(struct http_server *s, struct str node, struct str words);
/* All connected edges: the name of each, and how many connections it carries. */
typedef void trunk_each_cb(void *ctx, struct str node, size_t connections);
void trunk_each(const struct http_server *s, trunk_each_cb *cb, void *ctx);

/* ---- the edge ---- */

struct trunk_dial { /* borrowed for the call */
    const char *host;
    uint16_t port;
    bool tls;
    const char *ca_path;   /* NULL: the system's */
    struct redis_hop *hop; /* instead of all of the above: over Redis; NULL: none */
    const uint8_t *key;
    const char *name;  /* of this node */
    const char *heart; /* the expected name of the other end */
};
struct trunk_handlers {
    void (*on_up)(void *ctx);
    void (*on_lost)(void *ctx, const char *why); /* once; the trunk is dead afterwards */
    /* A question of the heart: answered by trunk_tell(), now or later.  Questions of a lost trunk
     * need no answer. */
    void (*on_ask)(void *ctx, uint32_t number, struct str question); /* NULL: none is answered */
    void (*on_unask)(void *ctx, uint32_t number);
};
/* While the trunk is up, requests to @s are carried, except those for this process itself
 * (trunk_is_ours()).  One trunk at a time; failures are reported by on_lost(). */
struct trunk *trunk_open(struct loop *loop, struct http_server *s, const struct trunk_dial *d,
                         const struct trunk_handlers *h, void *ctx);
bool trunk_is_up(const struct trunk *t);
size_t trunk_connections(const struct trunk *t);
/* Ask the heart to close the carried connections in good order: WebSockets with 1012. */
void trunk_leave(struct trunk *t);
void trunk_tell(struct trunk *t, uint32_t number, struct str answer);
/* No handler runs.  Gateways' WebSockets wait for the next heart; NULL is fine. */
void trunk_free(struct trunk *t);

/* While there is no trunk, requests wait @ms for one before this process handles them, and
 * gateways' WebSockets before they are closed.  0: do not wait; requests that wait already are
 * handled now. */
void trunk_hold(struct http_server *s, int64_t ms);

/* This process is the heart from now on: the WebSockets that wait for one are its own. */
void trunk_adopt(struct http_server *s);

/* True: there was a trunk, and connections that come now wait for the next one. */
bool trunk_is_awaited(const struct http_server *s);

/* True: a request with this head is answered by the process it reached, whichever node holds the
 * lease. */
bool trunk_is_ours(struct str head);
