/* redis.h - the bus on a Redis or Valkey server, between the processes of a cluster.
 *
 *      publish ──> ourselves, when the turn ends (a local bus inside: nothing of ours is ever lost)
 *              '─> PUBLISH prefix:topic "origin message" ──> server ──> everybody but ourselves
 *
 * Two connections, because one that subscribes can do nothing else: redis_line.h.  While the
 * server is away nothing waits for it: what is published then is heard here and nowhere else, and
 * when we hear again everybody who asked is told that something may have been missed. */
#pragma once
#include "bus/bus.h"

enum { BUS_REDIS_MAX_MESSAGE = 8 << 20 }; /* longer ones are heard here only */

/* See bus_open().  Never waits. */
enum bh_err bus_redis_open(struct loop *loop, const struct bus_settings *settings,
                           struct bus **ret_b, char *ret_why) BH_MUST_USE;
bool bus_redis_url_ok(const char *url, char *ret_why); /* 256 bytes */
