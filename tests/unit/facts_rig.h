/* Facts on a store in memory, under a clock that a test moves: what tests of modules that look at
 * facts begin with. A test keeps it in its own rig as @f.
 *
 *      facts_rig_open(&r->f);      clock, store, observers, seal and facts, at 1000 ms and NOW_MS
 *      facts_rig_pass(&r->f, ms);  time goes on, and everything due happens
 *      facts_rig_done(&r->f);      after the test's own modules are gone */
#pragma once

#include "unit.h"
#include "base/clock.h"
#include "base/rand.h"
#include "base/observers.h"
#include "store/memory/memory.h"
#include "tenancy/facts.h"

#define NOW_MS 1800000000000

struct facts_rig {
    struct clock *clock;
    struct store *store;
    struct observers *observers;
    struct rand rand;
    struct seal *seal;
    struct facts *facts;
    int64_t passed_ms;
};

static inline void facts_rig_turn(struct facts_rig *f)
{
    for (int i = 0; i < 12; i++)
        clock_turn(f->clock);
}

static inline void facts_rig_pass(struct facts_rig *f, int64_t ms)
{
    f->passed_ms += ms;
    clock_set(f->clock, 1000 + f->passed_ms, NOW_MS + f->passed_ms);
    facts_rig_turn(f);
}

/* Opens the facts again, from the store alone; @ret_why: 256 bytes. */
static inline enum bh_err facts_rig_try(struct facts_rig *f, char *ret_why)
{
    struct facts_env env = {.clock = f->clock,
                            .store = f->store,
                            .observers = f->observers,
                            .rand = &f->rand,
                            .seal = f->seal};

    facts_free(f->facts);
    f->facts = NULL;
    return facts_open(&env, &f->facts, ret_why);
}

static inline void facts_rig_reopen(struct facts_rig *f)
{
    char why[256] = "";

    if (facts_rig_try(f, why) != BH_OK)
        fail_msg("%s", why);
}

static inline void facts_rig_open(struct facts_rig *f)
{
    char why[256];

    f->clock = clock_new();
    clock_set(f->clock, 1000, NOW_MS);
    f->store = store_memory_new(f->clock);
    f->observers = observers_new(f->clock);
    f->rand = rand_seeded(7);
    assert_int_equal(seal_open_master(STR("a passphrase of some length"), STR("salt"), NULL,
                                      &f->seal, why),
                     BH_OK);
    facts_rig_reopen(f);
}

/* What asked the store may go after this, and before facts_rig_done(). */
static inline void facts_rig_close_store(struct facts_rig *f)
{
    store_close(f->store);
    f->store = NULL;
}

static inline void facts_rig_done(struct facts_rig *f)
{
    if (f->store != NULL)
        facts_rig_close_store(f);
    facts_free(f->facts);
    observers_free(f->observers);
    seal_free(f->seal);
    clock_free(f->clock);
}
