/* remote.h - a node that does not serve runs errands to the agents on its machine, for the node
 * that serves.
 *
 *      the trunk: on_ask() --> runner_take() --> substrate --> told() --> trunk_tell()
 *
 * The runner knows the entries of `agents:` and nothing else: mail, receipts and replies are on the
 * node that serves. */
#pragma once
#include <stdint.h>
#include "base/str.h"

struct config;
struct dispatch_env;
struct runner;

typedef void runner_told_cb(void *ctx, uint32_t number, struct str answer);

/* Of @env the loop, the clock, rand, http, the spawner, settings, wake_allow_private and node. */
struct runner *runner_new(const struct dispatch_env *env, const struct config *cfg,
                          runner_told_cb *told, void *ctx);
/* told() is called once for @number, later, unless it is dropped before. */
void runner_take(struct runner *h, uint32_t number, struct str question);
void runner_drop(struct runner *h, uint32_t number); /* nobody waits for it */
void runner_drop_all(struct runner *h);              /* whoever asked is gone */
void runner_free(struct runner *h);                  /* no callback runs any more; NULL is fine */
