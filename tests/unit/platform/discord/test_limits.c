/* Promises of platform/discord/rest.h about rate limits. */
#include "unit.h"
#include "platform/discord/rest.h"

static struct discord_limits *l;

static int setup(void **state)
{
    l = discord_limits_new();
    return 0;
}

static int teardown(void **state)
{
    discord_limits_free(l);
    return 0;
}

static void note(const char *route, const char *major, int64_t now, const char *bucket,
                 int64_t remaining, int64_t reset_ms)
{
    discord_limits_note(l, str_of(route), str_of(major), now,
                        &(struct discord_limits_headers){str_of(bucket), remaining, reset_ms});
}

static int64_t take(const char *route, const char *major, int64_t now)
{
    return discord_limits_take(l, str_of(route), str_of(major), now);
}

static void an_unknown_route_goes_at_once(void **state)
{
    assert_int_equal(take("send", "1", 1000), 0);
}

static void an_exhausted_bucket_waits_for_its_reset_and_only_in_its_channel(void **state)
{
    note("send", "1", 1000, "abc", 0, 2500);
    assert_int_equal(take("send", "1", 1500), 2000);
    assert_int_equal(take("send", "2", 1500), 0);
    assert_int_equal(take("send", "1", 3500), 0);
}

static void what_is_let_through_is_counted(void **state)
{
    note("send", "1", 1000, "abc", 2, 5000);
    assert_int_equal(take("send", "1", 1000), 0);
    assert_int_equal(take("send", "1", 1000), 0);
    assert_int_equal(take("send", "1", 1000), 5000);
}

static void routes_of_one_bucket_share_it(void **state)
{
    note("send", "1", 1000, "abc", 5, 5000);
    note("edit", "1", 1000, "abc", 0, 5000);
    assert_int_equal(take("send", "1", 1000), 5000);
}

static void a_429_holds_its_own_kind_and_a_global_one_everything(void **state)
{
    discord_limits_hit(l, STR("send"), STR("1"), 1000, 700, false);
    assert_int_equal(take("send", "1", 1000), 700);
    assert_int_equal(take("edit", "1", 1000), 0);
    discord_limits_hit(l, STR("send"), STR("1"), 1000, 900, true);
    assert_int_equal(take("edit", "9", 1000), 900);
    assert_int_equal(take("edit", "9", 1900), 0);
}

static void no_more_than_fifty_go_in_a_second(void **state)
{
    for (int i = 0; i < 50; i++)
        assert_int_equal(take("send", "1", 1000), 0);
    assert_int_equal(take("send", "1", 1400), 600);
    assert_int_equal(take("send", "1", 2000), 0);
}

static void refusals_are_counted_over_ten_minutes(void **state)
{
    for (int i = 0; i < 7; i++)
        discord_limits_refused(l, 60000 * 5);
    discord_limits_refused(l, 60000 * 9);
    assert_int_equal(discord_limits_refused_count(l, 60000 * 9), 8);
    assert_int_equal(discord_limits_refused_count(l, 60000 * 14), 8);
    assert_int_equal(discord_limits_refused_count(l, 60000 * 15), 1);
    assert_int_equal(discord_limits_refused_count(l, 60000 * 400), 0);
}

static void a_flood_of_channels_does_not_grow_it_forever(void **state)
{
    for (int i = 0; i < 50000; i++) {
        char major[16];
        snprintf(major, sizeof major, "%d", i);
        note("send", major, 1000, "abc", 3, 5000);
    }
    assert_int_equal(take("send", "1", 1000), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
UNIT(platform_discord_test_limits)
{
    const struct CMUnitTest tests[] = {
        T(an_unknown_route_goes_at_once),
        T(an_exhausted_bucket_waits_for_its_reset_and_only_in_its_channel),
        T(what_is_let_through_is_counted),
        T(routes_of_one_bucket_share_it),
        T(a_429_holds_its_own_kind_and_a_global_one_everything),
        T(no_more_than_fifty_go_in_a_second),
        T(refusals_are_counted_over_ten_minutes),
        T(a_flood_of_channels_does_not_grow_it_forever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
