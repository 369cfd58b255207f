/* Promises of edge/door.h. */
#include "unit.h"
#include "base/rand.h"
#include "edge/door.h"

static struct door *d;

static int setup(void **state)
{
    struct rand r = rand_seeded(3);

    d = door_new(&r);
    door_set_limits(d, &(struct door_limits){.refusals = 5, .strangers = 100});
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
        assert_true(door_admit(d, bad, 1000));
        door_refused(d, bad, 1000);
    }
    assert_false(door_admit(d, bad, 1000));
    assert_true(door_admit(d, good, 1000));
    assert_int_equal(door_turned_away(d), 1);
    assert_true(door_admit(d, bad, 1200)); /* one fifth of a second, one more try */
    door_refused(d, bad, 1200);
    assert_false(door_admit(d, bad, 1200));
}

static void who_is_never_refused_never_waits(void **state)
{
    struct door_source platform = from("203.0.113.9");

    for (int i = 0; i < 20000; i++) {
        assert_true(door_admit(d, platform, 1000 + i / 100));
        door_proved(d, platform, 1000 + i / 100);
    }
}

static void those_who_proved_themselves_get_in_while_strangers_flood(void **state)
{
    struct door_source platform = from("203.0.113.9");
    char peer[32];
    int n = 0;

    door_proved(d, platform, 1000);
    for (int i = 0; i < 1000; i++) {
        snprintf(peer, sizeof peer, "198.51.%d.%d", i / 250, i % 250);
        n += door_admit(d, from(peer), 1000);
        assert_true(door_admit(d, platform, 1000));
    }
    assert_in_range(n, 200, 202); /* one or two may share the slot of the one that proved itself */
    assert_false(door_admit(d, from("192.0.2.1"), 1000));
    assert_true(door_admit(d, from("192.0.2.1"), 2000));
}

static void an_address_that_is_shared_with_a_liar_has_patience(void **state)
{
    struct door_source shared = from("203.0.113.20");

    door_proved(d, shared, 1000);
    for (int i = 0; i < 900; i++) {
        assert_true(door_admit(d, shared, 1000));
        door_refused(d, shared, 1000);
    }
    for (int i = 0; i < 200; i++)
        door_refused(d, shared, 1000);
    assert_false(door_admit(d, shared, 1000)); /* there is an end to it */
}

static void no_limit_means_none(void **state)
{
    struct door_source bad = from("203.0.113.11");

    door_set_limits(d, &(struct door_limits){0});
    for (int i = 0; i < 5000; i++) {
        assert_true(door_admit(d, bad, 1));
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

UNIT(edge_test_door)
{
    const struct CMUnitTest tests[] = {
        T(who_is_refused_too_often_waits),
        T(who_is_never_refused_never_waits),
        T(those_who_proved_themselves_get_in_while_strangers_flood),
        T(an_address_that_is_shared_with_a_liar_has_patience),
        T(no_limit_means_none),
        T(an_address_is_one_source_however_it_is_spelt),
        T(an_ipv6_network_is_one_source),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
