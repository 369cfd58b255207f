/* settings.c - `data:` in the configuration. */
#include "base/config.h"
#include "data/data.h"

static const struct config_key keys[] = {
    {"data.node", CFG_TEXT, CFG_RESTART, offsetof(struct data_settings, node),
     .what = "With `store.kind: postgres`: the node (`cluster.node`) that has the data store, the "
             "same on all of them. Without it there is none."},
    {0},
};

const struct config_section data_section = {.keys = keys, .size = sizeof(struct data_settings)};
