/* Promises of platform/platform.h: connected but deaf. */
#include "unit.h"
#include "platform/platform.h"

#define MINUTE INT64_C(60000)
#define START INT64_C(1700000000000)

static const struct platform_ops plain = {.name = "plain"};
static struct platform p;
static char why[160];

static int setup(void **state)
{
    p = (struct platform){.ops = &plain, .bot = "b"};
    return 0;
}

static int64_t hear(int64_t now_ms, int n, int64_t every_ms)
{
    for (int i = 0; i < n; i++, now_ms += every_ms)
        platform_heard(&p, now_ms);
    return p.last_event_ms;
}

static void a_bot_without_a_rhythm_is_not_deaf(void **state)
{
    assert_false(platform_is_deaf(&p, START, why));
    int64_t last = hear(START, PLATFORM_DEAF_EVENTS - 1, 1000);
    assert_int_equal(platform_usual_gap_ms(&p), 0);
    assert_false(platform_is_deaf(&p, last + 365 * 24 * 60 * MINUTE, why));
}

static void a_busy_bot_is_deaf_after_ten_minutes_of_silence(void **state)
{
    int64_t last = hear(START, 1000, 1000);

    assert_in_range(platform_usual_gap_ms(&p), 900, 1100);
    assert_false(platform_is_deaf(&p, last + 10 * MINUTE, why));
    assert_true(platform_is_deaf(&p, last + 10 * MINUTE + 1, why));
    assert_non_null(strstr(why, "no event for 10 min"));
    platform_heard(&p, last + 11 * MINUTE);
    assert_false(platform_is_deaf(&p, last + 11 * MINUTE + 1, why));
}

static void a_slow_bot_is_deaf_after_ten_usual_gaps(void **state)
{
    int64_t last = hear(START, 60, 5 * MINUTE), gap = platform_usual_gap_ms(&p);

    assert_in_range(gap, 4 * MINUTE, 6 * MINUTE);
    assert_false(platform_is_deaf(&p, last + 10 * gap, why));
    assert_true(platform_is_deaf(&p, last + 10 * gap + 1, why));
}

static void the_rhythm_follows_the_last_day(void **state)
{
    int64_t last = hear(START, 5000, 1000);

    last = hear(last + 10 * MINUTE, 10 * 24 * 4, 15 * MINUTE); /* ten days of an event in 15 min */
    assert_in_range(platform_usual_gap_ms(&p), 10 * MINUTE, 20 * MINUTE);
    assert_false(platform_is_deaf(&p, last + 60 * MINUTE, why));
    platform_heard(&p, last + 3 * PLATFORM_RHYTHM_MS); /* back after days: a new rhythm */
    assert_int_equal(platform_usual_gap_ms(&p), 0);
}

static void a_clock_that_went_back_breaks_nothing(void **state)
{
    int64_t last = hear(START, 100, 1000);

    platform_heard(&p, last - 50 * 1000);
    assert_true(p.rhythm.events > 0);
    assert_false(platform_is_deaf(&p, last - 49 * 1000, why));
}

static void a_late_heartbeat_is_noticed_within_45_seconds(void **state)
{
    hear(START, 1, 1000);
    platform_beat(&p, START, 30000);
    assert_false(platform_is_deaf(&p, START + 30000, why));
    assert_true(platform_is_deaf(&p, START + PLATFORM_DEAF_BEAT_MS, why));
    assert_non_null(strstr(why, "heartbeat is late by 15 s"));
    platform_beat(&p, START + 46000, 30000);
    assert_false(platform_is_deaf(&p, START + 47000, why));
    /* With a heartbeat, silence alone is no sign. */
    int64_t last = hear(START, 1000, 1000);
    platform_beat(&p, last + 60 * MINUTE, 30000);
    assert_false(platform_is_deaf(&p, last + 60 * MINUTE, why));
    platform_beat(&p, last, 0);
    assert_true(platform_is_deaf(&p, last + 60 * MINUTE, why));
}

#define T(f) cmocka_unit_test_setup(f, setup)
UNIT(platform_test_deaf)
{
    const struct CMUnitTest tests[] = {
        T(a_bot_without_a_rhythm_is_not_deaf),
        T(a_busy_bot_is_deaf_after_ten_minutes_of_silence),
        T(a_slow_bot_is_deaf_after_ten_usual_gaps),
        T(the_rhythm_follows_the_last_day),
        T(a_clock_that_went_back_breaks_nothing),
        T(a_late_heartbeat_is_noticed_within_45_seconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
