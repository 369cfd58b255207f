/* Promises of base/err.h. */
#include "unit.h"
#include "base/err.h"

static void every_error_has_its_own_stable_word(void **state)
{
    static const char *const want[] = {"ok",        "busy",     "unavailable", "refused",
                                       "malformed", "conflict", "not_found",   "fenced",
                                       "cancelled", "unknown"};

    for (int e = BH_OK; e <= BH_UNKNOWN; e++)
        assert_string_equal(bh_err_word((enum bh_err)e), want[e]);
}

static void a_number_that_is_no_error_still_has_a_word(void **state)
{
    assert_string_equal(bh_err_word((enum bh_err)99), "unknown");
}

UNIT(base_test_err)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_error_has_its_own_stable_word),
        cmocka_unit_test(a_number_that_is_no_error_still_has_a_word),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
