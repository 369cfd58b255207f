/* bus_config.c - `bus:` in the configuration. */
#include "base/config.h"
#include "bus/bus.h"

#define AT(member) offsetof(struct bus_settings, member)

static const struct config_key keys[] = {
    {"bus.kind", CFG_CHOICE, CFG_RESTART, AT(kind), "local", "local", "redis",
     .what = "How processes tell each other news: `local` is for one process."},
    {"bus.url", CFG_SECRET, CFG_RESTART, AT(url), .what = "For buses that are servers."},
    {0},
};
const struct config_section bus_config = {.keys = keys, .size = sizeof(struct bus_settings)};
