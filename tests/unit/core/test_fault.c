/* Errors with a class and fields; names of namespaces. */
#include "unit.h"
#include "core/caller.h"
#include "core/fault.h"

static void assert_json(const struct fault *f, const char *want)
{
    struct buf out = BUF_INIT;
    struct jw w = jw_begin(&out);

    fault_json(f, &w);
    assert_string_equal(buf_z(&out), want);
    buf_done(&out);
}

static void the_object_carries_class_code_and_fields(void **state)
{
    struct fault f = {0}, copy = {0};
    const struct str keys[] = {STR("vault"), STR("a\"b")};

    fault_set(&f, FAULT_SKILL_NOT_FOUND, "Skill not found: '%s'", "x\"y");
    fault_field(&f, "skill_name", STR("x\"y"));
    fault_field(&f, "version", STR("0"));
    assert_json(&f,
                "{\"error\":\"Skill not found: 'x\\\"y'\",\"code\":\"skill_not_found\","
                "\"class\":\"SkillNotFoundError\",\"skill_name\":\"x\\\"y\",\"version\":\"0\"}");
    fault_copy(&copy, &f);
    fault_set(&f, FAULT_UNSUPPORTED_FILTER, "no");
    fault_field_list(&f, "unsupportedKeys", keys, 2);
    fault_field_list(&f, "supportedKeys", keys, 0);
    fault_field_i64(&f, "n", -3);
    assert_json(&f,
                "{\"error\":\"no\",\"code\":\"unsupported_filter\","
                "\"class\":\"UnsupportedFilterError\",\"unsupportedKeys\":[\"vault\",\"a\\\"b\"],"
                "\"supportedKeys\":[],\"n\":-3}");
    assert_int_equal(copy.cls, FAULT_SKILL_NOT_FOUND);
    assert_true(str_contains(buf_str(&copy.fields), STR("skill_name")));
    fault_done(&f);
    fault_done(&copy);
    assert_int_equal(f.cls, FAULT_NONE);
}

static void a_plain_error_has_no_class(void **state)
{
    struct fault f = {0};

    fault_set(&f, FAULT_UNAVAILABLE, "the disk is full");
    assert_json(&f, "{\"error\":\"the disk is full\",\"code\":\"unavailable\",\"class\":null}");
    fault_done(&f);
}

static void every_class_has_a_word_and_a_status(void **state)
{
    for (int c = FAULT_NONE + 1; c < N_FAULTS; c++) {
        assert_non_null(fault_code((enum fault_class)c));
        assert_in_range(fault_http_status((enum fault_class)c), 400, 504);
    }
    assert_int_equal(fault_http_status(FAULT_STORAGE_CONFLICT), 409);
    assert_int_equal(fault_http_status(FAULT_APPROVAL_REJECTED), 403);
    assert_string_equal(fault_class_name(FAULT_QUERY), "QueryError");
}

static void a_namespace_is_a_safe_short_name(void **state)
{
    static const char *good[] = {"a", "0", "run-1.2_3", "A.", "x--"};
    static const char *bad[] = {"", ".", "..", "-a", "_a", "a/b", "a b", "a\x80", "a:b", "a\n"};
    char longest[66];

    for (size_t i = 0; i < 5; i++)
        assert_true(caller_ns_valid(str_of(good[i])));
    for (size_t i = 0; i < 10; i++)
        assert_false(caller_ns_valid(str_of(bad[i])));
    memset(longest, 'a', sizeof longest);
    assert_true(caller_ns_valid(str_make(longest, 64)));
    assert_false(caller_ns_valid(str_make(longest, 65)));
    assert_false(caller_ns_valid(STR_NULL));
}

UNIT(core_test_fault)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_object_carries_class_code_and_fields),
        cmocka_unit_test(a_plain_error_has_no_class),
        cmocka_unit_test(every_class_has_a_word_and_a_status),
        cmocka_unit_test(a_namespace_is_a_safe_short_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
