/* Promises of base/str.h. */
#include "unit.h"
#include "base/mem.h"
#include "base/str.h"

static void absent_and_empty_are_both_empty_and_equal(void **state)
{
    assert_true(str_is_empty(STR_NULL) && str_is_empty(STR("")));
    assert_true(str_eq(STR_NULL, STR("")));
    assert_null(str_of(NULL).p);
    assert_int_equal(str_cmp(STR_NULL, STR("")), 0);
}

static void comparisons_know_bytes_case_and_prefixes(void **state)
{
    assert_true(str_eq_ci(STR("Content-LENGTH"), STR("content-length")));
    assert_false(str_eq_ci(STR("a"), STR("ab")));
    assert_false(str_eq_ci(STR("@[`{"), STR("`{@[")));
    assert_true(str_cmp(STR("a"), STR("b")) < 0 && str_cmp(STR("b"), STR("a")) > 0);
    assert_true(str_cmp(STR("a"), STR("ab")) < 0 && str_cmp(STR("ab"), STR("a")) > 0);
    assert_true(str_cmp(STR("\xff"), STR("a")) > 0);
    assert_true(str_starts(STR("abc"), STR("ab")) && str_starts(STR("abc"), STR("")));
    assert_false(str_starts(STR("ab"), STR("abc")));
    assert_true(str_ends(STR("abc"), STR("bc")) && str_ends(STR_NULL, STR("")));
    assert_false(str_ends(STR("bc"), STR("abc")));
    assert_true(str_contains(STR("abc"), STR("b")) && str_contains(STR_NULL, STR("")));
    assert_false(str_contains(STR(""), STR("b")));
    assert_int_equal(str_find(STR("abc"), 'c'), 2);
    assert_int_equal(str_find(STR("abc"), 'x'), -1);
    assert_int_equal(str_find(STR_NULL, 'x'), -1);
}

static void trim_and_skip_stay_inside(void **state)
{
    assert_str(str_trim(STR(" \t\r\n a b \v\f")), "a b");
    assert_int_equal(str_trim(STR("   ")).n, 0);
    assert_null(str_trim(STR_NULL).p);
    assert_str(str_skip(STR("abc"), 1), "bc");
    assert_int_equal(str_skip(STR("abc"), 99).n, 0);
    assert_null(str_skip(STR_NULL, 3).p);
}

static void split_yields_every_part_even_empty_ones(void **state)
{
    struct str rest = STR(",a,,b,"), part;
    static const char *const want[] = {"", "a", "", "b", ""};

    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        assert_true(str_split(&rest, ',', &part));
        assert_str(part, want[i]);
    }
    assert_null(rest.p);
    assert_false(str_split(&rest, ',', &part));
    rest = STR("");
    assert_true(str_split(&rest, ',', &part));
    assert_false(str_split(&rest, ',', &part));
}

static void dup_keeps_every_byte(void **state)
{
    char *a = str_dup(str_make("a\0b", 3)), *b = str_dup(STR_NULL);

    assert_memory_equal(a, "a\0b", 4);
    assert_string_equal(b, "");
    free(a);
    free(b);
}

static void whole_numbers_parse_exactly(void **state)
{
    uint64_t u = 0;
    int64_t i = 0;

    assert_true(str_to_u64(STR("0"), &u) && u == 0);
    assert_true(str_to_u64(STR("18446744073709551615"), &u) && u == UINT64_MAX);
    assert_true(str_to_u64(STR("007"), &u) && u == 7);
    assert_true(str_to_i64(STR("-9223372036854775808"), &i) && i == INT64_MIN);
    assert_true(str_to_i64(STR("9223372036854775807"), &i) && i == INT64_MAX);
    assert_true(str_to_i64(STR("-0"), &i) && i == 0);
}

static void anything_else_is_no_number(void **state)
{
    static const char *const bad[] = {"",
                                      " ",
                                      "-",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "1.0",
                                      "1e3",
                                      "0x1",
                                      "a",
                                      "--1",
                                      "1-",
                                      "18446744073709551616",
                                      "99999999999999999999999",
                                      "9223372036854775808x"};
    uint64_t u = 99;
    int64_t i = 99;

    for (size_t k = 0; k < ARRAY_LEN(bad); k++) {
        assert_false(str_to_u64(str_of(bad[k]), &u));
        assert_false(str_to_i64(str_of(bad[k]), &i));
    }
    assert_false(str_to_u64(STR("-1"), &u));
    assert_false(str_to_u64(STR_NULL, &u));
    assert_false(str_to_u64(str_make("1\0", 2), &u));
    assert_false(str_to_i64(STR("9223372036854775808"), &i));
    assert_false(str_to_i64(STR("-9223372036854775809"), &i));
    assert_true(u == 99 && i == 99);
}

static void letters_alone_match_in_either_case(void **state)
{
    static const size_t lengths[] = {1, 7, 8, 9, 16, 21};
    char a[32], b[32];

    memset(a, 'x', sizeof a);
    memset(b, 'X', sizeof b);
    for (size_t k = 0; k < ARRAY_LEN(lengths); k++)
        for (size_t at = 0; at < lengths[k]; at++) {
            for (int c = 0; c < 65536; c++) {
                int one = c >> 8, two = c & 255, low = one | 0x20;
                bool letter = low >= 'a' && low <= 'z' && low == (two | 0x20);
                a[at] = (char)one;
                b[at] = (char)two;
                if (str_eq_ci(str_make(a, lengths[k]), str_make(b, lengths[k])) !=
                    (one == two || letter))
                    fail_msg("%d and %d at %zu of %zu", one, two, at, lengths[k]);
            }
            a[at] = 'x';
            b[at] = 'X';
        }
}

static void control_characters_are_found_at_every_place(void **state)
{
    char text[40];

    memset(text, 'x', sizeof text);
    text[3] = '\xff'; /* no ASCII is no control character */
    text[11] = '\x80';
    text[20] = ' ';
    for (size_t n = 0; n <= sizeof text; n++)
        assert_int_equal(str_until_control(str_make(text, n)), n);
    for (size_t at = 0; at < sizeof text; at++)
        for (int c = 0; c < 256; c++) {
            char was = text[at];
            text[at] = (char)c;
            assert_int_equal(str_until_control(str_make(text, sizeof text)),
                             c < ' ' || c == 0x7f ? at : sizeof text);
            text[at] = was;
        }
    assert_int_equal(str_until_control(STR_NULL), 0);
}

static void a_number_has_sixteen_hex_digits(void **state)
{
    char text[HEX_U64_CHARS];

    hex_u64(0, text);
    assert_memory_equal(text, "0000000000000000", sizeof text);
    hex_u64(0x0123456789abcdef, text);
    assert_memory_equal(text, "0123456789abcdef", sizeof text);
    hex_u64(UINT64_MAX, text);
    assert_memory_equal(text, "ffffffffffffffff", sizeof text);
}

static void durations_take_a_unit_or_seconds(void **state)
{
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {{"30s", 30000}, {"5m", 300000},    {"1h", 3600000},
                {"250ms", 250}, {"2d", 172800000}, {"7", 7000},
                {"0", 0},       {"0ms", 0},        {"9223372036854775807ms", INT64_MAX}};
    static const char *const bad[] = {"",
                                      "s",
                                      "-1s",
                                      "1.5s",
                                      "1 s",
                                      " 1s",
                                      "1S",
                                      "1w",
                                      "1sm",
                                      "ms",
                                      "1h30m",
                                      "+1s",
                                      "9223372036854775808ms",
                                      "9223372036854775807s",
                                      "106751991168d",
                                      "1s "};
    int64_t ms = 0;

    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_true(str_to_duration_ms(str_of(good[i].text), &ms) && ms == good[i].ms);
    ms = 99;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (str_to_duration_ms(str_of(bad[i]), &ms))
            fail_msg("accepted: %s", bad[i]);
    assert_int_equal(ms, 99);
}

static void sizes_take_a_unit_or_bytes(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"1GiB", 1ull << 30},
                {"64KiB", 65536},
                {"10MB", 10000000},
                {"1kB", 1000},
                {"3KB", 3000},
                {"512", 512},
                {"0", 0},
                {"8B", 8},
                {"2TiB", 2ull << 40},
                {"1MiB", 1 << 20},
                {"1GB", 1000000000},
                {"1TB", 1000000000000},
                {"16777215TiB", 16777215ull << 40}};
    static const char *const bad[] = {"",
                                      "KiB",
                                      "-1",
                                      "1.5GiB",
                                      "1 GiB",
                                      "1gib",
                                      "1PiB",
                                      "1K",
                                      "1M",
                                      "16777216TiB",
                                      "18446744073709551616",
                                      "1GiBB"};
    uint64_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_true(str_to_bytes(str_of(good[i].text), &n) && n == good[i].bytes);
    n = 99;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (str_to_bytes(str_of(bad[i]), &n))
            fail_msg("accepted: %s", bad[i]);
    assert_int_equal(n, 99);
}

static void every_code_point_is_valid_but_surrogates(void **state)
{
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        char p[4];
        size_t n;
        if (cp < 0x80)
            n = 1, p[0] = (char)cp;
        else if (cp < 0x800)
            n = 2, p[0] = (char)(0xc0 | cp >> 6);
        else if (cp < 0x10000)
            n = 3, p[0] = (char)(0xe0 | cp >> 12);
        else
            n = 4, p[0] = (char)(0xf0 | cp >> 18);
        for (size_t i = 1; i < n; i++)
            p[i] = (char)(0x80 | (cp >> (6 * (n - 1 - i)) & 0x3f));
        bool surrogate = cp >= 0xd800 && cp < 0xe000;
        if (utf8_seq_bytes(str_make(p, n)) != (surrogate ? 0 : n))
            fail_msg("U+%04X", cp);
        if (n > 1 && utf8_seq_bytes(str_make(p, n - 1)) != 0)
            fail_msg("U+%04X cut short", cp);
    }
}

static void malformed_utf8_is_refused_wherever_it_stands(void **state)
{
    static const char *const bad[] = {"\x80",
                                      "\xbf",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xc3",
                                      "\xc3(",
                                      "\xe0\x80\x80",
                                      "\xe0\x9f\xbf",
                                      "\xe2\x82",
                                      "\xe2(\xac",
                                      "\xed\xa0\x80",
                                      "\xed\xbf\xbf",
                                      "\xf0\x80\x80\x80",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf0\x9f\x98",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xf8\x88\x80\x80\x80",
                                      "\xfe",
                                      "\xff"};
    char text[64];

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        for (int before = 0; before < 20; before++) {
            snprintf(text, sizeof text, "%.*s%s%s", before, "xxxxxxxxxxxxxxxxxxxx", bad[i],
                     before % 2 == 0 ? "" : "after it");
            assert_false(utf8_valid(str_of(text)));
        }
    }
    assert_true(utf8_valid(STR_NULL));
    assert_true(utf8_valid(STR("plain ascii and \xe2\x82\xac and \xf0\x9f\x98\x80 too")));
    assert_true(utf8_valid(str_make("\0", 1)));
}

static void characters_and_utf16_units_are_counted(void **state)
{
    struct str s = STR("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");

    assert_int_equal(utf8_chars(s), 4);
    assert_int_equal(utf16_units(s), 5);
    assert_int_equal(utf8_chars(STR_NULL), 0);
    assert_int_equal(utf16_units(STR("")), 0);
}

static void a_head_ends_with_a_whole_character(void **state)
{
    struct str s = STR("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    const size_t whole[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10};

    for (size_t most = 0; most < ARRAY_LEN(whole); most++)
        assert_int_equal(utf8_head(s, most).n, whole[most]);
    assert_null(utf8_head(STR_NULL, 3).p);
}

UNIT(base_test_str)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absent_and_empty_are_both_empty_and_equal),
        cmocka_unit_test(comparisons_know_bytes_case_and_prefixes),
        cmocka_unit_test(trim_and_skip_stay_inside),
        cmocka_unit_test(split_yields_every_part_even_empty_ones),
        cmocka_unit_test(dup_keeps_every_byte),
        cmocka_unit_test(whole_numbers_parse_exactly),
        cmocka_unit_test(anything_else_is_no_number),
        cmocka_unit_test(letters_alone_match_in_either_case),
        cmocka_unit_test(control_characters_are_found_at_every_place),
        cmocka_unit_test(a_number_has_sixteen_hex_digits),
        cmocka_unit_test(durations_take_a_unit_or_seconds),
        cmocka_unit_test(sizes_take_a_unit_or_bytes),
        cmocka_unit_test(every_code_point_is_valid_but_surrogates),
        cmocka_unit_test(malformed_utf8_is_refused_wherever_it_stands),
        cmocka_unit_test(characters_and_utf16_units_are_counted),
        cmocka_unit_test(a_head_ends_with_a_whole_character),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
