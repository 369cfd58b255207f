/* Promises of platform/whatsapp/compose.h. */
#include "unit.h"
#include "base/json.h"
#include "base/mem.h"
#include "platform/prompts.h"
#include "platform/whatsapp/compose.h"

static void markdown_is_written_as_whatsapp_shows_it(void **state)
{
    static const struct {
        const char *markdown, *text;
    } cases[] = {
        {"plain text", "plain text"},
        {"**bold** and __bold__", "*bold* and *bold*"},
        {"*italic* and _italic_", "_italic_ and _italic_"},
        {"~~gone~~", "~gone~"},
        {"**a *b* c**", "*a _b_ c*"},
        {"***both***", "*both*"},
        {"# Heading\n## **Two**", "*Heading*\n*Two*"},
        {"#tag", "#tag"},
        {"* one\n+ two\n- three\n  * four", "- one\n- two\n- three\n  - four"},
        {"[label](https://x.y/z)", "label (https://x.y/z)"},
        {"[https://x.y](https://x.y)", "https://x.y"},
        {"[not a link] (x) [a](b c)", "[not a link] (x) [a](b c)"},
        {"2 * 3 * 4 and snake_case_name", "2 * 3 * 4 and snake_case_name"},
        {"a ** b", "a ** b"},
        {"**never closed", "**never closed"},
        {"`**code**` **x**", "`**code**` *x*"},
        {"```python\n**x** # no\n```\n**y**", "```\n**x** # no\n```\n*y*"},
        {"~~~\na\n~~~", "```\na\n```"},
        {"\\*not\\* \\_this\\_", "*not* _this_"},
        {"> quote **b**", "> quote *b*"},
        {"", ""},
        {"a\n\nb\n", "a\n\nb\n"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        BUF_LOCAL out = BUF_INIT;
        wa_text_add(&out, str_of(cases[i].markdown));
        assert_string_equal(buf_z(&out), cases[i].text);
    }
}

static void a_template_gets_one_line(void **state)
{
    BUF_LOCAL out = BUF_INIT, all = BUF_INIT;

    assert_true(wa_parameter_add(&out, STR(" a\n\nb\t c    d ")));
    assert_string_equal(buf_z(&out), "a b c d");
    for (size_t i = 0; i < 500; i++)
        buf_add_z(&all, "\xf0\x9f\x98\x80");
    buf_reset(&out);
    assert_true(wa_parameter_add(&out, buf_str(&all)) && str_eq(buf_str(&out), buf_str(&all)));
    buf_add_z(&all, "x");
    buf_reset(&out);
    assert_false(wa_parameter_add(&out, buf_str(&all)));
    assert_int_equal(out.n, 0);
}

#define LONG "a label of more than twenty-four characters, and then of more than seventy-two"

static void options_are_buttons_rows_or_numbers(void **state)
{
    static const struct {
        size_t n;
        const char *label, *type; /* NULL: numbers */
    } cases[] = {{1, "A", "button"}, {3, "A", "button"}, {4, "A", "list"},
                 {10, LONG, "list"}, {11, "A", NULL},    {2, LONG, "list"}};
    struct json_parser *p = json_parser_new();

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct prompt_option options[11];
        char labels[11][128], ids[11][32];
        struct prompt q = {.id = (char *)"q", .options = options, .n_options = cases[i].n};
        BUF_LOCAL out = BUF_INIT;
        struct json doc;
        for (size_t k = 0; k < q.n_options; k++) {
            snprintf(labels[k], sizeof labels[k], "%zu%s", k, cases[i].label);
            snprintf(ids[k], sizeof ids[k], "o%zu", k);
            options[k] = (struct prompt_option){.id = ids[k], .label = labels[k]};
        }
        assert_int_equal(wa_question_add(&out, STR("Sure?"), &q), cases[i].type != NULL);
        if (cases[i].type == NULL)
            continue;
        assert_true(json_parse(p, buf_str(&out), &doc));
        assert_str(json_str(doc, "type"), cases[i].type);
    }
    struct prompt_option same[] = {{.id = (char *)"a", .label = (char *)"A"},
                                   {.id = (char *)"b", .label = (char *)"A"}};
    struct prompt q = {.id = (char *)"q", .options = same, .n_options = 2};
    BUF_LOCAL out = BUF_INIT, text = BUF_INIT;
    struct json doc;
    assert_true(wa_question_add(&out, STR("Sure?"), &q)); /* buttons have to differ */
    assert_true(json_parse(p, buf_str(&out), &doc));
    assert_str(json_str(doc, "type"), "list");
    for (size_t i = 0; i < 1025; i++)
        buf_add_c(&text, 'x');
    assert_false(wa_question_add(&out, buf_str(&text), &q));
    json_parser_free(p);
}

static void files_have_types_and_sizes(void **state)
{
    assert_string_equal(wa_files_of(STR("image/PNG"))->message, "image");
    assert_string_equal(wa_files_of(STR("audio/ogg; codecs=opus"))->upload,
                        "audio/ogg; codecs=opus");
    assert_string_equal(wa_files_of(STR("text/csv"))->upload, "text/plain");
    assert_null(wa_files_of(STR("application/zip")));
    assert_null(wa_files_of(STR("")));
    assert_false(wa_files_captioned(wa_files_of(STR("audio/aac"))));
    assert_true(wa_files_captioned(wa_files_of(STR("video/mp4"))));
}

UNIT(platform_whatsapp_test_compose)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(markdown_is_written_as_whatsapp_shows_it),
        cmocka_unit_test(a_template_gets_one_line),
        cmocka_unit_test(options_are_buttons_rows_or_numbers),
        cmocka_unit_test(files_have_types_and_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
