/* server.h - the objects of a running bellhop: server_open() builds them in order, server_close()
 * takes them down.
 *
 * serve.c calls server_open(), runs the loop, and calls server_close().  server_store.c opens the
 * store and waits for the lease of a shared one. */
#pragma once
#include "base/confine.h"
#include "base/rand.h"
#include "edge/vault.h"
#include "http/front.h"
#include "http/waker.h"
#include "platform/platform.h"

struct server { /* all owned */
    struct config *cfg;
    const struct settings *settings; /* in cfg */
    struct lease_renewer *renewer;   /* renews the lease while the server starts; else NULL */
    struct forwarder
        *forwarder;        /* while another node serves and cluster.serve is "all"; else NULL */
    struct runner *runner; /* runs agents of this machine while another node serves; NULL: none */
    uint8_t trunk_key[32]; /* the secret that nodes prove to each other; wiped */
    struct redis_hop *hop; /* trunks over Redis; NULL: there are none */
    struct seal *seal;
    struct observers *observers;
    struct rand rand;
    struct spawner *spawner;
    char *local_url;         /* where gateways on this machine dial; NULL: nowhere */
    struct journal *journal; /* owned */
    struct vault *vault;
    struct vault_tenants tenants; /* the vault's view of the facts */
    struct http_client *http;
    struct http_waker waker;
    struct host_env host_env;
    struct front front; /* the objects that requests reach */
    struct confined confined;
    bool listening, asked_to_stop;
    bool asked_to_reload; /* by a signal, before it served */
    bool told_down;       /* by `node drain`: it stays down; kept by server_close() */
    void (*lost_lease)(void *ctx, const char *why); /* set by serve.c before the loop runs */
    void *lost_ctx;
};

/* Takes ownership of @cfg.  On failure everything is closed again, and @ret_why (512 bytes) says
 * what to fix. */
enum bh_err server_open(struct server *s, struct config *cfg, char *ret_why) BH_MUST_USE;
/* Parts of server_open(), shared by server.c and server_store.c. */
enum bh_err server_open_store(struct server *s, char *why); /* BH_CANCELLED: a signal said stop */
enum bh_err server_listen(struct server *s, char *why);     /* called once */
/* Publishes the address of this node and accepts trunks; called once the node listens. */
void server_meet_nodes(struct server *s);
/* Runs the agents of this machine, if any, while another node serves. */
void server_start_runner(struct server *s);
void server_stop_runner(struct server *s);
/* Everything is on disk and nobody waits for an answer: ends what acts by itself, and releases the
 * lease behind all writes.  Until server_close() sockets are left, and requests are refused. */
void server_part(struct server *s);
void server_close(struct server *s); /* commits queued writes; the loop must not run any more */
/* Reads the configuration at @path (as in settings_load()) again and applies the settings that may
 * change at run time, all or nothing.  Appends sentences that say what changed, and logs them. */
enum bh_err server_reload(struct server *s, const char *path, struct buf *ret_said);
