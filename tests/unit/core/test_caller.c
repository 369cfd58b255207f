/* Promises of core/caller.h. */
#include "unit.h"
#include "base/mem.h"
#include "core/caller.h"

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define PARENT "00f067aa0ba902b7"

static void a_traceparent_is_what_w3c_says(void **state)
{
    static const char *const good[] = {
        "00-" TRACE "-" PARENT "-01",
        "00-" TRACE "-" PARENT "-00",
        "cc-" TRACE "-" PARENT "-01",
        "01-" TRACE "-" PARENT "-01-what-the-future-brings",
    };
    static const char *const bad[] = {
        "",
        "00-" TRACE "-" PARENT,
        "00-" TRACE "-" PARENT "-1",
        "00-" TRACE "-" PARENT "-01-more",
        "ff-" TRACE "-" PARENT "-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-" PARENT "-01",
        "00-00000000000000000000000000000000-" PARENT "-01",
        "00-" TRACE "-0000000000000000-01",
        "00_" TRACE "-" PARENT "-01",
        "01-" TRACE "-" PARENT "-01.more",
        "01-" TRACE "-" PARENT "-01-a\r\nX-Evil: 1",
        "0x-" TRACE "-" PARENT "-01",
    };
    char longest[CALLER_TRACE_MAX + 2];

    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_true(caller_trace_valid(str_of(good[i])));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (caller_trace_valid(str_of(bad[i])))
            fail_msg("\"%s\" passed", bad[i]);
    assert_false(caller_trace_valid(STR_NULL));
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    memcpy(longest, "01-" TRACE "-" PARENT "-01-", 56);
    assert_false(caller_trace_valid(str_of(longest)));
    longest[CALLER_TRACE_MAX] = '\0';
    assert_true(caller_trace_valid(str_of(longest)));
}

UNIT(core_test_caller)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_traceparent_is_what_w3c_says)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
