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
    {"cluster.serve", CFG_CHOICE, CFG_RESTART, AT(serve), "all", .choices = "all|one",
     .what = "`all`: processes that do not hold the lease take connections all the same and carry "
             "them to the one that does; `one`: they refuse until it is their turn."},
    {"cluster.address", CFG_TEXT, CFG_RESTART, AT(address),
     .what = "`host:port` by which the other nodes reach this one; without it, `listen`, unless "
             "that is a wildcard."},
    {"cluster.ca", CFG_TEXT, CFG_RESTART, AT(ca),
     .what = "File with the authorities (PEM) that may vouch for the other nodes where `tls` is "
             "configured; without it the system's."},
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
