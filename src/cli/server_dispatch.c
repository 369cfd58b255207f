/* server_dispatch.c - the agents of the configuration, wired to the rest. */
#include "base/config.h"
#include "cli/server.h"
#include "cli/settings.h"
#include "dispatch/dispatch.h"
#include "host/host.h"
#include "http/waker.h"
#include "net/loop.h"
#include "net/spawner.h"
#include "relay/retain.h"

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
                              .wake_allow_private = &wake->allow_private};
    relay_retain(s->relay, s->settings->retention_ms);
    if (s->spawner != NULL)
        spawner_watch(s->spawner, s->loop);
    enum bh_err err = dispatch_open(&de, s->cfg, &s->dispatch, why);

    if (err == BH_OK)
        host_set_mail(s->host, &dispatch_outlet, act_on_mail, s->dispatch);
    return err;
}
