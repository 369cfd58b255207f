/* Regular expressions from strangers. */
#include "unit.h"
#include "base/mem.h"
#include "base/regex.h"

static bool found(const char *pattern, const char *text)
{
    char why[256];
    struct regex *re = regex_new(str_of(pattern), why);

    assert_non_null(re);
    bool yes = regex_found(re, str_of(text));
    regex_free(re);
    return yes;
}

static void a_pattern_is_found_anywhere(void **state)
{
    assert_true(found("b", "abc"));
    assert_false(found("^b", "abc"));
    assert_true(found("^a.c$", "abc"));
    assert_true(found("", ""));
    assert_true(found("", "x"));
    assert_true(found("\xc3\xa4", "n\xc3\xa4me"));
    assert_true(found("(?i)ABC", "xabcx"));
}

static void what_is_no_pattern_is_told(void **state)
{
    static const char *bad[] = {"(",     "[",      "a{2,1}",        "*",
                                "(?=a)", "(a)\\1", "a{1000}{1000}", "\xff"};
    char why[256];
    char *much = xmalloc(REGEX_MAX_PATTERN + 2);

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        why[0] = '\0';
        assert_null(regex_new(str_of(bad[i]), why));
        assert_true(why[0] != '\0');
    }
    memset(much, 'a', REGEX_MAX_PATTERN + 1);
    assert_null(regex_new(str_make(much, REGEX_MAX_PATTERN + 1), why));
    struct regex *re = regex_new(str_make(much, REGEX_MAX_PATTERN), why);
    assert_non_null(re);
    regex_free(re);
    regex_free(NULL);
    free(much);
}

static void a_pattern_that_ruins_others_takes_no_time(void **state)
{
    char text[2000];

    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_false(found("(a*)*(a*)*(a*)*b", text));
    assert_false(found("(a|aa)+$b", text));
}

UNIT(base_test_regex)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pattern_is_found_anywhere),
        cmocka_unit_test(what_is_no_pattern_is_told),
        cmocka_unit_test(a_pattern_that_ruins_others_takes_no_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
