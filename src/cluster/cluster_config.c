/* cluster_config.c - `cluster:` in the configuration. */
#include <stdio.h>
#include "base/config.h"
#include "cluster/node.h"

#define AT(member) offsetof(struct cluster_settings, member)

static const struct config_key keys[] = {
    {"cluster.node", CFG_TEXT, CFG_RESTART, AT(node),
     .what = "What this process is called among those on one PostgreSQL; without it, the name of "
             "the machine."},
    {"cluster.lease", CFG_DURATION, CFG_RESTART, AT(lease_ms), "5s", .min = 1000, .max = 60000,
     .what = "How long the process that serves may be out of reach of the database before another "
             "one takes over; the same on all of them."},
    {0},
};

static bool check(void *settings, char *ret_why)
{
    struct str name = str_of(((const struct cluster_settings *)settings)->node);
    bool ok = name.n <= NODE_NAME_BYTES;

    for (size_t i = 0; i < name.n; i++)
        ok &= (unsigned char)name.p[i] > ' ' && (unsigned char)name.p[i] < 0x7f;
    if (ok)
        return true;
    snprintf(ret_why, 256, "cluster.node: expected up to %d printable characters without blanks",
             NODE_NAME_BYTES);
    return false;
}

const struct config_section cluster_config = {.keys = keys,
                                              .size = sizeof(struct cluster_settings),
                                              .check = check};
