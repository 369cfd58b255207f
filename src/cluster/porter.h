/* porter.h - a node that does not serve takes connections all the same, and carries them to the one
 * that does.
 *
 *      who serves (node.h) --its record--> its address --trunk_open()--> UP: everybody who connects
 *         ^                                                   |              here is carried there
 *         '------ looked at again every LOOK_MS <-- lost, or another one serves --'
 *
 * So every node answers everything, whichever a proxy picks; what a client is told was decided
 * where the facts and the mailboxes are, in one process under one lease.  While another one takes
 * the lease over, who connects waits a little; where there is nobody to carry to, this node refuses
 * as one that stands by. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/str.h"

struct cluster_settings;
struct http_server;
struct loop;
struct node;
struct porter;
struct store;

#define NODE_DRAIN "drain" /* what the one that serves says to a node that shall go */

struct porter_env { /* borrowed for the life of the porter */
    struct loop *loop;
    struct http_server *server;
    struct store *store;
    struct node *node; /* in WAITING; it is told whether we carry */
    const struct cluster_settings *settings;
    /* TRUNK_KEY_BYTES that all nodes of the cluster know: asked for once, when there is somebody to
     * dial; may block.  False: there is none, and why (256 bytes). */
    bool (*key)(void *ctx, uint8_t *ret_key, char *ret_why);
    /* As in trunk.h: the one that serves asks something of this node; porter_tell() answers. */
    void (*on_ask)(void *ctx, uint32_t number, struct str question);
    void (*on_unask)(void *ctx, uint32_t number);
    void (*on_lost)(void *ctx); /* nobody waits for answers any more */
    void *ctx;
};

struct porter *porter_open(const struct porter_env *env);
/* Connections that are carried now. */
size_t porter_connections(const struct porter *p);
void porter_tell(struct porter *p, uint32_t number, struct str answer);
/* This node goes: what is carried ends in good order, WebSockets with 1012. */
void porter_leave(struct porter *p);
void porter_free(struct porter *p); /* cuts what it carries; NULL is fine */
