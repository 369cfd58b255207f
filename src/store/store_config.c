/* store_config.c - `store:` in the configuration. */
#include "base/config.h"
#include "store/store.h"

#define AT(member) offsetof(struct store_settings, member)

static const struct config_key keys[] = {
    {"store.kind", CFG_CHOICE, CFG_RESTART, AT(kind), "sqlite", "sqlite", "postgres",
     .what = "Where state is kept: `sqlite` is one file in `state_dir`."},
    {"store.url", CFG_SECRET, CFG_RESTART, AT(url), .what = "For stores that are servers."},
    {"store.reserve", CFG_BYTES, CFG_RESTART, AT(reserve), "64MiB",
     .what =
         "Room on the disk that new messages never get (on a small disk an eighth of it): acks, "
         "deletes and `mailbox purge` work when the rest is full."},
    {"store.max_size", CFG_BYTES, CFG_RESTART, AT(max_bytes), "0",
     .what = "How large the database may become, its reserve included; 0: as the disk allows."},
    {0},
};
const struct config_section store_config = {.keys = keys, .size = sizeof(struct store_settings)};
