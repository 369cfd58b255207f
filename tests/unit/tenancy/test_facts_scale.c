/* Nothing in the facts is worse than linear: each kind of work is done at a size and at four times
 * that size, and the larger must not take longer than eight times the smaller (a square would be
 * sixteen).  Measured in CPU time of this thread, the best of several tries. */
#include "unit.h"
#include <time.h>
#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rand.h"
#include "base/observers.h"
#include "store/memory/memory.h"
#include "tenancy/facts.h"
#include "tenancy/grants.h"

enum { SMALL = 250, LARGE = 4 * SMALL, TRIES = 3, WORST = 8 };

struct rig {
    struct clock *clock;
    struct store *store;
    struct observers *observers;
    struct rand rand;
    struct facts *facts;
    size_t done;
    struct buf unused;
};

static struct seal *seal; /* opened once: a passphrase takes its time */

static void open_facts(struct rig *r)
{
    struct facts_env env = {.clock = r->clock,
                            .store = r->store,
                            .observers = r->observers,
                            .rand = &r->rand,
                            .seal = seal};
    char why[256];

    assert_int_equal(facts_open(&env, &r->facts, why), BH_OK);
}

static struct rig *rig_new(void)
{
    struct rig *r = xcalloc(1, sizeof *r);

    r->clock = clock_new();
    clock_set(r->clock, 1000, 1800000000000);
    r->store = store_memory_new(r->clock);
    r->observers = observers_new(r->clock);
    r->rand = rand_seeded(7);
    open_facts(r);
    return r;
}

static void rig_free(struct rig *r)
{
    store_close(r->store);
    facts_free(r->facts);
    observers_free(r->observers);
    clock_free(r->clock);
    buf_done(&r->unused);
    free(r);
}

static void on_done(void *ctx, enum bh_err err, const char *why)
{
    struct rig *r = ctx;

    (void)why;
    assert_int_equal(err, BH_OK);
    r->done++;
}

static void turn_until(struct rig *r, size_t done)
{
    for (size_t i = 0; r->done < done && i < 8 * done + 8; i++)
        clock_turn(r->clock);
    assert_int_equal(r->done, done);
    r->done = 0;
}

static const char *name(const char *prefix, size_t i)
{
    static char all[4][40];
    static unsigned next;
    char *z = all[next++ % 4];

    snprintf(z, 40, "%s%zu", prefix, i);
    return z;
}

static void add(struct rig *r, const char *id, const char *tenant, const char *instance,
                const char *bot)
{
    struct gateway_spec spec = {.id = str_of(id),
                                .tenant = str_of(tenant),
                                .instance = str_of(instance),
                                .bots = &(struct gateway_for){STR("web"), str_of(bot), true},
                                .n_bots = bot != NULL};

    buf_reset(&r->unused);
    facts_gateway_add(r->facts, &spec, &r->unused, &r->unused, on_done, r);
    turn_until(r, 1);
}

/* ---- the kinds of work: prepare is not measured ---- */

static void nothing(struct rig *r, size_t n)
{
    (void)r;
    (void)n;
}

static void add_to_one_bot(struct rig *r, size_t n)
{
    for (size_t i = 0; i < n; i++)
        add(r, name("g", i), name("t", i / 3), NULL, "lobby");
}

static void add_to_one_tenant(struct rig *r, size_t n)
{
    const struct route_spec open = {.platform = STR("web"),
                                    .key = STR("lobby"),
                                    .tenant = STR("t"),
                                    .open = true};

    facts_route_add(r->facts, &open, on_done, r);
    turn_until(r, 1);
    for (size_t i = 0; i < n; i++)
        add(r, name("g", i), "t", NULL, NULL);
}

static void add_to_one_instance(struct rig *r, size_t n)
{
    for (size_t i = 0; i < n; i++)
        add(r, name("g", i), "t", "i", "lobby");
}

static void start_again(struct rig *r, size_t n)
{
    struct list *head;

    facts_free(r->facts);
    open_facts(r);
    assert_int_equal(facts_gateways(r->facts, &head), n);
}

static void revoke_all(struct rig *r, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        facts_gateway_revoke(r->facts, str_of(name("g", i)), on_done, r);
        turn_until(r, 1);
    }
    assert_false(facts_has_route(r->facts, STR("web"), STR("lobby")));
}

static void remove_routes(struct rig *r, size_t n)
{
    struct list *head;

    for (size_t i = 0; i < n; i++) {
        const struct route_spec gone = {.platform = STR("web"),
                                        .key = STR("lobby"),
                                        .tenant = str_of(name("t", i / 3)),
                                        .instance = str_of(name("g", i))};
        facts_route_remove(r->facts, &gone, on_done, r);
        turn_until(r, 1);
    }
    assert_int_equal(facts_routes(r->facts, &head), 0);
}

static void one_gateway(struct rig *r, size_t n)
{
    (void)n;
    add(r, "g", "t", "i", "lobby");
}

static void change_one_over_and_over(struct rig *r, size_t n)
{
    for (size_t i = 0; i < n; i++)
        facts_gateway_set(r->facts, STR("g"), STR("http://127.0.0.1/wake"), on_done, r);
    turn_until(r, n);
}

static void link_many_people(struct rig *r, size_t n)
{
    struct grant_who who = {STR("t"), STR("i")};

    for (size_t i = 0; i < n; i++)
        grant_link(r->facts, who,
                   &(struct grant_person){STR("web"), str_of(name("u", i)), &STR("*"), 1}, on_done,
                   r);
    turn_until(r, n);
}

static void deprovision_people(struct rig *r, size_t n)
{
    (void)n;
    grant_deprovision(r->facts, (struct grant_who){STR("t"), STR("i")}, on_done, r);
    turn_until(r, 1);
}

static void one_gateway_with_people(struct rig *r, size_t n)
{
    one_gateway(r, n);
    link_many_people(r, n);
}

static void link_one_person(struct rig *r, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct grant_who who = {str_of(name("t", i / 3)), str_of(name("g", i))};
        grant_link(r->facts, who, &(struct grant_person){STR("web"), STR("ann"), &STR("*"), 1},
                   on_done, r);
        turn_until(r, 1);
    }
}

static void count_target(void *ctx, struct str tenant, struct str instance)
{
    (void)tenant;
    (void)instance;
    ++*(size_t *)ctx;
}

static void ask_where_events_go(struct rig *r, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct event ev = {.platform = STR("web"),
                                 .route_key = STR("lobby"),
                                 .bot = STR("lobby"),
                                 .chat_id = STR("c"),
                                 .chat_type = STR("group"),
                                 .user_id = STR("ann")};
        struct gate_verdict v[GATE_CANDIDATES];
        size_t targets = 0;
        assert_int_equal(gate_decide(facts_gate(r->facts), &(struct gate_world){0}, &ev, v),
                         GATE_CANDIDATES);
        facts_each_target(r->facts, STR("web"), STR("lobby"), count_target, &targets);
        assert_int_equal(targets, GATE_CANDIDATES);
        assert_true(facts_owns(r->facts, STR("web"), STR("lobby"), str_of(name("t", i / 3)),
                               str_of(name("g", i))));
    }
}

static void ask_by_name(struct rig *r, size_t n)
{
    struct str tenant;

    for (size_t i = 0; i < n; i++) {
        assert_int_equal(facts_tenants_with(r->facts, str_of(name("g", i)), false, &tenant), 1);
        assert_true(facts_tenant_is_live(r->facts, tenant));
        assert_non_null(facts_newest_gateway(r->facts, tenant, str_of(name("g", i))));
    }
}

typedef void work_fn(struct rig *r, size_t n);

static double took_s(work_fn *prepare, work_fn *work, size_t n)
{
    struct rig *r = rig_new();
    struct timespec a, b;

    prepare(r, n);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    work(r, n);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    rig_free(r);
    return (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
}

static double best_s(work_fn *prepare, work_fn *work, size_t n)
{
    double best = took_s(prepare, work, n);

    for (int i = 1; i < TRIES; i++) {
        double s = took_s(prepare, work, n);
        best = s < best ? s : best;
    }
    return best;
}

static void four_times_as_much_takes_no_more_than_about_four_times_as_long(void **state)
{
    static const struct {
        const char *what;
        work_fn *prepare, *work;
    } all[] = {
        {"adding gateways to one bot", nothing, add_to_one_bot},
        {"adding gateways to one tenant", nothing, add_to_one_tenant},
        {"adding gateways to one instance", nothing, add_to_one_instance},
        {"starting, one bot", add_to_one_bot, start_again},
        {"starting, one tenant", add_to_one_tenant, start_again},
        {"starting, one instance", add_to_one_instance, start_again},
        {"revoking, one bot", add_to_one_bot, revoke_all},
        {"revoking, one tenant", add_to_one_tenant, revoke_all},
        {"revoking, one instance", add_to_one_instance, revoke_all},
        {"removing routes", add_to_one_bot, remove_routes},
        {"changes of one gateway", one_gateway, change_one_over_and_over},
        {"linking people to one instance", one_gateway, link_many_people},
        {"linking one person to instances", add_to_one_bot, link_one_person},
        {"the end of an instance with people", one_gateway_with_people, deprovision_people},
        {"where events go", add_to_one_bot, ask_where_events_go},
        {"finding by name", add_to_one_bot, ask_by_name},
    };

    char why[256];

    (void)state;
    assert_int_equal(seal_open_master(STR("a passphrase of some length"), STR("salt"), NULL, &seal,
                                      why),
                     BH_OK);
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        double small = best_s(all[i].prepare, all[i].work, SMALL);
        double large = best_s(all[i].prepare, all[i].work, LARGE);
        if (large > WORST * small) { /* the machine may have been busy just then */
            small = best_s(all[i].prepare, all[i].work, SMALL);
            large = best_s(all[i].prepare, all[i].work, LARGE);
        }
        print_message("%-36s %7.2f us each at %d, %7.2f at %d\n", all[i].what, small * 1e6 / SMALL,
                      SMALL, large * 1e6 / LARGE, LARGE);
        if (large > WORST * small)
            fail_msg("%s is worse than linear", all[i].what);
    }
    seal_free(seal);
}

UNIT(tenancy_test_facts_scale)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_times_as_much_takes_no_more_than_about_four_times_as_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
