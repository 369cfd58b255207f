/* forwarder.h - makes a waiting node an edge of the node that serves: net/trunk.h.
 *
 *      lease holder (node.h) --its record--> its address --trunk_open()--> UP: connections to this
 *         ^                                                     |           node are forwarded
 *         '------ checked every LOOK_MS <-- trunk lost, or another holder --'
 *
 * So a proxy may send a client to any node.  Every answer comes from the lease holder, the one
 * process that has the facts and the mailboxes.  During a failover new requests, and gateways'
 * WebSockets, wait for cluster.lease and HOLD_MS at most.  Without a lease holder this node
 * refuses, as a standby does.
 *
 * cli/server_store.c opens the forwarder while the node is WAITING and cluster.serve is "all". */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/str.h"

#define NODE_DRAIN "drain" /* the question by which the lease holder tells a node to shut down */

struct forwarder_env { /* borrowed for the life of the forwarder */
    struct loop *loop;
    struct http_server *server;
    struct store *store;
    struct node *node; /* in WAITING; the forwarder calls node_set_carrying() */
    const struct cluster_settings *settings;
    const uint8_t *key;    /* TRUNK_KEY_BYTES that all nodes of the cluster share */
    struct redis_hop *hop; /* trunks run over Redis; NULL: they do not */
    /* The lease holder asks this node something, as in trunk.h; forwarder_tell() answers. */
    void (*on_ask)(void *ctx, uint32_t number, struct str question);
    void (*on_unask)(void *ctx, uint32_t number);
    void (*on_lost)(void *ctx); /* the trunk is down: all open questions are void */
    void *ctx;
};

struct forwarder *forwarder_open(const struct forwarder_env *env);
bool forwarder_is_up(const struct forwarder *p); /* connections are forwarded; NULL: false */
/* The number of connections that are forwarded now; 0 for NULL. */
size_t forwarder_connections(const struct forwarder *p);
void forwarder_tell(struct forwarder *p, uint32_t number, struct str answer);
/* This node shuts down: closes the forwarded connections cleanly, WebSockets with 1012. */
void forwarder_leave(struct forwarder *p);
void forwarder_free(struct forwarder *p); /* gateways' WebSockets wait for a heart; NULL is fine */
