/* remote.h - runs errands to the agents of this machine while another node serves.
 *
 *      the trunk: on_ask() --> runner_take() --> substrate --> told() --> trunk_tell()
 *
 * cli/server.c makes the runner.  The runner owns a table of agents and the errands under
 * way.  It has no mail, receipts or replies: those are on the node that serves. */
#pragma once
#include <stdint.h>
#include "base/str.h"

struct config;
struct dispatch_env;

typedef void runner_told_cb(void *ctx, uint32_t number, struct str answer);

/* Uses only loop, clock, rand, http, spawner, settings, wake_allow_private and node of @env. */
struct runner *runner_new(const struct dispatch_env *env, const struct config *cfg,
                          runner_told_cb *told, void *ctx);
/* Starts an errand.  told() runs once for @number, later, unless the errand is dropped first. */
void runner_take(struct runner *h, uint32_t number, struct str question);
/* Takes the agents of @cfg, which is borrowed until then, once no errand is under way. */
void runner_reload(struct runner *h, const struct config *cfg);
void runner_drop(struct runner *h, uint32_t number); /* cancels one errand */
void runner_drop_all(struct runner *h);              /* cancels all: the trunk was lost */
void runner_free(struct runner *h);                  /* told() runs no more; NULL is fine */
