/* Promises of base/bucket.h. */
#include "unit.h"
#include "base/bucket.h"

static int take(struct bucket_level *b, int64_t now_ms, int n)
{
    int got = 0;
    for (int i = 0; i < n; i++)
        got += bucket_take(b, now_ms, 10, 30);
    return got;
}

static void a_burst_is_let_through_and_then_the_rate(void **state)
{
    struct bucket_level b = {0};
    assert_int_equal(take(&b, 1000, 100), 30);
    assert_int_equal(take(&b, 1000, 100), 0);
    assert_int_equal(take(&b, 1100, 100), 1);
    assert_int_equal(take(&b, 1150, 100), 0); /* half a token is none */
    assert_int_equal(take(&b, 1200, 100), 1);
    assert_int_equal(take(&b, 2200, 100), 10);
}

static void a_long_silence_fills_it_and_no_more(void **state)
{
    struct bucket_level b = {0};
    take(&b, 1000, 100);
    assert_int_equal(take(&b, INT64_MAX / 2, 100), 30);
}

static void a_clock_that_goes_back_gives_nothing_away(void **state)
{
    struct bucket_level b = {0};
    take(&b, 5000, 100);
    assert_int_equal(take(&b, 1000, 100), 0);
    assert_int_equal(take(&b, 5100, 100), 1);
}

static void no_rate_is_no_limit(void **state)
{
    struct bucket_level b = {0};
    for (int i = 0; i < 1000; i++)
        assert_true(bucket_take(&b, 1, 0, 0));
}

UNIT(base_test_bucket)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_burst_is_let_through_and_then_the_rate),
        cmocka_unit_test(a_long_silence_fills_it_and_no_more),
        cmocka_unit_test(a_clock_that_goes_back_gives_nothing_away),
        cmocka_unit_test(no_rate_is_no_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
