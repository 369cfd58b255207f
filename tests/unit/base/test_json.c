/* Promises of base/json.h. */
#include "unit.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"

static struct json_parser *parser;

static int setup(void **state)
{
    parser = json_parser_new();
    return 0;
}

static int teardown(void **state)
{
    json_parser_free(parser);
    return 0;
}

static struct json parse(const char *text)
{
    struct json doc = {0};

    if (!json_parse(parser, str_of(text), &doc))
        fail_msg("%s: %s", text, json_error(parser));
    return doc;
}

static void every_type_is_told_apart(void **state)
{
    static const struct {
        const char *text;
        enum json_type type;
    } cases[] = {
        {"null", JSON_NULL},          {"true", JSON_BOOL},
        {"false", JSON_BOOL},         {"0", JSON_NUMBER},
        {"-1.5e3", JSON_NUMBER},      {"18446744073709551615", JSON_NUMBER},
        {"\"\"", JSON_STRING},        {"[]", JSON_ARRAY},
        {"{}", JSON_OBJECT},          {" [1] \n", JSON_ARRAY},
        {"\"\\u0000\"", JSON_STRING},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(json_type(parse(cases[i].text)), cases[i].type);
    assert_int_equal(json_type((struct json){0}), JSON_ABSENT);
}

static void what_is_not_json_is_refused(void **state)
{
    static const char *const bad[] = {
        "",
        " ",
        "{",
        "}",
        "[1,]",
        "{\"a\":1,}",
        "{a:1}",
        "{'a':1}",
        "[1 2]",
        "{\"a\" 1}",
        "{\"a\":}",
        "{\"a\"}",
        "nul",
        "nulll",
        "True",
        "tru",
        "01",
        "1.",
        ".5",
        "+1",
        "1e",
        "-",
        "0x10",
        "NaN",
        "Infinity",
        "\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\n\"",
        "\"\t\"",
        "[1]]",
        "{} {}",
        "1 2",
        "// c\n1",
        "\"\\ud800\"",
        "\"\\udc00\\ud800\"",
        "\"\xff\"",
        "\"\xc0\x80\"",
        "\"\xed\xa0\x80\"",
        "\"\xf4\x90\x80\x80\"",
        "\"\xe2\x82\"",
        "1e999",
        "[\"a\",]",
        "[,1]",
        "{,}",
        "\xef\xbb\xbf{",
        "{1:2}",
        "99999999999999999999",
    };
    struct json doc = {.at = 77};

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (json_parse(parser, str_of(bad[i]), &doc))
            fail_msg("accepted: %s", bad[i]);
        assert_int_equal(doc.at, 77);
        assert_true(strlen(json_error(parser)) > 0);
    }
    assert_false(json_parse(parser, STR_NULL, &doc));
    assert_false(json_parse(parser, str_make("1\0", 2), &doc));
    parse("{}"); /* and a failure leaves the parser usable */
    assert_string_equal(json_error(parser), "");
}

static void nesting(char *to, size_t depth)
{
    memset(to, '[', depth);
    to[depth] = '1';
    memset(to + depth + 1, ']', depth);
    to[2 * depth + 1] = '\0';
}

static void depth_is_accepted_up_to_the_limit_and_not_beyond(void **state)
{
    static char text[400002];
    struct json doc;

    nesting(text, JSON_MAX_DEPTH);
    parse(text);
    nesting(text, JSON_MAX_DEPTH + 1);
    assert_false(json_parse(parser, str_of(text), &doc));
    nesting(text, 200000); /* large enough for the other parser */
    assert_false(json_parse(parser, str_of(text), &doc));
    nesting(text, JSON_MAX_DEPTH);
    memset(text + strlen(text), ' ', 100000);
    assert_true(json_parse(parser, str_make(text, 100000), &doc));
}

/* Memory of a large one stays for a while: what it held before is nobody's business. */
static void large_and_small_documents_take_turns(void **state)
{
    static char text[300000];
    struct json doc;

    for (int round = 0; round < 200; round++) {
        size_t n = round % 3 == 0 ? 290000u - (unsigned)round * 1000 : 100;
        memset(text, round % 2 ? 'x' : 'y', n);
        text[0] = text[n - 1] = '"';
        assert_true(json_parse(parser, str_make(text, n), &doc));
        assert_int_equal(json_as_str(doc).n, n - 2);
        assert_memory_equal(json_as_str(doc).p, text + 1, n - 2);
    }
}

static void getters_find_what_is_there(void **state)
{
    struct json doc =
        parse("{\"type\":\"hello\",\"n\":-5,\"big\":18446744073709551615,\"f\":1.5,"
              "\"yes\":true,\"no\":false,\"nil\":null,\"o\":{\"in\":[1,2,3]},\"\":0}");
    int64_t i = 0;
    uint64_t u = 0;
    double f = 0;

    assert_str(json_str(doc, "type"), "hello");
    assert_true(json_as_i64(json_get(doc, "n"), &i) && i == -5);
    assert_true(json_as_u64(json_get(doc, "big"), &u) && u == UINT64_MAX);
    assert_true(json_as_f64(json_get(doc, "f"), &f) && f == 1.5);
    assert_true(json_as_f64(json_get(doc, "n"), &f) && f == -5);
    assert_true(json_as_f64(json_get(doc, "big"), &f) && f > 1e19);
    assert_true(json_as_bool(json_get(doc, "yes"), false));
    assert_false(json_as_bool(json_get(doc, "no"), true));
    assert_int_equal(json_type(json_get(doc, "nil")), JSON_NULL);
    assert_int_equal(json_count(json_get(json_get(doc, "o"), "in")), 3);
    assert_int_equal(json_type(json_get(doc, "")), JSON_NUMBER);
    assert_int_equal(json_type(json_get(doc, "typ")), JSON_ABSENT);
    assert_int_equal(json_type(json_get(doc, "in")), JSON_ABSENT);
    assert_int_equal(json_count(doc), 9);
}

static void a_wrong_type_answers_like_an_absent_key(void **state)
{
    static const char *const texts[] = {"null",  "true",     "7",
                                        "-7",    "1.5",      "18446744073709551615",
                                        "\"7\"", "[]",       "{}",
                                        "[7]",   "{\"a\":7}"};

    for (size_t k = 0; k <= ARRAY_LEN(texts); k++) {
        struct json v = k < ARRAY_LEN(texts) ? parse(texts[k]) : (struct json){0};
        enum json_type type = json_type(v);
        int64_t i = 99;
        uint64_t u = 99;
        double f = 99;
        if (type != JSON_STRING)
            assert_null(json_as_str(v).p);
        if (type != JSON_BOOL)
            assert_true(json_as_bool(v, true) && !json_as_bool(v, false));
        if (type != JSON_NUMBER)
            assert_false(json_as_i64(v, &i) || json_as_u64(v, &u) || json_as_f64(v, &f));
        if (type != JSON_OBJECT)
            assert_int_equal(json_type(json_get(v, "a")), JSON_ABSENT);
        if (type != JSON_OBJECT && type != JSON_ARRAY) {
            struct json_iter it = {0};
            assert_false(json_next(v, &it));
            assert_int_equal(json_count(v), 0);
        }
    }
}

static void integers_are_exact_or_refused(void **state)
{
    int64_t i = 99;
    uint64_t u = 99;

    assert_true(json_as_i64(parse("9223372036854775807"), &i) && i == INT64_MAX);
    assert_true(json_as_i64(parse("-9223372036854775808"), &i) && i == INT64_MIN);
    i = 99;
    assert_false(json_as_i64(parse("9223372036854775808"), &i));
    assert_false(json_as_i64(parse("1.0"), &i));
    assert_false(json_as_i64(parse("1e3"), &i));
    assert_false(json_as_u64(parse("-1"), &u));
    assert_false(json_as_u64(parse("1.0"), &u));
    assert_true(i == 99 && u == 99);
    assert_true(json_as_u64(parse("9223372036854775807"), &u) && u == INT64_MAX);
}

static void strings_are_unescaped_utf8(void **state)
{
    assert_str(json_as_str(parse("\"a\\n\\\"\\\\\\/\\u00e9\\ud83d\\ude00\"")),
               "a\n\"\\/\xc3\xa9\xf0\x9f\x98\x80");
    struct str nul = json_as_str(parse("\"a\\u0000b\""));
    assert_int_equal(nul.n, 3);
    assert_memory_equal(nul.p, "a\0b", 3);
    struct str empty = json_as_str(parse("\"\""));
    assert_non_null(empty.p);
    assert_int_equal(empty.n, 0);
    assert_int_equal(json_type(json_get(parse("{\"\\u0061b\":1}"), "ab")), JSON_NUMBER);
}

static void a_walk_goes_in_order_over_nested_values(void **state)
{
    struct json doc = parse("{\"a\":[1,[2,3],{\"x\":4}],\"b\":2.5,\"c\":{},\"d\":\"s\"}");
    char keys[16] = "";
    int types[4] = {0}, n = 0;

    for (struct json_iter it = {0}; json_next(doc, &it); n++) {
        strncat(keys, it.key.p, it.key.n);
        types[n] = (int)json_type(it.value);
    }
    assert_string_equal(keys, "abcd");
    assert_true(types[0] == JSON_ARRAY && types[1] == JSON_NUMBER && types[2] == JSON_OBJECT &&
                types[3] == JSON_STRING);
    n = 0;
    struct json_iter it = {0};
    for (; json_next(json_get(doc, "a"), &it); n++)
        assert_null(it.key.p);
    assert_int_equal(n, 3);
    assert_false(json_next(json_get(doc, "a"), &it)); /* the end is the end */
}

static void of_two_equal_keys_the_first_counts(void **state)
{
    assert_str(json_str(parse("{\"k\":\"one\",\"k\":\"two\"}"), "k"), "one");
}

static void documents_of_all_sizes_parse_one_after_another(void **state)
{
    struct buf b = BUF_INIT;

    for (size_t n = 1; n < 1 << 19; n = n * 3 + 1) {
        struct json doc;
        buf_reset(&b);
        buf_add_z(&b, "{\"k\":\"");
        for (size_t i = 0; i < n; i++)
            buf_add_c(&b, 'x');
        buf_add_z(&b, "\",\"last\":1}");
        assert_true(json_parse(parser, buf_str(&b), &doc));
        assert_int_equal(json_str(doc, "k").n, n);
        assert_int_equal(json_type(json_get(doc, "last")), JSON_NUMBER);
        assert_int_equal(json_count(parse("[1,2]")), 2);
    }
    buf_done(&b);
}

static void the_input_may_change_after_parsing(void **state)
{
    char text[] = "{\"a\":\"before\"}";
    struct json doc = parse(text);

    memset(text, 'x', sizeof text - 1);
    assert_str(json_str(doc, "a"), "before");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
UNIT(base_test_json)
{
    const struct CMUnitTest tests[] = {
        TEST(every_type_is_told_apart),
        TEST(what_is_not_json_is_refused),
        TEST(depth_is_accepted_up_to_the_limit_and_not_beyond),
        TEST(large_and_small_documents_take_turns),
        TEST(getters_find_what_is_there),
        TEST(a_wrong_type_answers_like_an_absent_key),
        TEST(integers_are_exact_or_refused),
        TEST(strings_are_unescaped_utf8),
        TEST(a_walk_goes_in_order_over_nested_values),
        TEST(of_two_equal_keys_the_first_counts),
        TEST(documents_of_all_sizes_parse_one_after_another),
        TEST(the_input_may_change_after_parsing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
