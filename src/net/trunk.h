/* trunk.h - many connections over one, between two nodes of a cluster.
 *
 *      clients ── sockets, TLS ── porter ══ trunk ══ keeper ── its http_server, as if they were its
 *                                                              own
 *
 * A porter takes connections and understands nothing of what is said on them: their bytes go over
 * the trunk, and the keeper's server reads them as it reads a socket: HTTP, uploads, streams,
 * WebSockets alike.  What the keeper is spared is the sockets, TLS and a system call per message.
 *
 * Both prove that they know one secret (trunk_key); neither sends it:
 *
 *      porter --GET /cluster/trunk, Upgrade: bellhop-trunk-1--> keeper
 *             <--101, CHALLENGE: a number--                        NEW, for as long as a head may
 *             --PROOF: a number, HMAC of both, its name-->                          take
 *             <--WELCOME: HMAC of both and of who it is--          UP
 *
 * Each side sends at most TRUNK_WINDOW bytes of a connection before the other has taken them, so
 * one client that does not read holds up nobody else; and what waits for the trunk itself is
 * bounded by TRUNK_HIGH_BYTES.
 *
 * A trunk that is lost takes its connections with it, on both sides. */
#pragma once
#include "base/err.h"
#include "base/str.h"

struct http_req;
struct http_server;
struct loop;
struct trunk;

#define TRUNK_PROTOCOL "bellhop-trunk-1" /* in the Upgrade header */
#define TRUNK_KEY_BYTES 32
#define TRUNK_NAME_BYTES 64       /* of a node, at most */
#define TRUNK_WINDOW (64u * 1024) /* what a client that does not read costs a porter */
#define TRUNK_BEAT_MS 1000        /* a porter says that it is there */
#define TRUNK_SILENT_MS 8000      /* nothing was heard for so long: it is lost */

/* ---- the keeper ---- */

struct trunk_keeper { /* borrowed for the call */
    const uint8_t *key;
    const char *name; /* who we are: the porter expects this one */
    void *admin_tag;  /* of connections to the porter's admin socket: http_listener_tag() */
};
/* Answers the request, whatever it is: a trunk is over a connection of its own. */
void trunk_accept(struct http_server *s, struct http_req *req, const struct trunk_keeper *k);
/* Those that are up, at either end, and the connections on them. */
struct trunk_tally {
    size_t trunks, connections;
};
struct trunk_tally trunk_tally(const struct http_server *s);

/* Have something done by the process of @node that carries to us.  What is said is known to those
 * at the two ends.  @done runs once and later, with the answer, or with an absent one: the trunk
 * was lost, and nobody knows whether it was done.  NULL: nobody of that name is there, or its trunk
 * has too much to carry. */
#define TRUNK_MAX_QUESTION (4u << 20)
struct trunk_ask;
typedef void trunk_told_cb(void *ctx, struct str answer);
struct trunk_ask *trunk_ask(struct http_server *s, struct str node, struct str question,
                            trunk_told_cb *done, void *ctx);
void trunk_ask_cancel(struct trunk_ask **a); /* the porter is told; NULL is fine */
bool trunk_reaches(const struct http_server *s, struct str node);
/* The same, and nobody waits for an answer.  False: nobody of that name is there. */
bool trunk_say(struct http_server *s, struct str node, struct str words);
/* Those that carry to us: what each is called, and how many connections it carries. */
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
    const char *keeper; /* who must be at the other end */
};
struct trunk_handlers {
    void (*on_up)(void *ctx);
    void (*on_lost)(void *ctx, const char *why); /* once; the trunk is dead afterwards */
    /* The keeper asks something of this node: answered by trunk_tell(), now or later.  Whoever was
     * asked before a trunk was lost need not answer any more. */
    void (*on_ask)(void *ctx, uint32_t number, struct str question); /* NULL: nobody answers */
    void (*on_unask)(void *ctx, uint32_t number);
};
/* While it is up, whoever connects to @s is carried, but for what is asked of this process itself
 * (trunk_is_ours()).  One at a time; never fails at once. */
struct trunk *trunk_open(struct loop *loop, struct http_server *s, const struct trunk_dial *d,
                         const struct trunk_handlers *h, void *ctx);
bool trunk_is_up(const struct trunk *t);
size_t trunk_connections(const struct trunk *t);
/* Have the keeper end what is carried in good order: WebSockets with 1012. */
void trunk_leave(struct trunk *t);
void trunk_tell(struct trunk *t, uint32_t number, struct str answer);
void trunk_free(struct trunk *t); /* cuts what it carries; no handler runs; NULL is fine */

/* While there is no trunk, whoever would be carried waits for one for so long before it is handled
 * here; 0: not at all, and those that wait are handled now. */
void trunk_hold(struct http_server *s, int64_t ms);

/* Is a request that begins with these bytes for the process that it reached, whoever serves? */
bool trunk_is_ours(struct str head);
