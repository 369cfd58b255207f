/* trunk.h - multiplexes many client connections over one, between two nodes of a cluster.
 *
 *      clients ── sockets, TLS ── porter ══ trunk ══ keeper ── its http_server, as if they were its
 *                                                              own
 *
 * The porter accepts connections and forwards their bytes over the trunk without parsing them.  The
 * keeper's server reads them like bytes of a socket: HTTP, uploads, streams, WebSockets.  The trunk
 * saves the keeper the sockets, TLS and a system call per message.
 *
 * Both sides prove that they know one secret key; neither sends it:
 *
 *      porter --GET /cluster/trunk, Upgrade: bellhop-trunk-1--> keeper
 *             <--101, CHALLENGE: a number--                        NEW, for as long as a head may
 *             --PROOF: a number, HMAC of both, its name-->                          take
 *             <--WELCOME: HMAC of both, its name--                 UP
 *
 * Each side sends at most TRUNK_WINDOW bytes of a connection before the other has taken them, so
 * a client that does not read delays no other client.  TRUNK_HIGH_BYTES bounds the bytes that wait
 * for the trunk itself.
 *
 * When a trunk is lost, both sides close its connections. */
#pragma once
#include "base/str.h"

struct http_req;
struct http_server;
struct loop;

#define TRUNK_PROTOCOL "bellhop-trunk-1" /* in the Upgrade header */
#define TRUNK_KEY_BYTES 32
#define TRUNK_NAME_BYTES 64       /* of a node, at most */
#define TRUNK_WINDOW (64u * 1024) /* memory at the porter of a client that does not read */
#define TRUNK_BEAT_MS 1000        /* between heartbeats of a porter */
#define TRUNK_SILENT_MS 8000      /* without a heartbeat: the trunk is lost */

/* ---- the keeper ---- */

struct trunk_keeper { /* borrowed for the call */
    const uint8_t *key;
    const char *name; /* of this node; the porter checks it */
    void *admin_tag;  /* of connections to the porter's admin socket: http_listener_tag() */
};
/* Answers the request in every case.  If the request is valid, its connection becomes the trunk. */
void trunk_accept(struct http_server *s, struct http_req *req, const struct trunk_keeper *k);
/* Trunks that are up, at either end, and the connections on them. */
struct trunk_tally {
    size_t trunks, connections;
};
struct trunk_tally trunk_tally(const struct http_server *s);

/* During a drain: every porter that is alive has stopped to open connections. */
bool trunk_all_quiet(const struct http_server *s);

/* Send @question to the porter @node.  The callers at both ends define what it means.  @done runs
 * once, later, with the answer; an absent answer means that the trunk was lost and the outcome is
 * unknown.  NULL: no porter of that name is connected, or its trunk is full. */
#define TRUNK_MAX_QUESTION (4u << 20)
typedef void trunk_told_cb(void *ctx, struct str answer);
struct trunk_ask *trunk_ask(struct http_server *s, struct str node, struct str question,
                            trunk_told_cb *done, void *ctx);
void trunk_ask_cancel(struct trunk_ask **a); /* sends TRUNK_UNASK; NULL is fine */
bool trunk_reaches(const struct http_server *s, struct str node);
/* trunk_ask() without an answer.  False: no porter of that name is connected. */
bool trunk_say(struct http_server *s, struct str node, struct str words);
/* All connected porters: the name of each, and how many connections it carries. */
typedef void trunk_each_cb(void *ctx, struct str node, size_t connections);
void trunk_each(const struct http_server *s, trunk_each_cb *cb, void *ctx);

/* ---- the porter ---- */

struct trunk_dial { /* borrowed for the call */
    const char *host;
    uint16_t port;
    bool tls;
    const char *ca_path; /* NULL: the system's */
    const uint8_t *key;
    const char *name;   /* of this node */
    const char *keeper; /* the expected name of the other end */
};
struct trunk_handlers {
    void (*on_up)(void *ctx);
    void (*on_lost)(void *ctx, const char *why); /* once; the trunk is dead afterwards */
    /* A question of the keeper: answered by trunk_tell(), now or later.  Questions of a lost trunk
     * need no answer. */
    void (*on_ask)(void *ctx, uint32_t number, struct str question); /* NULL: none is answered */
    void (*on_unask)(void *ctx, uint32_t number);
};
/* While the trunk is up, connections to @s are carried, except requests for this process itself
 * (trunk_is_ours()).  One trunk at a time; failures are reported by on_lost(). */
struct trunk *trunk_open(struct loop *loop, struct http_server *s, const struct trunk_dial *d,
                         const struct trunk_handlers *h, void *ctx);
bool trunk_is_up(const struct trunk *t);
size_t trunk_connections(const struct trunk *t);
/* Ask the keeper to close the carried connections in good order: WebSockets with 1012. */
void trunk_leave(struct trunk *t);
void trunk_tell(struct trunk *t, uint32_t number, struct str answer);
void trunk_free(struct trunk *t); /* cuts its connections; no handler runs; NULL is fine */

/* While there is no trunk, connections wait @ms for one before this process handles them.  0: do
 * not wait; those that wait already are handled now. */
void trunk_hold(struct http_server *s, int64_t ms);

/* True: there was a trunk, and connections that come now wait for the next one. */
bool trunk_is_awaited(const struct http_server *s);

/* True: a request with this head is answered by the process it reached, whichever node holds the
 * lease. */
bool trunk_is_ours(struct str head);
