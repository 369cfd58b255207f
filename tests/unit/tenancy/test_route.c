/* Promises of tenancy/facts.h, with real facts and for every platform of the build. */
#include "unit.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rand.h"
#include "base/observers.h"
#include "platform/platform.h"
#include "store/memory/memory.h"
#include "tenancy/facts.h"

static struct clock *clk;
static struct store *store;
static struct observers *observers;
static struct seal *seal;
static struct facts *facts;
static struct rand chance;

static int setup(void **state)
{
    char why[256];

    clk = clock_new();
    clock_set(clk, 1000, 1800000000000);
    store = store_memory_new(clk);
    observers = observers_new(clk);
    chance = rand_seeded(7);
    assert_int_equal(seal_open_master(STR("a passphrase of some length"), STR("salt"), NULL, &seal,
                                      why),
                     BH_OK);
    struct facts_env env = {
        .clock = clk, .store = store, .observers = observers, .rand = &chance, .seal = seal};
    assert_int_equal(facts_open(&env, &facts, why), BH_OK);
    return 0;
}

static int teardown(void **state)
{
    store_close(store);
    facts_free(facts);
    observers_free(observers);
    seal_free(seal);
    clock_free(clk);
    return 0;
}

static void turn(void)
{
    for (int i = 0; i < 8; i++)
        clock_turn(clk);
}

static void on_done(void *ctx, enum bh_err err, const char *why)
{
    assert_int_equal(err, BH_OK);
}

static void route(const char *platform, const char *key)
{
    facts_route_add(facts,
                    &(struct route_spec){str_of(platform), str_of(key), STR("t"), STR("i"), true},
                    on_done, NULL);
    turn();
}

static void unroute(const char *platform, const char *key)
{
    facts_route_remove(facts,
                       &(struct route_spec){str_of(platform), str_of(key), STR("t"), STR("i"),
                                            false},
                       on_done, NULL);
    turn();
}

static void assert_taken(const struct event *ev, const char *key)
{
    assert_str(facts_route_key(facts, ev), key);
}

static void the_more_specific_wins_on_every_platform(void **state)
{
    for (size_t i = 0; platforms[i] != NULL; i++) {
        const char *p = platforms[i]->name;
        struct event ev = {.platform = str_of(p),
                           .bot = STR("bot"),
                           .route_key = STR("own"),
                           .former_key = STR("former")};
        assert_null(facts_route_key(facts, &ev).p);
        route(p, "*");
        assert_null(facts_route_key(facts, &ev).p); /* the gate takes that for "*" */
        route(p, "bot");
        assert_taken(&ev, "bot");
        route(p, "former");
        assert_taken(&ev, "former");
        route(p, "own");
        assert_taken(&ev, "own");
        unroute(p, "own");
        assert_taken(&ev, "former");
    }
}

static void routes_of_one_platform_say_nothing_of_another(void **state)
{
    struct event ev = {.platform = STR("telegram"), .bot = STR("bot"), .route_key = STR("own")};

    route("discord", "own");
    route("telegram", "bot");
    assert_taken(&ev, "bot");
}

static void a_route_to_nobody_does_not_count(void **state)
{
    struct event ev = {.platform = STR("web"), .bot = STR("bot"), .route_key = STR("own")};
    struct buf id = BUF_INIT, secret = BUF_INIT;

    facts_gateway_add(facts, &(struct gateway_spec){.id = STR("i"), .tenant = STR("t")}, &id,
                      &secret, on_done, NULL);
    route("web", "own");
    route("web", "bot");
    facts_route_add(facts, &(struct route_spec){STR("web"), STR("bot"), STR("u"), STR("j"), true},
                    on_done, NULL);
    turn();
    assert_taken(&ev, "own");
    facts_gateway_revoke(facts, STR("i"), on_done, NULL);
    turn();
    assert_taken(&ev, "bot"); /* the other tenant's */
    buf_done(&id);
    buf_done(&secret);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
UNIT(tenancy_test_route)
{
    const struct CMUnitTest tests[] = {
        T(the_more_specific_wins_on_every_platform),
        T(routes_of_one_platform_say_nothing_of_another),
        T(a_route_to_nobody_does_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
