/* world.h - everything around the heart, driven by one seed: gateways that connect, stall, freeze,
 * go idle and die, a store that commits in pieces, fails and crashes, pokes that fail, a platform
 * that repeats itself.
 *
 * world_run() takes one seed through its life: steps of trouble, then peace, in which everything
 * that was promised must arrive. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct world_result {
    bool ok;
    char broken[256];
    uint64_t steps, checks, sends, crashes, pokes, sleeps, repeats;
    uint64_t endings;               /* names given up */
    uint64_t bursts;                /* frames with several messages */
    uint64_t cuts, presented;       /* trunks; sockets that outlived their heart */
    uint64_t last_calls;            /* frames sent between going_idle and its ack */
    uint64_t vigils, jumps;         /* sleepers watched after a restart; the wall clock was set */
    uint64_t grants, freezes, late; /* leases; processes stopped; ... for longer than theirs */
};

struct world_plan {
    uint64_t seed;
    bool shared;    /* on a store that several processes share */
    unsigned nodes; /* so many processes at once, one of them under a lease; 0: one, without */
    bool trace;     /* print every step to stderr */
};
struct world_result world_run(const struct world_plan *p);
