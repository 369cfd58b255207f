/* Promises of edge/door.h. */
#include "unit.h"
#include "base/rand.h"
#include "edge/door.h"

#define BOT STR("discord/app1")

static struct door *d;

static int setup(void **state)
{
    struct rand r = rand_seeded(3);

    d = door_new(&r);
    door_set_limits(d, &(struct door_limits){.refusals = 5, .requests = 100});
    return 0;
}

static int teardown(void **state)
{
    door_free(d);
    return 0;
}

static struct door_source from(const char *peer)
{
    return door_source(d, str_of(peer));
}

static void who_is_refused_too_often_waits(void **state)
{
    struct door_source bad = from("203.0.113.7"), good = from("203.0.113.8");

    for (int i = 0; i < 50; i++) {
        assert_true(door_admit(d, bad, BOT, 1000));
        door_refused(d, bad, 1000);
    }
    assert_false(door_admit(d, bad, BOT, 1000));
    assert_true(door_admit(d, good, BOT, 1000));
    assert_int_equal(door_turned_away(d), 1);
    assert_true(door_admit(d, bad, BOT, 1200)); /* one fifth of a second, one more try */
    door_refused(d, bad, 1200);
    assert_false(door_admit(d, bad, BOT, 1200));
}

static void who_is_never_refused_never_waits(void **state)
{
    struct door_source platform = from("203.0.113.9");

    for (int i = 0; i < 2000; i++)
        assert_true(door_admit(d, platform, BOT, 1000 + i * 10));
}

static void a_bot_has_a_limit_of_its_own(void **state)
{
    int n = 0;

    for (int i = 0; i < 500; i++)
        n += door_admit(d, from("203.0.113.10"), STR("twilio/a"), 5000);
    assert_int_equal(n, 200);
    assert_true(door_admit(d, from("203.0.113.10"), STR("twilio/b"), 5000));
    assert_true(door_admit(d, from("203.0.113.10"), STR("twilio/a"), 6000));
}

static void no_limit_means_none(void **state)
{
    struct door_source bad = from("203.0.113.11");

    door_set_limits(d, &(struct door_limits){0});
    for (int i = 0; i < 5000; i++) {
        assert_true(door_admit(d, bad, BOT, 1));
        door_refused(d, bad, 1);
    }
}

static void an_address_is_one_source_however_it_is_spelt(void **state)
{
    assert_int_equal(from("::ffff:198.51.100.1").hash, from("198.51.100.1").hash);
    assert_int_not_equal(from("127.0.0.1").hash, from("198.51.100.1").hash);
}

static void an_ipv6_network_is_one_source(void **state)
{
    assert_int_equal(from("2001:db8:1:2::1").hash, from("2001:db8:1:2:ffff::9").hash);
    assert_int_not_equal(from("2001:db8:1:2::1").hash, from("2001:db8:1:3::1").hash);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(who_is_refused_too_often_waits),
        T(who_is_never_refused_never_waits),
        T(a_bot_has_a_limit_of_its_own),
        T(no_limit_means_none),
        T(an_address_is_one_source_however_it_is_spelt),
        T(an_ipv6_network_is_one_source),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
