/* server_store.c - the store of a server, and waiting for the right to use it.
 *
 * A file belongs to whoever opens it.  A PostgreSQL is shared: one process serves and the others
 * stand by (cluster/node.h).  Who stands by answers /healthz and /readyz, refuses the rest as busy,
 * and has nothing in memory; when it may serve, the database is opened anew, so that it gets a boot
 * number above everybody's before it, and everything is read from it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/log.h"
#include "cli/notify.h"
#include "cli/server.h"
#include "cli/settings.h"
#include "cli/state_dir.h"
#include "cluster/node.h"
#include "net/loop.h"
#include "store/postgres/postgres.h"
#include "store/sqlite/sqlite.h"

enum { TURN_MS = 1000 };

static void on_stop(void *ctx)
{
    struct server *s = ctx;

    s->asked_to_stop = true;
}

static enum bh_err stand_by(struct server *s, char *why)
{
    enum bh_err err;

    s->front = (struct front){.loop = s->loop,
                              .server = s->http_server,
                              .settings = config_get(s->cfg, &front_config),
                              .store = s->store,
                              .node = s->node,
                              .standing_by = true};
    if ((err = server_listen(s, why)) != BH_OK)
        return err;
    node_set_url(s->node, s->settings->public_url);
    printf("bellhop %s stands by: %s serves\n", BELLHOP_VERSION, node_holder(s->node));
    fflush(stdout);
    notify_send("READY=1\nSTATUS=standing by");
    return BH_OK;
}

static enum bh_err wait_until_served(struct server *s, char *why)
{
    enum bh_err err = BH_OK;

    while (err == BH_OK && node_state(s->node) != NODE_SERVING) {
        loop_turn(s->loop, TURN_MS);
        if (s->asked_to_stop)
            return BH_CANCELLED;
        if (!s->front.standing_by && *node_holder(s->node) != '\0' &&
            node_state(s->node) == NODE_WAITING)
            err = stand_by(s, why);
    }
    return err;
}

static enum bh_err open_postgres(struct server *s, const struct store_settings *c, char *why)
{
    enum bh_err err = store_postgres_open(s->loop, c->url, 0, &s->store, why);

    if (err != BH_OK)
        return err;
    loop_on_signal(s->loop, SIGTERM, on_stop, s);
    loop_on_signal(s->loop, SIGINT, on_stop, s);
    s->node = node_open(&(struct node_env){.clock = loop_clock(s->loop),
                                           .store = s->store,
                                           .rand = &s->rand,
                                           .settings = config_get(s->cfg, &cluster_config),
                                           .over = server_lost_lease,
                                           .ctx = s});
    if ((err = wait_until_served(s, why)) != BH_OK)
        return err;
    store_close(s->store);
    s->store = s->front.store = NULL;
    err = store_postgres_open(s->loop, c->url, 0, &s->store, why);
    if (err == BH_OK) {
        node_move(s->node, s->store);
    } else { /* its lease ends by itself */
        node_free(s->node);
        s->node = NULL;
    }
    return err;
}

enum bh_err server_open_store(struct server *s, char *why)
{
    const struct store_settings *c = config_get(s->cfg, &store_config);
    char *key = state_dir_path(s->settings->state_dir, "master.key");
    enum bh_err err;

    if (strcmp(c->kind, "postgres") == 0) {
        err = open_postgres(s, c, why);
    } else {
        char *db = state_dir_path(s->settings->state_dir, "bellhop.db");
        err = store_sqlite_open_with(s->loop, db, c, &s->store, why);
        free(db);
    }
    if (err == BH_OK)
        err = seal_open_for(s->store, str_of(s->settings->master_key), key, &s->seal, why);
    free(key);
    return err;
}
