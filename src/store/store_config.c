/* store_config.c - `store:` in the configuration. */
#include "base/config.h"
#include "store/store.h"

#define AT(member) offsetof(struct store_settings, member)

static const struct config_key keys[] = {
    {"store.kind", CFG_CHOICE, CFG_RESTART, AT(kind), "sqlite", "sqlite", "postgres",
     .what = "Where state is kept: `sqlite` is one file in `state_dir`."},
    {"store.url", CFG_SECRET, CFG_RESTART, AT(url), .what = "For stores that are servers."},
    {0},
};
const struct config_section store_config = {.keys = keys, .size = sizeof(struct store_settings)};
