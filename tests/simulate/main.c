/* simulate - many lives of the heart under trouble, each from one number.
 *
 *      simulate [--shared] [--seeds N] [--from S] [--seed S [--trace]]
 *
 * --shared: on a store that several processes have open.
 *
 * A broken promise prints its seed; `simulate --seed S --trace` replays that very run, step by
 * step. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/hash.h"
#include "base/log.h"
#include "simulate/world.h"

static int usage(void)
{
    fputs("usage: simulate [--shared] [--seeds N] [--from S] | --seed S [--trace]\n", stderr);
    return 2;
}

static int report(uint64_t seed, bool shared, const struct world_result *r)
{
    fprintf(stderr,
            "seed %" PRIu64 " broke a promise after %" PRIu64 " steps: %s\n"
            "replay it with: simulate%s --seed %" PRIu64 " --trace\n",
            seed, r->steps, r->broken, shared ? " --shared" : "", seed);
    return 1;
}

int main(int argc, char **argv)
{
    const char *most = getenv("SIM_SEEDS"); /* a quicker look than the whole */
    uint64_t seeds = 20000, from = 1, one = 0;
    bool trace = false, shared = false;
    struct world_result sum = {0};

    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        if (strcmp(argv[i], "--trace") == 0)
            trace = true;
        else if (strcmp(argv[i], "--shared") == 0)
            shared = true;
        else if (strcmp(argv[i], "--seeds") == 0 && more)
            seeds = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--from") == 0 && more)
            from = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--seed") == 0 && more)
            one = strtoull(argv[++i], NULL, 10);
        else
            return usage();
    }
    if (most != NULL && strtoull(most, NULL, 10) < seeds)
        seeds = strtoull(most, NULL, 10);
    hash_set_process_key(
        (struct hash_key){.k0 = 1, .k1 = 1}); /* one seed, one run: maps included */
    log_setup(trace ? LOG_DEBUG : LOG_ERROR, false);
    if (one != 0) {
        struct world_result r = world_run(one, shared, trace);
        if (r.ok)
            printf("seed %" PRIu64 " keeps every promise: %" PRIu64 " steps\n", one, r.steps);
        return r.ok ? 0 : report(one, shared, &r);
    }
    time_t start = time(NULL);
    for (uint64_t seed = from; seed < from + seeds; seed++) {
        struct world_result r = world_run(seed, shared, false);
        if (!r.ok)
            return report(seed, shared, &r);
        sum.steps += r.steps;
        sum.checks += r.checks;
        sum.sends += r.sends;
        sum.crashes += r.crashes;
        sum.pokes += r.pokes;
        sum.sleeps += r.sleeps;
        sum.repeats += r.repeats;
        sum.endings += r.endings;
        sum.vigils += r.vigils;
        sum.jumps += r.jumps;
    }
    printf("%" PRIu64 " seeds kept every promise in %ld s: %" PRIu64 " steps, %" PRIu64
           " checks, %" PRIu64 " frames, %" PRIu64 " crashes, %" PRIu64 " pokes, %" PRIu64
           " sleeps, %" PRIu64 " repeats, %" PRIu64 " names given up, %" PRIu64
           " sleepers poked after a restart, %" PRIu64 " clock jumps\n",
           seeds, (long)(time(NULL) - start), sum.steps, sum.checks, sum.sends, sum.crashes,
           sum.pokes, sum.sleeps, sum.repeats, sum.endings, sum.vigils, sum.jumps);
    return 0;
}
