/* Promises of base/names.h. */
#include "unit.h"
#include "base/names.h"

static void equal_texts_are_one_while_somebody_holds_them(void **state)
{
    struct names t = NAMES_INIT;
    char text[] = "discord";
    struct name *a = names_take(&t, STR("discord")), *b = names_take(&t, str_of(text));
    struct name *other = names_take(&t, STR("telegram"));

    text[0] = 'x'; /* it was copied */
    assert_ptr_equal(a, b);
    assert_ptr_not_equal(a, other);
    assert_str(name_text(a), "discord");
    names_drop(&t, a);
    assert_str(name_text(b), "discord");
    names_drop(&t, b);
    assert_int_equal(map_count(&t.by_text), 1); /* gone with its last hold */
    names_drop(&t, other);
    names_drop(&t, NULL);
    names_done(&t);
}

static void a_name_may_be_empty_and_have_any_bytes(void **state)
{
    struct names t = NAMES_INIT;
    struct name *empty = names_take(&t, STR_NULL), *bytes = names_take(&t, STR("a\0b"));

    assert_int_equal(name_text(empty).n, 0);
    assert_non_null(name_text(empty).p);
    assert_null(name_text(NULL).p);
    assert_ptr_equal(names_take(&t, STR("a\0b")), bytes);
    assert_ptr_not_equal(names_take(&t, STR("a")), bytes);
    names_drop(&t, names_take(&t, STR("a")));
    names_drop(&t, names_take(&t, STR("a"))); /* twice more, and twice less */
    names_drop(&t, bytes);
    names_drop(&t, bytes);
    names_drop(&t, empty);
    assert_int_equal(map_count(&t.by_text), 1);
    struct name *a = names_take(&t, STR("a"));
    assert_int_equal(a->holds, 2);
    names_drop(&t, a);
    names_drop(&t, a);
    names_done(&t);
}

UNIT(base_test_names)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_texts_are_one_while_somebody_holds_them),
        cmocka_unit_test(a_name_may_be_empty_and_have_any_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
