/* hands.h - a node that does not serve runs errands to the agents on its machine, for the one that
 * does (elsewhere.c).
 *
 *      the trunk: on_ask() --> hands_take() --> substrate --> told() --> trunk_tell()
 *
 * It knows the entries of `agents:` and nothing else: mail, receipts and replies are where bellhop
 * serves. */
#pragma once
#include <stdint.h>
#include "base/str.h"

struct config;
struct dispatch_env;
struct hands;

typedef void hands_told_cb(void *ctx, uint32_t number, struct str answer);

/* Of @env the loop, the clock, rand, http, the spawner, settings, wake_allow_private and node. */
struct hands *hands_new(const struct dispatch_env *env, const struct config *cfg,
                        hands_told_cb *told, void *ctx);
/* told() is called once for @number, later, unless it is dropped before. */
void hands_take(struct hands *h, uint32_t number, struct str question);
void hands_drop(struct hands *h, uint32_t number); /* nobody waits for it */
void hands_drop_all(struct hands *h);              /* whoever asked is gone */
void hands_free(struct hands *h);                  /* no callback runs any more; NULL is fine */
