/* server_store.c - opens the store of a server; for a shared store, waits for the lease first.
 *
 * A SQLite file belongs to the process that opens it.  A PostgreSQL is shared: the lease holder
 * serves, and the other nodes stand by (cluster/node.h) or forward connections to the holder
 * (cluster/forwarder.h).  A waiting node has no state in memory.  It answers /healthz and /metrics
 * itself, and refuses the rest with 503 when it has no trunk.
 *
 * Once granted the lease, the node opens the database again, which gives it a boot number larger
 * than any before.  Then it loads everything from the database. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/log.h"
#include "base/service.h"
#include "cli/server.h"
#include "cli/settings.h"
#include "cli/cluster_dirs.h"
#include "cluster/node.h"
#include "cluster/forwarder.h"
#include "dispatch/remote.h"
#include "net/http_server.h"
#include "net/http_tls.h"
#include "net/loop.h"
#include "net/redis_hop.h"
#include "net/trunk.h"
#include "store/postgres/postgres.h"
#include "store/sqlite/sqlite.h"

enum {
    TURN_MS = 1000,
    LEAVE_MS = 2500, /* time for forwarded connections to close cleanly */
    LOOK_MS = 20,
};

static void on_stop(void *ctx)
{
    struct server *s = ctx;

    s->asked_to_stop = true;
}

static void on_hangup(void *ctx)
{
    struct server *s = ctx;

    s->asked_to_reload = true;
}

static void on_drain(void *ctx)
{
    struct server *s = ctx;

    s->told_down = s->asked_to_stop = true;
}

/* A lease lost before start-up finished has no handler yet: there is nothing to shut down. */
static void lost_lease(void *ctx, const char *why)
{
    struct server *s = ctx;

    if (s->lost_lease != NULL)
        s->lost_lease(s->lost_ctx, why);
}

static void on_wake(void *ctx)
{
    node_look(((struct server *)ctx)->front.node);
}

/* ---- the other nodes ---- */

static const struct cluster_settings *cluster_of(const struct server *s)
{
    return config_get(s->cfg, &cluster_config);
}

static bool all_serve(const struct server *s)
{
    return s->front.node != NULL && strcmp(cluster_of(s)->serve, "all") == 0;
}

static bool is_wildcard(struct str listen)
{
    return str_starts(listen, STR("0.0.0.0:")) || str_starts(listen, STR("[::]:")) ||
           str_starts(listen, STR("*:")) || str_starts(listen, STR("unix:"));
}

void server_meet_nodes(struct server *s)
{
    const char *address = s->front.node != NULL ? cluster_of(s)->address : NULL;
    struct str listen = str_of(s->settings->listen);
    const struct http_tls *tls = config_get(s->cfg, &tls_config);
    struct buf at = BUF_INIT;

    if (!all_serve(s))
        return;
    trunk_hold(s->front.server, 0); /* connections that waited for a holder are served here */
    trunk_adopt(s->front.server);
    if (s->hop != NULL) {
        trunk_listen(s->front.server, s->hop,
                     &(struct trunk_heart){.key = s->trunk_key,
                                           .name = node_owner(s->front.node),
                                           .admin_tag = front_admin_tag});
        node_set_address(s->front.node, NODE_VIA_REDIS, false);
        return;
    }
    s->front.trunk_key = s->trunk_key;
    if (address == NULL && is_wildcard(listen)) {
        log_warn(NULL, "cluster: listen is a wildcard, so the other nodes do not know where to "
                       "bring their connections, and stand by: set cluster.address");
        return;
    }
    while (address == NULL && listen.n > 0 && listen.p[listen.n - 1] != ':')
        listen.n--;
    if (address != NULL)
        buf_add_z(&at, address);
    else
        buf_printf(&at, "%.*s%d", STR_FMT(listen), http_server_port(s->front.server));
    node_set_address(s->front.node, buf_z(&at), tls->cert != NULL);
    buf_done(&at);
}

/* The check value in the database tells whether this node has the master key of the others. */
static enum bh_err open_seal(struct server *s, char *why)
{
    char *key = state_dir_path(s->settings->state_dir, "master.key");
    enum bh_err err =
        seal_open_for(s->front.store, str_of(s->settings->master_key), key, &s->seal, why);

    free(key);
    if (err == BH_OK)
        seal_mac(s->seal, STR("cluster trunk"), STR(""), s->trunk_key);
    return err;
}

/* Refuses another master key before this node may wait for the lease: with it no node could serve.
 * The first node of a new database writes the check value, so this is asked once more when the
 * lease has been asked for, which is after that write. */
static enum bh_err check_seal(struct server *s, char *why)
{
    enum bh_err err = open_seal(s, why);

    seal_free(s->seal); /* opened again with the store, once this node serves */
    s->seal = NULL;
    return err;
}

/* ---- agents on this machine ---- */

static void on_ask(void *ctx, uint32_t number, struct str question)
{
    struct server *s = ctx;

    if (str_eq(question, STR(NODE_DRAIN)))
        on_drain(s);
    else if (s->runner != NULL)
        runner_take(s->runner, number, question);
    else
        forwarder_tell(s->forwarder, number, STR("")); /* no answer: the lease holder retries */
}

static void on_unask(void *ctx, uint32_t number)
{
    struct server *s = ctx;

    if (s->runner != NULL)
        runner_drop(s->runner, number);
}

static void on_trunk_lost(void *ctx)
{
    struct server *s = ctx;

    if (s->runner != NULL)
        runner_drop_all(s->runner);
}

static void begin_to_carry(struct server *s)
{
    if (!all_serve(s))
        return;
    server_start_runner(s);
    s->forwarder = forwarder_open(&(struct forwarder_env){.loop = s->front.loop,
                                                          .server = s->front.server,
                                                          .store = s->front.store,
                                                          .node = s->front.node,
                                                          .settings = cluster_of(s),
                                                          .key = s->trunk_key,
                                                          .hop = s->hop,
                                                          .on_ask = on_ask,
                                                          .on_unask = on_unask,
                                                          .on_lost = on_trunk_lost,
                                                          .ctx = s});
}

/* Shuts a waiting node down: gives its proxy time to notice, closes the forwarded connections
 * cleanly, and waits for a lease request in flight, so that no grant stays unnoticed. */
static void leave(struct server *s)
{
    struct clock *clock = loop_clock(s->front.loop);
    int64_t until = clock_now_ms(clock) + cluster_of(s)->drain_ms;

    s->asked_to_stop = false; /* asked again: at once */
    http_server_leave(s->front.server);
    node_rests(s->front.node);
    while (forwarder_is_up(s->forwarder) && node_state(s->front.node) == NODE_WAITING &&
           !s->asked_to_stop && clock_now_ms(clock) < until)
        loop_turn(s->front.loop, LOOK_MS);
    until = clock_now_ms(clock) + LEAVE_MS;
    if (s->forwarder != NULL) {
        http_server_drain(s->front.server);
        forwarder_leave(s->forwarder);
    }
    while ((!node_rests(s->front.node) || forwarder_connections(s->forwarder) > 0) &&
           clock_now_ms(clock) < until)
        loop_turn(s->front.loop, LOOK_MS);
}

/* ---- waiting ---- */

static enum bh_err stand_by(struct server *s, char *why)
{
    enum bh_err err = check_seal(s, why);

    if (err != BH_OK)
        return err;
    s->front.drain = on_drain;
    s->front.drain_ctx = s;
    s->front.started_ms = clock_wall_ms(loop_clock(s->front.loop));
    s->front.standing_by = true;
    if ((err = server_listen(s, why)) != BH_OK)
        return err;
    node_set_url(s->front.node, s->settings->public_url);
    printf("bellhop %s stands by: %s serves\n", BELLHOP_VERSION, node_holder(s->front.node));
    fflush(stdout);
    service_tell("READY=1\nSTATUS=standing by");
    begin_to_carry(s);
    return BH_OK;
}

static void reload(struct server *s)
{
    BUF_LOCAL said = BUF_INIT;

    s->asked_to_reload = false;
    (void)server_reload(s, config_path(s->cfg), &said);
    if (s->forwarder != NULL && s->runner == NULL)
        server_start_runner(s); /* it may have agents of this machine now */
}

static enum bh_err wait_until_served(struct server *s, char *why)
{
    enum bh_err err = BH_OK;

    while (err == BH_OK && node_state(s->front.node) != NODE_SERVING) {
        loop_turn(s->front.loop, TURN_MS);
        if (s->asked_to_stop) {
            leave(s);
            return BH_CANCELLED;
        }
        if (s->asked_to_reload && node_state(s->front.node) == NODE_WAITING)
            reload(s);
        if (!s->front.standing_by && *node_holder(s->front.node) != '\0' &&
            node_state(s->front.node) == NODE_WAITING)
            err = stand_by(s, why);
    }
    return err;
}

static enum bh_err open_hop(struct server *s, char *why)
{
    const struct cluster_settings *c = cluster_of(s);

    if (strcmp(c->trunk, "redis") != 0)
        return BH_OK;
    s->hop = redis_hop_open(s->front.loop,
                            &(struct redis_hop_options){.url = c->redis_url,
                                                        .ca = c->redis_ca,
                                                        .key = s->trunk_key,
                                                        .name = node_owner(s->front.node),
                                                        .protocol = TRUNK_PROTOCOL},
                            why);
    s->front.hop = s->hop;
    return s->hop != NULL ? BH_OK : BH_REFUSED;
}

static enum bh_err open_postgres(struct server *s, const struct store_settings *c, char *why)
{
    enum bh_err err = store_postgres_open(s->front.loop, c->url, 0, &s->front.store, why);

    if (err == BH_OK)
        err = check_seal(s, why);
    if (err == BH_OK)
        err = cluster_dirs_check(s->front.loop, s->front.store, &s->rand, s->cfg, why);
    if (err != BH_OK)
        return err;
    loop_on_signal(s->front.loop, SIGTERM, on_stop, s);
    loop_on_signal(s->front.loop, SIGINT, on_stop, s);
    loop_on_signal(s->front.loop, SIGHUP, on_hangup, s);
    s->front.node = node_open(&(struct node_env){.clock = loop_clock(s->front.loop),
                                                 .store = s->front.store,
                                                 .rand = &s->rand,
                                                 .settings = config_get(s->cfg, &cluster_config),
                                                 .over = lost_lease,
                                                 .ctx = s});
    if ((err = open_hop(s, why)) != BH_OK || (err = wait_until_served(s, why)) != BH_OK)
        return err;
    s->renewer =
        lease_renewer_start(c->url,
                            &(struct store_lease){.name = STR(NODE_LEASE),
                                                  .owner = str_of(node_owner(s->front.node)),
                                                  .ttl_ms = cluster_of(s)->lease_ms,
                                                  .epoch = node_epoch(s->front.node)},
                            NODE_START_MS);
    forwarder_free(s->forwarder); /* gateways' sockets wait for server_meet_nodes() */
    s->forwarder = NULL;
    server_stop_runner(s);
    store_close(s->front.store);
    s->front.store = NULL;
    err = store_postgres_open(s->front.loop, c->url, 0, &s->front.store, why);
    if (err == BH_OK) {
        node_move(s->front.node, s->front.store);
        loop_on_wake(s->front.loop, on_wake, s);
    } else { /* the lease expires by itself */
        lease_renewer_stop(&s->renewer);
        node_free(s->front.node);
        s->front.node = NULL;
    }
    return err;
}

enum bh_err server_open_store(struct server *s, char *why)
{
    const struct store_settings *c = config_get(s->cfg, &store_config);
    enum bh_err err;

    if (strcmp(c->kind, "postgres") == 0) {
        err = open_postgres(s, c, why);
    } else {
        char *db = state_dir_path(s->settings->state_dir, "bellhop.db");
        err = store_sqlite_open_with(s->front.loop, db, c, &s->front.store, why);
        free(db);
    }
    return err == BH_OK ? open_seal(s, why) : err;
}
