/* Promises of platform/signal/compose.h. */
#include "unit.h"
#include "base/mem.h"
#include "platform/signal/compose.h"

static const struct {
    const char *markdown, *want; /* the JSON, with ' for " */
} texts[] = {
    {"plain", "{'message':'plain'}"},
    {"**bold** and *it*", "{'message':'bold and it','textStyles':['0:4:BOLD','9:2:ITALIC']}"},
    {"\xf0\x9f\x98\x80 `code`",
     "{'message':'\xf0\x9f\x98\x80 code','textStyles':['3:4:MONOSPACE']}"},
    {"~~a~~ ||b||", "{'message':'a b','textStyles':['0:1:STRIKETHROUGH','2:1:SPOILER']}"},
    {"[here](https://a.example) **b**",
     "{'message':'here (https://a.example) b','textStyles':['25:1:BOLD']}"},
    {"[https://a.example](https://a.example)", "{'message':'https://a.example'}"},
    {"**[here](https://a.example)**",
     "{'message':'here (https://a.example)','textStyles':['0:4:BOLD']}"},
    {"> one\n> **two**\n\nthree",
     "{'message':'> one\\n> two\\n\\nthree','textStyles':['8:3:BOLD']}"},
    {"# Head\ntext", "{'message':'Head\\ntext','textStyles':['0:4:BOLD']}"},
};

static void markdown_becomes_text_and_ranges(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        BUF_LOCAL got = BUF_INIT, want = BUF_INIT;
        struct md m = MD_INIT;
        struct md_part part = {0};
        struct jw w = jw_begin(&got);
        signal_text(&m, str_of(texts[i].markdown));
        assert_true(md_next(&m, SIGNAL_TEXT, &part));
        jw_obj(&w);
        signal_write_text(&w, &m, &part);
        jw_end_obj(&w);
        buf_add_z(&want, texts[i].want);
        for (size_t k = 0; k < want.n; k++)
            want.p[k] = want.p[k] == '\'' ? '"' : want.p[k];
        assert_string_equal(buf_z(&got), buf_z(&want));
        md_done(&m);
    }
}

static void a_cut_range_goes_on_in_the_next_part(void **state)
{
    struct md m = MD_INIT;
    struct md_part part = {0};
    BUF_LOCAL text = BUF_INIT, got = BUF_INIT;

    buf_add_z(&text, "**");
    for (int i = 0; i < 100; i++)
        buf_add_z(&text, "word ");
    buf_add_z(&text, "end**");
    signal_text(&m, buf_str(&text));
    for (size_t parts = 0; md_next(&m, 100, &part); parts++) {
        struct jw w = jw_begin(&got);
        char want[40];
        buf_reset(&got);
        jw_obj(&w);
        signal_write_text(&w, &m, &part);
        jw_end_obj(&w);
        snprintf(want, sizeof want, "\"textStyles\":[\"0:%zu:BOLD\"]", part.len);
        assert_non_null(strstr(buf_z(&got), want));
        assert_true(part.len <= 100 && parts < 10);
    }
    md_done(&m);
}

UNIT(platform_signal_test_compose)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(markdown_becomes_text_and_ranges),
        cmocka_unit_test(a_cut_range_goes_on_in_the_next_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
