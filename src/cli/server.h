/* server.h - every object of a running bellhop, built in order and taken down in reverse. */
#pragma once
#include "base/clock.h"
#include "base/confine.h"
#include "base/rand.h"
#include "edge/vault.h"
#include "http/front.h"
#include "http/waker.h"
#include "platform/platform.h"

struct observers;
struct config;
struct door;
struct facts;
struct data;
struct dispatch;
struct spawner;
struct idp;
struct keys;
struct ledger;
struct mcp;
struct node;
struct porter;
struct media;
struct skills;
struct seal;

struct server { /* all owned */
    struct config *cfg;
    const struct settings *settings; /* in cfg */
    struct loop *loop;
    struct ledger *ledger;
    struct store *store;
    struct node *node;     /* NULL: the store is ours alone */
    struct porter *porter; /* while another one serves, if cluster.serve is all */
    struct runner *runner; /* the same, for agents on this machine; NULL: there are none */
    uint8_t trunk_key[32]; /* what nodes prove to each other; wiped */
    struct seal *seal;
    struct observers *observers;
    struct rand rand;
    struct facts *facts;
    struct keys *keys;
    struct skills *skills;
    struct data *data;
    struct dispatch *dispatch;
    struct spawner *spawner;
    struct mcp *mcp;
    struct media *media;
    struct vault *vault;
    struct vault_tenants tenants; /* what it asks the facts */
    struct http_client *http;
    struct http_waker waker;
    struct idp *idp;
    struct http_server *http_server;
    struct host *host;
    struct door *door;
    struct relay *relay;
    struct host_env host_env;
    struct front front;
    struct confined confined;
    bool listening, asked_to_stop;
    void (*lost_lease)(void *ctx, const char *why); /* set by the caller when it runs */
    void *lost_ctx;
    /* http(s)://..., no slash at its end; NULL: a Unix socket without a public_url. */
    char *base_url;
};

/* Takes @cfg over.  On failure everything is taken down again and @ret_why (512 bytes) says what to
 * fix. */
enum bh_err server_open(struct server *s, struct config *cfg, char *ret_why) BH_MUST_USE;
/* For server_open(). */
enum bh_err server_open_store(struct server *s, char *why); /* BH_CANCELLED: told to stop */
enum bh_err server_listen(struct server *s, char *why);     /* once */
void server_lost_lease(void *ctx, const char *why);
/* The store and the port are there: other nodes are told where, and may come. */
void server_meet_nodes(struct server *s);
/* While another one serves: for agents on this machine, if there are any. */
void server_start_runner(struct server *s);
void server_stop_runner(struct server *s);
void server_close(struct server *s); /* writes what is queued; the loop does not run any more */
/* Take over what the new configuration allows, or nothing; @now is consumed.  Says what happened in
 * words. */
enum bh_err server_reload(struct server *s, struct config *now, struct buf *ret_said);
