/* store_config.c - `store:` in the configuration. */
#include <stdio.h>
#include "base/config.h"
#include "store/store.h"

#define AT(member) offsetof(struct store_settings, member)

static const struct config_key keys[] = {
    {"store.kind", CFG_CHOICE, CFG_RESTART, AT(kind), "sqlite", "sqlite|postgres",
     .what = "Where state is kept: `sqlite` is one file in `state_dir`, `postgres` a server that "
             "several processes share."},
    {"store.url", CFG_SECRET, CFG_RESTART, AT(url),
     .what =
         "The PostgreSQL database, as libpq has it: `postgresql://user@host/database` and so on."},
    {"store.reserve", CFG_BYTES, CFG_RESTART, AT(reserve), "64MiB",
     .what =
         "Room on the disk that new messages never get (on a small disk an eighth of it): acks, "
         "deletes and `mailbox purge` work when the rest is full."},
    {"store.max_size", CFG_BYTES, CFG_RESTART, AT(max_bytes), "0",
     .what = "How large the database may become, its reserve included; 0: as the disk allows."},
    {0},
};

static bool check(void *settings, char *ret_why)
{
    const struct store_settings *s = settings;

    if (strcmp(s->kind, "postgres") != 0 || s->url != NULL)
        return true;
    snprintf(ret_why, 256,
             "store.url: a store of kind postgres needs one, like "
             "postgresql://bellhop@127.0.0.1/bellhop");
    return false;
}

const struct config_section store_config = {.keys = keys,
                                            .size = sizeof(struct store_settings),
                                            .check = check};
