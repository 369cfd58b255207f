/* Promises of base/jw.h. */
#include "unit.h"
#include <math.h>
#include "base/jw.h"
#include "base/mem.h"
#include "base/rand.h"

static struct buf out;
static struct jw w;
static struct json_parser *parser;

static int setup(void **state)
{
    out = BUF_INIT;
    w = jw_begin(&out);
    parser = json_parser_new();
    return 0;
}

static int teardown(void **state)
{
    buf_done(&out);
    json_parser_free(parser);
    return 0;
}

static void again(void)
{
    buf_reset(&out);
    w = jw_begin(&out);
}

static void commas_and_colons_place_themselves(void **state)
{
    jw_obj(&w);
    jw_key(&w, "a");
    jw_arr(&w);
    jw_end_arr(&w);
    jw_key(&w, "b");
    jw_obj(&w);
    jw_end_obj(&w);
    jw_key_str(&w, STR("c\"d"));
    jw_arr(&w);
    jw_i64(&w, -1);
    jw_u64(&w, UINT64_MAX);
    jw_bool(&w, true);
    jw_bool(&w, false);
    jw_null(&w);
    jw_obj(&w);
    jw_kbool(&w, "x", true);
    jw_ki64(&w, "y", 7);
    jw_end_obj(&w);
    jw_str(&w, STR("s"));
    jw_str(&w, STR("t"));
    jw_raw(&w, STR("[1,2]"));
    jw_end_arr(&w);
    jw_end_obj(&w);
    assert_string_equal(buf_z(&out), "{\"a\":[],\"b\":{},\"c\\\"d\":[-1,18446744073709551615,true,"
                                     "false,null,{\"x\":true,\"y\":7},\"s\",\"t\",[1,2]]}");
}

static void an_absent_string_is_null_or_left_out(void **state)
{
    jw_obj(&w);
    jw_kstr(&w, "null", STR_NULL);
    jw_kstr_opt(&w, "nothing", STR_NULL);
    jw_kstr_opt(&w, "empty", STR(""));
    jw_kstr(&w, "text", STR("t"));
    jw_key_str(&w, STR_NULL);
    jw_i64(&w, 1);
    jw_end_obj(&w);
    assert_string_equal(buf_z(&out), "{\"null\":null,\"empty\":\"\",\"text\":\"t\",\"\":1}");
}

static void what_must_be_escaped_is_and_the_rest_is_not(void **state)
{
    static const struct {
        const char *in, *want;
    } cases[] = {
        {"plain text, longer than eight bytes", "plain text, longer than eight bytes"},
        {"\"", "\\\""},
        {"\\", "\\\\"},
        {"a\b\t\n\f\r", "a\\b\\t\\n\\f\\r"},
        {"\x01\x1f\x7f", "\\u0001\\u001f\x7f"},
        {"seven 7\"eight", "seven 7\\\"eight"},
        {"exactly8", "exactly8"},
        {"exactly\n", "exactly\\n"},
        {"/<>&'", "/<>&'"},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"long enough \xe2\x82\xac and then a \" quote",
         "long enough \xe2\x82\xac and then a \\\" quote"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf want = BUF_INIT;
        again();
        jw_str(&w, str_of(cases[i].in));
        buf_printf(&want, "\"%s\"", cases[i].want);
        assert_string_equal(buf_z(&out), buf_z(&want));
        buf_done(&want);
    }
    again();
    jw_str(&w, str_make("a\0b", 3));
    assert_string_equal(buf_z(&out), "\"a\\u0000b\"");
}

static void invalid_utf8_becomes_the_replacement_character(void **state)
{
    static const char *const bad[] = {
        "\xff",     "\x80",         "\xc0\x80",         "\xed\xa0\x80",
        "\xe2\x82", "\xf0\x9f\x98", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80"};

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct buf in = BUF_INIT;
        struct json doc;
        again();
        buf_printf(&in, "before %s after", bad[i]);
        jw_str(&w, buf_str(&in));
        assert_true(json_parse(parser, buf_str(&out), &doc));
        assert_true(str_starts(json_as_str(doc), STR("before \xef\xbf\xbd")));
        assert_true(str_ends(json_as_str(doc), STR("\xef\xbf\xbd after")));
        buf_done(&in);
    }
}

static void any_bytes_at_all_give_json_that_reads_back(void **state)
{
    struct rand r = rand_seeded(5);
    struct json doc;
    char in[64];

    for (int i = 0; i < 20000; i++) {
        size_t n = rand_below(&r, sizeof in);
        rand_bytes(&r, in, n);
        for (size_t k = 0; i % 2 == 0 && k < n; k++)
            in[k] &= 0x7f;
        again();
        jw_arr(&w);
        jw_str(&w, str_make(in, n));
        jw_end_arr(&w);
        assert_true(json_parse(parser, buf_str(&out), &doc));
        struct json_iter it = {0};
        assert_true(json_next(doc, &it));
        if (i % 2 == 0)
            assert_true(str_eq(json_as_str(it.value), str_make(in, n)));
    }
}

static void a_special_byte_is_found_at_every_place_of_every_length(void **state)
{
    static const char special[] = {'"', '\\', '\n', 0x1f, (char)0xff};
    char in[260]; /* past the longest that is copied and looked at in one go */
    struct json doc;

    for (size_t s = 0; s < sizeof special; s++) {
        for (size_t n = 1; n <= sizeof in; n++) {
            for (size_t at = 0; at < n; at++) {
                memset(in, 'x', sizeof in);
                in[at] = special[s];
                again();
                jw_str(&w, str_make(in, n));
                assert_true(json_parse(parser, buf_str(&out), &doc));
                struct str got = json_as_str(doc);
                assert_memory_equal(got.p, in, at);
                assert_int_equal(got.n, s == 4 ? n + 2 : n);
                assert_memory_equal(got.p + got.n - (n - at - 1), in + at + 1, n - at - 1);
            }
        }
    }
}

static void clean_strings_of_every_length_are_copied_exactly(void **state)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";

    for (size_t n = 0; n < sizeof letters; n++) {
        char key[40], want[100];
        snprintf(key, sizeof key, "%.*s", (int)n, letters);
        snprintf(want, sizeof want, "\"%s\":\"%s\"", key, key);
        again();
        jw_kstr(&w, key, str_make(letters, n));
        assert_string_equal(buf_z(&out), want);
    }
}

static void numbers_read_back_as_themselves(void **state)
{
    static const double values[] = {0.0,   1.0,    -1.5, 0.1,          1.0 / 3,
                                    1e300, 5e-324, 1e21, 123456789.125};
    double f;
    struct json doc;

    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        again();
        jw_f64(&w, values[i]);
        assert_true(json_parse(parser, buf_str(&out), &doc));
        assert_true(json_as_f64(doc, &f) && f == values[i]);
    }
    again();
    jw_f64(&w, 0.1);
    jw_f64(&w, 1.0);
    jw_f64(&w, NAN);
    jw_f64(&w, -INFINITY);
    assert_string_equal(buf_z(&out), "0.1,1.0,null,null");
}

static void bytes_are_a_string_of_hex_digits(void **state)
{
    jw_arr(&w);
    jw_hex(&w, "\x00\xff\x1a", 3);
    jw_hex(&w, "", 0);
    jw_end_arr(&w);
    assert_string_equal(buf_z(&out), "[\"00ff1a\",\"\"]");
}

static void a_parsed_value_is_copied_whole(void **state)
{
    static const char text[] = "{\"a\":[1,-2,18446744073709551615,1.5,1.0,true,false,null,\"\\n\","
                               "[],{}],\"k\\\"\":{\"x\":{\"y\":[[[\"deep\"]]]}}}";
    struct json doc;

    assert_true(json_parse(parser, str_of(text), &doc));
    jw_value(&w, doc);
    assert_string_equal(buf_z(&out), text);
    jw_value(&w, (struct json){0});
    assert_true(str_ends(buf_str(&out), STR(",null")));
}

static void a_full_buffer_fails_once_and_quietly(void **state)
{
    struct buf small = {.limit = 20};
    struct jw to = jw_begin(&small);

    jw_obj(&to);
    for (int i = 0; i < 100; i++)
        jw_kstr(&to, "key", STR("value \" \xff"));
    jw_end_obj(&to);
    assert_true(buf_failed(&small));
    assert_true(small.n <= 20);
    buf_done(&small);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
UNIT(base_test_jw)
{
    const struct CMUnitTest tests[] = {
        TEST(commas_and_colons_place_themselves),
        TEST(an_absent_string_is_null_or_left_out),
        TEST(what_must_be_escaped_is_and_the_rest_is_not),
        TEST(invalid_utf8_becomes_the_replacement_character),
        TEST(any_bytes_at_all_give_json_that_reads_back),
        TEST(a_special_byte_is_found_at_every_place_of_every_length),
        TEST(clean_strings_of_every_length_are_copied_exactly),
        TEST(numbers_read_back_as_themselves),
        TEST(bytes_are_a_string_of_hex_digits),
        TEST(a_parsed_value_is_copied_whole),
        TEST(a_full_buffer_fails_once_and_quietly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
