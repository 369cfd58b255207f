/* Half Markdown, completed while it streams. */
#include "unit.h"
#include "platform/stream.h"

#define CURSOR " \xe2\x96\x89"

static void check(const char *text, const char *want)
{
    struct buf out = BUF_INIT;

    stream_mend(str_of(text), &out);
    assert_string_equal(buf_z(&out), want);
    buf_done(&out);
}

static void whole_texts_stay_as_they_are(void **state)
{
    static const char *const texts[] = {
        "",
        "plain words",
        "a **b** c *d* _e_ ~~f~~ ||g|| `h`",
        "```c\nint x;\n```",
        "```c\nint x;\n```\nafter",
        "* one\n* two",
        "2 * 3 = 6",
        "snake_case_name and a_b",
        "5 ~ 6",
        "| a | b |\n| - | - |",
        "[text](https://example.org)",
        "\\*not open",
        "`a ** b`",
        "***\nmore",
        "a [note] b (more",
    };

    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        check(texts[i], texts[i]);
}

static void open_fences_are_closed(void **state)
{
    check("```c\nint x;", "```c\nint x;\n```");
    check("```c\nint x;\n", "```c\nint x;\n```");
    check("````\na\n```\nb", "````\na\n```\nb\n````");
    check("~~~\n**x", "~~~\n**x\n~~~");
    check("```c\nint" CURSOR, "```c\nint" CURSOR "\n```");
}

static void open_emphasis_is_closed_behind_the_cursor(void **state)
{
    check("a **b", "a **b**");
    check("a *b **c", "a *b **c***");
    check("a **b" CURSOR, "a **b" CURSOR "**");
    check("`code", "`code`");
    check("``co`de", "``co`de``");
    check("||secret", "||secret||");
    check("~~gone", "~~gone~~");
    check("old **x\n\nnew", "old **x\n\nnew"); /* another paragraph */
    check("**a ", "**a**");
}

static void what_encloses_nothing_yet_is_held_back(void **state)
{
    check("a **", "a ");
    check("a `", "a ");
    check("a ***", "a ");
    check("see [the page](https://exa", "see ");
    check("| a | b |\n| - | - |\n| 1 | 2", "| a | b |\n| - | - |\n");
}

static void a_cursor_is_a_block_at_the_end(void **state)
{
    assert_str(action_without_cursor(STR("a" CURSOR)), "a");
    assert_str(action_without_cursor(STR("a\xe2\x96\x8c")), "a");
    assert_str(action_without_cursor(STR("a \xe2\x96\x91")), "a \xe2\x96\x91"); /* a shade */
    assert_str(action_without_cursor(STR("\xe2\x96\x89 a")), "\xe2\x96\x89 a");
    assert_str(action_without_cursor(STR("")), "");
}

static void settled(const char *text, const char *want)
{
    assert_str(str_make(text, stream_settled(str_of(text))), want);
}

static void where_text_is_only_appended_half_of_it_waits(void **state)
{
    settled("plain words", "plain words");
    settled("words" CURSOR, "words");
    settled("a **b** and *c", "a **b** and ");
    settled("a **", "a ");
    settled("old *x\n\nnew", "old *x\n\nnew"); /* another paragraph */
    settled("see [the page](https://exa", "see ");
    settled("ask <@U0", "ask ");
    settled("ask <", "ask ");
    settled("```c\na <", "```c\na "); /* "<" alone hides what comes: a mention */
    settled("1 < 2 > 1", "1 < 2 > 1");
    settled("```c\nint x;", "```c\nint x;"); /* what is code already is code */
    settled("```c\nint x;\n``", "```c\nint x;\n");
    settled("```py", "");
    settled("| a | b |\n| - | - |\n| 1 | 2", "| a | b |\n| - | - |\n");

    struct buf stray = BUF_INIT; /* a mark that never closes is not waited for */
    buf_add_str(&stray, STR("*"));
    for (int i = 0; i < 400; i++)
        buf_add_str(&stray, STR(" words"));
    stray.p[1] = 'x';
    assert_int_equal(stream_settled(buf_str(&stray)), stray.n);
    buf_add_str(&stray, STR("<"));
    assert_int_equal(stream_settled(buf_str(&stray)), stray.n - 1);
    buf_done(&stray);
}

UNIT(platform_test_stream_mend)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_texts_stay_as_they_are),
        cmocka_unit_test(open_fences_are_closed),
        cmocka_unit_test(open_emphasis_is_closed_behind_the_cursor),
        cmocka_unit_test(what_encloses_nothing_yet_is_held_back),
        cmocka_unit_test(where_text_is_only_appended_half_of_it_waits),
        cmocka_unit_test(a_cursor_is_a_block_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
