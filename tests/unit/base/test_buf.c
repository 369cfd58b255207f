/* Promises of base/buf.h. */
#include "unit.h"
#include <inttypes.h>
#include "base/buf.h"

static void an_empty_buf_reads_as_an_empty_string(void **state)
{
    struct buf b = BUF_INIT;

    assert_string_equal(buf_z(&b), "");
    assert_non_null(buf_str(&b).p);
    assert_int_equal(buf_str(&b).n, 0);
    char *z = buf_take(&b);
    assert_string_equal(z, "");
    free(z);
}

static void appends_of_all_kinds_follow_each_other(void **state)
{
    struct buf b = BUF_INIT;

    buf_add(&b, "ab", 2);
    buf_add(&b, NULL, 0);
    buf_add_str(&b, STR("cd"));
    buf_add_str(&b, STR_NULL);
    buf_add_z(&b, "ef");
    buf_add_c(&b, '/');
    buf_add_u64(&b, UINT64_MAX);
    buf_add_c(&b, '/');
    buf_add_i64(&b, INT64_MIN);
    buf_add_i64(&b, 0);
    buf_printf(&b, "[%s %d]", "x", 7);
    assert_string_equal(buf_z(&b), "abcdef/18446744073709551615/-92233720368547758080[x 7]");
    buf_done(&b);
}

static void numbers_of_every_width_come_out_in_decimal(void **state)
{
    struct buf b = BUF_INIT;
    char want[32];

    for (uint64_t v = 1; v < UINT64_MAX / 10; v *= 10) {
        for (uint64_t k = v - 1; k <= v + 1; k++) {
            buf_reset(&b);
            buf_add_u64(&b, k);
            snprintf(want, sizeof want, "%" PRIu64, k);
            assert_string_equal(buf_z(&b), want);
            buf_reset(&b);
            buf_add_i64(&b, -(int64_t)k);
            snprintf(want, sizeof want, "%" PRId64, -(int64_t)k);
            assert_string_equal(buf_z(&b), want);
        }
    }
    buf_done(&b);
}

static void growth_keeps_every_byte(void **state)
{
    struct buf b = BUF_INIT;

    for (int i = 0; i < 100000; i++)
        buf_add_c(&b, (char)i);
    assert_int_equal(b.n, 100000);
    for (int i = 0; i < 100000; i++)
        assert_int_equal(b.p[i], (char)i);
    buf_done(&b);
}

static void the_first_append_past_the_limit_sticks(void **state)
{
    struct buf b = {.limit = 10};

    buf_add(&b, "0123456789", 10);
    assert_false(buf_failed(&b));
    buf_add_c(&b, 'x');
    assert_true(buf_failed(&b));
    buf_add(&b, "", 0);
    buf_printf(&b, "more");
    assert_null(buf_room(&b, 0));
    assert_string_equal(buf_z(&b), "0123456789");
    buf_reset(&b);
    buf_add_z(&b, "again");
    assert_false(buf_failed(&b));
    assert_string_equal(buf_z(&b), "again");
    buf_done(&b);
}

static void a_short_append_after_the_failed_one_is_refused_too(void **state)
{
    struct buf b = {.limit = 10};

    buf_add_z(&b, "01234");
    buf_add_z(&b, "567890");
    buf_add_z(&b, "x");
    assert_true(buf_failed(&b));
    assert_string_equal(buf_z(&b), "01234");
    buf_done(&b);
}

static void an_absurd_size_fails_and_does_not_wrap(void **state)
{
    struct buf b = BUF_INIT;

    buf_add_z(&b, "abc");
    assert_null(buf_room(&b, SIZE_MAX));
    assert_true(buf_failed(&b));
    buf_done(&b);
}

static void room_is_writable_and_counted_by_the_caller(void **state)
{
    struct buf b = BUF_INIT;
    char *p = buf_room(&b, 1000);

    memset(p, 'r', 1000);
    assert_int_equal(b.n, 0);
    b.n += 1000;
    assert_int_equal(strlen(buf_z(&b)), 1000);
    buf_done(&b);
}

static void plain_text_drives_no_terminal(void **state)
{
    struct buf b = BUF_INIT;

    (void)state;
    buf_add_plain(&b, STR("gr\xc3\xbc\xc3\x9f \x1b[2J\n\x7f \xc2\x9b \xfa\xc3"));
    assert_string_equal(buf_z(&b), "gr\xc3\xbc\xc3\x9f \\x1b[2J\\x0a\\x7f \\xc2\\x9b \\xfa\\xc3");
    buf_reset(&b);
    buf_add_plain(
        &b, STR("a\u202eb\u2066c\u2069\u200f\u061c\u2028\ufeff \u00e9\u200d\u2030\U0001f600"));
    assert_string_equal(buf_z(&b), "a\\u202eb\\u2066c\\u2069\\u200f\\u061c\\u2028\\ufeff "
                                   "\u00e9\u200d\u2030\U0001f600");
    buf_done(&b);
}

static void consume_drops_from_the_front(void **state)
{
    struct buf b = BUF_INIT;

    buf_consume(&b, 0);
    buf_add_z(&b, "headtail");
    buf_consume(&b, 4);
    assert_string_equal(buf_z(&b), "tail");
    buf_consume(&b, 4);
    assert_int_equal(b.n, 0);
    buf_done(&b);
}

static void take_hands_over_and_leaves_a_usable_buf(void **state)
{
    struct buf b = {.limit = 100};

    buf_add_z(&b, "mine");
    char *z = buf_take(&b);
    assert_string_equal(z, "mine");
    assert_int_equal(b.n, 0);
    assert_int_equal(b.limit, 100);
    buf_add_z(&b, "next");
    assert_string_equal(buf_z(&b), "next");
    buf_wipe(&b);
    assert_null(b.p);
    free(z);
}

UNIT(base_test_buf)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_buf_reads_as_an_empty_string),
        cmocka_unit_test(appends_of_all_kinds_follow_each_other),
        cmocka_unit_test(numbers_of_every_width_come_out_in_decimal),
        cmocka_unit_test(growth_keeps_every_byte),
        cmocka_unit_test(the_first_append_past_the_limit_sticks),
        cmocka_unit_test(a_short_append_after_the_failed_one_is_refused_too),
        cmocka_unit_test(an_absurd_size_fails_and_does_not_wrap),
        cmocka_unit_test(room_is_writable_and_counted_by_the_caller),
        cmocka_unit_test(plain_text_drives_no_terminal),
        cmocka_unit_test(consume_drops_from_the_front),
        cmocka_unit_test(take_hands_over_and_leaves_a_usable_buf),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
