/* spawned.h - an errand that a program does: what exec and tmux share.
 *
 * Programs are run by the spawner (net/spawner.h), which knows those of the configuration it was
 * started with; one that a reload brought fails, and says that a restart is needed. */
#pragma once
#include "dispatch/substrate.h"

struct recipient;
struct spawn_end;

struct spawned_order {
    const char *const *argv; /* as it was told to the spawner */
    const char *const *more; /* arguments behind it, NULL at the end; NULL: none */
    struct str input;
    int64_t timeout_ms;
    /* Nobody is there, by what the program said; NULL: that cannot be told. */
    bool (*is_away)(struct str errors);
    bool look;   /* only whether it could be run */
    bool answer; /* what it prints is wanted: it must be a text, and not too long */
};
/* Done: the text is what it printed, if that is wanted. */
struct errand_job *spawned_run(struct recipient *a, const struct spawned_order *o, errand_cb *done,
                               void *ctx);
