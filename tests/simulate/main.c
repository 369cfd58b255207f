/* simulate - many lives of the heart under trouble, each from one number.
 *
 *      simulate [--shared | --nodes N] [--seeds N] [--from S] [--seed S [--trace]] [--caught]
 *
 * --shared: on a store that several processes have open.  --nodes: so many of them at once.
 * --caught: for a mutant (mutants.txt), which must break a promise.
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
    fputs("usage: simulate [--shared | --nodes N] [--seeds N] [--from S] [--caught] | --seed S "
          "[--trace]\n",
          stderr);
    return 2;
}

static int report(const struct world_plan *p, const struct world_result *r)
{
    char nodes[32] = "";
    if (p->nodes > 0)
        snprintf(nodes, sizeof nodes, " --nodes %u", p->nodes);
    fprintf(stderr,
            "seed %" PRIu64 " broke a promise after %" PRIu64 " steps: %s\n"
            "replay it with: simulate%s%s --seed %" PRIu64 " --trace\n",
            p->seed, r->steps, r->broken, p->shared ? " --shared" : "", nodes, p->seed);
    return 1;
}

static void add(struct world_result *sum, const struct world_result *r)
{
    sum->steps += r->steps;
    sum->checks += r->checks;
    sum->sends += r->sends;
    sum->crashes += r->crashes;
    sum->pokes += r->pokes;
    sum->sleeps += r->sleeps;
    sum->repeats += r->repeats;
    sum->last_calls += r->last_calls;
    sum->endings += r->endings;
    sum->bursts += r->bursts;
    sum->cuts += r->cuts;
    sum->presented += r->presented;
    sum->vigils += r->vigils;
    sum->jumps += r->jumps;
    sum->grants += r->grants;
    sum->freezes += r->freezes;
    sum->late += r->late;
}

static void print(const struct world_result *sum, uint64_t seeds, time_t took_s)
{
    printf("%" PRIu64 " seeds kept every promise in %ld s: %" PRIu64 " steps, %" PRIu64
           " checks, %" PRIu64 " frames, %" PRIu64 " crashes, %" PRIu64 " pokes, %" PRIu64
           " sleeps, %" PRIu64 " frames before their acks, %" PRIu64 " repeats, %" PRIu64
           " names given up, %" PRIu64 " sleepers poked after a restart, %" PRIu64
           " clock jumps, %" PRIu64 " bursts",
           seeds, (long)took_s, sum->steps, sum->checks, sum->sends, sum->crashes, sum->pokes,
           sum->sleeps, sum->last_calls, sum->repeats, sum->endings, sum->vigils, sum->jumps,
           sum->bursts);
    if (sum->grants > 0)
        printf(", %" PRIu64 " leases, %" PRIu64 " processes frozen, %" PRIu64
               " of them for longer than a lease, %" PRIu64 " trunks cut, %" PRIu64
               " sockets presented again",
               sum->grants, sum->freezes, sum->late, sum->cuts, sum->presented);
    puts("");
}

static int run_all(struct world_plan plan, uint64_t seeds, bool caught)
{
    struct world_result sum = {0};
    time_t start = time(NULL);
    for (uint64_t i = 0; i < seeds; i++, plan.seed++) {
        struct world_result r = world_run(&plan);
        if (!r.ok && caught) {
            printf("caught by seed %" PRIu64 ": %s\n", plan.seed, r.broken);
            return 0;
        }
        if (!r.ok)
            return report(&plan, &r);
        add(&sum, &r);
    }
    if (caught)
        fprintf(stderr, "the mutant survived %" PRIu64 " seeds\n", seeds);
    else
        print(&sum, seeds, time(NULL) - start);
    return caught;
}

int main(int argc, char **argv)
{
    const char *most = getenv("SIM_SEEDS"); /* a quicker look than the whole */
    uint64_t seeds = 20000, one = 0;
    struct world_plan plan = {.seed = 1};
    bool caught = false;

    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        if (strcmp(argv[i], "--trace") == 0)
            plan.trace = true;
        else if (strcmp(argv[i], "--shared") == 0)
            plan.shared = true;
        else if (strcmp(argv[i], "--caught") == 0)
            caught = true;
        else if (strcmp(argv[i], "--nodes") == 0 && more)
            plan.nodes = (unsigned)strtoul(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--seeds") == 0 && more)
            seeds = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--from") == 0 && more)
            plan.seed = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--seed") == 0 && more)
            one = strtoull(argv[++i], NULL, 10);
        else
            return usage();
    }
    if (most != NULL && strtoull(most, NULL, 10) < seeds && !caught)
        seeds = strtoull(most, NULL, 10);
    hash_set_process_key(
        (struct hash_key){.k0 = 1, .k1 = 1}); /* one seed, one run: maps included */
    log_setup(plan.trace ? LOG_DEBUG : LOG_ERROR, false);
    if (one == 0) {
        plan.trace = false;
        return run_all(plan, seeds, caught);
    }
    plan.seed = one;
    struct world_result r = world_run(&plan);
    if (r.ok)
        printf("seed %" PRIu64 " keeps every promise: %" PRIu64 " steps\n", one, r.steps);
    return r.ok ? 0 : report(&plan, &r);
}
