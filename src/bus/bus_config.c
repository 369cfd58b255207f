/* bus_config.c - `bus:` in the configuration, and the bus it asks for. */
#include <stdio.h>
#include "base/config.h"
#include "bus/bus.h"
#include "bus/redis/redis.h"
#include "net/loop.h"

#define AT(member) offsetof(struct bus_settings, member)

static const struct config_key keys[] = {
    {"bus.kind", CFG_CHOICE, CFG_RESTART, AT(kind), "local", "local|redis",
     .what =
         "How processes tell each other news: `local` is for one process, `redis` for several."},
    {"bus.url", CFG_SECRET, CFG_RESTART, AT(url),
     .what = "The Redis or Valkey server: `redis://[user:password@]host[:6379][/0]`, `rediss://` "
             "with TLS, or `unix:/path`."},
    {"bus.prefix", CFG_TEXT, CFG_RESTART, AT(prefix), "bellhop",
     .what = "Before the name of every channel: each cluster on one server needs its own."},
    {"bus.ca", CFG_TEXT, CFG_RESTART, AT(ca),
     .what = "File with the authorities (PEM) that may vouch for a `rediss://` server; without it "
             "the system's."},
    {0},
};

static bool check(void *settings, char *ret_why)
{
    const struct bus_settings *s = settings;
    bool redis = strcmp(s->kind, "redis") == 0;

    if (redis && s->url == NULL) {
        snprintf(ret_why, 256,
                 "bus.url: a bus of kind redis needs one, like "
                 "redis://127.0.0.1:6379");
        return false;
    }
    return !redis || bus_redis_url_ok(s->url, ret_why);
}

const struct config_section bus_config = {.keys = keys,
                                          .size = sizeof(struct bus_settings),
                                          .check = check};

enum bh_err bus_open(struct loop *loop, const struct bus_settings *s, struct bus **ret_b,
                     char *ret_why)
{
    if (strcmp(s->kind, "redis") == 0)
        return bus_redis_open(loop, s, ret_b, ret_why);
    *ret_b = bus_local_new(loop_clock(loop));
    return BH_OK;
}
