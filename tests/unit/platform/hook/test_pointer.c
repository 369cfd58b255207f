/* Promises of platform/hook/pointer.h.  The first table has the examples of RFC 6901, section 5. */
#include "unit.h"
#include "base/mem.h"
#include "platform/hook/pointer.h"

static struct json_parser *parser, *inner;

static struct pointer_in doc(const char *text)
{
    struct pointer_in in = {.inner = inner};

    assert_true(json_parse(parser, str_of(text), &in.doc));
    return in;
}

static void assert_found(const char *text, const char *pointer, const char *want)
{
    struct pointer_in in = doc(text);
    struct buf out = BUF_INIT;
    bool found = pointer_text(&in, str_of(pointer), &out);

    if (found != (want != NULL) || (found && strcmp(buf_z(&out), want) != 0))
        fail_msg("%s in %s: expected %s, found %s", pointer, text, want != NULL ? want : "nothing",
                 found ? buf_z(&out) : "nothing");
    buf_done(&out);
}

static void pointers_find_what_the_standard_says(void **state)
{
    static const char text[] = "{\"foo\":[\"bar\",\"baz\"],\"\":0,\"a/b\":1,\"c%d\":2,\"e^f\":3,"
                               "\"g|h\":4,\"i\\\\j\":5,\"k\\\"l\":6,\" \":7,\"m~n\":8}";
    static const struct {
        const char *pointer, *value;
    } all[] = {{"/foo/0", "bar"}, {"/foo/1", "baz"},
               {"/", "0"},        {"/a~1b", "1"},
               {"/c%d", "2"},     {"/e^f", "3"},
               {"/g|h", "4"},     {"/i\\j", "5"},
               {"/k\"l", "6"},    {"/ ", "7"},
               {"/m~0n", "8"},    {"/foo", NULL},
               {"/foo/2", NULL},  {"/foo/-", NULL},
               {"/foo/01", NULL}, {"/foo/+1", NULL},
               {"/foo/", NULL},   {"/nothing", NULL},
               {"/a/b", NULL},    {"/foo/18446744073709551616", NULL}};

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        assert_found(text, all[i].pointer, all[i].value);
    assert_found("{\"~1\":\"x\"}", "/~01", "x"); /* first ~1, then ~0, never twice */
}

static void numbers_are_ids_and_others_are_not(void **state)
{
    assert_found("{\"a\":-9223372036854775808}", "/a", "-9223372036854775808");
    assert_found("{\"a\":18446744073709551615}", "/a", "18446744073709551615");
    assert_found("{\"a\":1.5}", "/a", NULL);
    assert_found("{\"a\":true}", "/a", NULL);
    assert_found("{\"a\":null}", "/a", NULL);
    assert_found("{\"a\":{}}", "/a", NULL);
    assert_found("{\"a\":\"\"}", "/a", "");
}

static void a_text_that_is_json_is_gone_into_once(void **state)
{
    assert_found("{\"c\":\"{\\\"m\\\":[\\\"hi\\\"]}\"}", "/c/m/0", "hi");
    assert_found("{\"c\":\"{\\\"m\\\"\"}", "/c/m", NULL);
    assert_found("{\"c\":\"plain\"}", "/c/m", NULL);
    assert_found("{\"c\":\"{\\\"m\\\":\\\"{\\\\\\\"n\\\\\\\":1}\\\"}\"}", "/c/m/n", NULL);
    assert_found("{\"c\":\"{\\\"m\\\":1}\"}", "/c", "{\"m\":1}");
}

static void wrong_pointers_are_told(void **state)
{
    static const char *const bad[] = {"", "a", "a/b", "/~", "/~2", "/a~", "/a\nb", " /a"};
    char many[POINTER_MAX_STEPS * 2 + 4] = "", longest[POINTER_MAX_BYTES + 3];

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_non_null(pointer_wrong(str_of(bad[i])));
    assert_null(pointer_wrong(STR("/a~0~1/b")));
    for (size_t i = 0; i <= POINTER_MAX_STEPS; i++)
        strcat(many, "/a");
    assert_non_null(pointer_wrong(str_of(many)));
    memset(longest, 'a', sizeof longest);
    longest[0] = '/';
    assert_non_null(pointer_wrong(str_make(longest, POINTER_MAX_BYTES + 1)));
    assert_null(pointer_wrong(str_make(longest, POINTER_MAX_BYTES)));
}

static void conditions_hold_or_not(void **state)
{
    struct pointer_in in = doc("{\"t\":\"x\",\"e\":\"\",\"n\":0,\"m\":7,\"f\":false,\"y\":true,"
                               "\"z\":null,\"o\":{}}");
    static const struct {
        const char *text;
        bool holds;
    } all[] = {{"/t", true},     {"/e", false},     {"/n", false},      {"/m", true},
               {"/f", false},    {"/y", true},      {"/z", false},      {"/o", true},
               {"/q", false},    {"/t=x", true},    {"/t=y", false},    {"/t!=x", false},
               {"/t!=y", true},  {"/q=x", false},   {"/q!=x", true},    {"/m=7", true},
               {"/m!=7", false}, {"/y=true", true}, {"/f=false", true}, {"/z=null", true},
               {"/e=", true},    {"/t=", false},    {"/o=x", false},    {"/o!=x", true},
               {"/q!=", true}};

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        assert_null(condition_wrong(str_of(all[i].text)));
        if (condition_holds(&in, str_of(all[i].text)) != all[i].holds)
            fail_msg("%s", all[i].text);
    }
    assert_non_null(condition_wrong(STR("t=x")));
    assert_non_null(condition_wrong(STR("=x")));
    assert_non_null(condition_wrong(STR("!=x")));
}

static int setup(void **state)
{
    parser = json_parser_new();
    inner = json_parser_new();
    return 0;
}

static int teardown(void **state)
{
    json_parser_free(parser);
    json_parser_free(inner);
    return 0;
}

UNIT(platform_hook_test_pointer)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pointers_find_what_the_standard_says),
        cmocka_unit_test(numbers_are_ids_and_others_are_not),
        cmocka_unit_test(a_text_that_is_json_is_gone_into_once),
        cmocka_unit_test(wrong_pointers_are_told),
        cmocka_unit_test(conditions_hold_or_not),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
