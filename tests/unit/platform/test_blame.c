/* Promises of platform/blame.h. */
#include "unit.h"
#include "platform/blame.h"

static void refuse(struct blame *b, const char *tenant, int n, int64_t at_ms)
{
    for (int i = 0; i < n; i++)
        blame_note(b, str_of(tenant), at_ms);
}

static void whoever_is_refused_too_often_is_held_back_and_nobody_else(void **state)
{
    struct blame b;

    blame_init(&b);
    assert_false(blame_is_full(&b, STR("greedy"), 1000));
    refuse(&b, "greedy", BLAME_MAX - 1, 1000);
    refuse(&b, "modest", 1, 1000);
    assert_false(blame_is_full(&b, STR("greedy"), 1000));
    refuse(&b, "greedy", 1, 2000);
    assert_true(blame_is_full(&b, STR("greedy"), 2000));
    assert_false(blame_is_full(&b, STR("modest"), 2000));
    assert_false(blame_is_full(&b, STR("third"), 2000));
    blame_done(&b);
}

static void it_is_over_after_a_while(void **state)
{
    struct blame b;

    blame_init(&b);
    refuse(&b, "greedy", BLAME_MAX, 1000);
    assert_true(blame_is_full(&b, STR("greedy"), 1000 + BLAME_MS - 1));
    assert_false(blame_is_full(&b, STR("greedy"), 1000 + BLAME_MS + BLAME_MS / 10));
    refuse(&b, "greedy", 1, 1000 + BLAME_MS); /* a new window, the old one still counts */
    assert_true(blame_is_full(&b, STR("greedy"), 1000 + BLAME_MS));
    assert_false(blame_is_full(&b, STR("greedy"), 1000 + BLAME_MS + BLAME_MS / 2));
    blame_done(&b);
}

static void tenants_that_behave_are_forgotten(void **state)
{
    struct blame b;
    char name[16];

    blame_init(&b);
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "t%d", i);
        refuse(&b, name, 1, 1000 + i);
    }
    assert_int_equal(map_count(&b.by_name), 1000);
    refuse(&b, "late", 1, 3000 + 2 * BLAME_MS);
    assert_int_equal(map_count(&b.by_name), 1);
    blame_done(&b);
}

UNIT(platform_test_blame)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whoever_is_refused_too_often_is_held_back_and_nobody_else),
        cmocka_unit_test(it_is_over_after_a_while),
        cmocka_unit_test(tenants_that_behave_are_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
