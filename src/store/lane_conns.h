/* lane_conns.h - the connections of one thread of the lanes, by key; the least recently used are
 * closed beyond a bound.  For lanes.c. */
#pragma once
#include "base/list.h"
#include "base/map.h"
#include "store/lanes.h"

struct lane_conns {
    const struct lanes_config *cfg; /* borrowed */
    bool writer;
    uint64_t *open;     /* borrowed; atomic: how many all threads have */
    struct map by_key;  /* struct lane_conn, private */
    struct list recent; /* the same, least recently used first */
};

void lane_conns_init(struct lane_conns *c, const struct lanes_config *cfg, bool writer,
                     uint64_t *open);
/* Opened when it is not there; NULL: @ret_why, 256 bytes. */
void *lane_conns_get(struct lane_conns *c, struct str key, char *ret_why);
void lane_conns_close(struct lane_conns *c);
