/* server_dispatch.c - the agents of the configuration, wired to the rest. */
#include "base/config.h"
#include "cli/server.h"
#include "cli/settings.h"
#include "cluster/node.h"
#include "cluster/porter.h"
#include "dispatch/dispatch.h"
#include "dispatch/remote.h"
#include "host/host.h"
#include "http/waker.h"
#include "net/http_client.h"
#include "net/loop.h"
#include "net/spawner.h"
#include "relay/upkeep.h"

static void act_on_mail(void *ctx, struct action_id id, const struct action_from *from,
                        const struct action *a)
{
    dispatch_act(ctx, id, from, a);
}

enum bh_err server_open_dispatch(struct server *s, char *why)
{
    const struct wake_settings *wake = config_get(s->cfg, &wake_config);
    struct dispatch_env de = {.loop = s->loop,
                              .clock = loop_clock(s->loop),
                              .store = s->store,
                              .rand = &s->rand,
                              .facts = s->facts,
                              .relay = s->relay,
                              .http = s->http,
                              .spawner = s->spawner,
                              .ledger = s->ledger,
                              .retention_ms = &s->host_env.retention_ms,
                              .settings = config_get(s->cfg, &dispatch_config),
                              .wake_allow_private = &wake->allow_private,
                              .node = s->node != NULL ? node_name(s->node) : NULL,
                              .server = s->http_server};
    relay_retain(s->relay, s->settings->retention_ms);
    if (s->spawner != NULL)
        spawner_watch(s->spawner, s->loop);
    enum bh_err err = dispatch_open(&de, s->cfg, &s->dispatch, why);

    if (err == BH_OK)
        host_set_mail(s->host, &dispatch_outlet, act_on_mail, s->dispatch);
    return err;
}

/* ---- while another node serves ---- */

static void on_told(void *ctx, uint32_t number, struct str answer)
{
    struct server *s = ctx;

    porter_tell(s->porter, number, answer);
}

void server_start_runner(struct server *s)
{
    const struct wake_settings *wake = config_get(s->cfg, &wake_config);
    struct dispatch_env de = {.loop = s->loop,
                              .clock = loop_clock(s->loop),
                              .rand = &s->rand,
                              .spawner = s->spawner,
                              .settings = config_get(s->cfg, &dispatch_config),
                              .wake_allow_private = &wake->allow_private,
                              .node = node_name(s->node)};

    if (!dispatch_names_node(s->cfg, de.node))
        return;
    if (s->spawner != NULL)
        spawner_watch(s->spawner, s->loop);
    de.http = s->http = http_client_new(s->loop);
    s->runner = runner_new(&de, s->cfg, on_told, s);
}

void server_stop_runner(struct server *s)
{
    if (s->runner == NULL)
        return;
    runner_free(s->runner);
    s->runner = NULL;
    http_client_free(s->http);
    s->http = NULL;
}
