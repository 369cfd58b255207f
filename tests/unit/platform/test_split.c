/* Promises of platform/split.h. */
#include "unit.h"
#include "base/rand.h"
#include "platform/split.h"

static struct split s;

static int setup(void **state)
{
    s = SPLIT_INIT;
    return 0;
}

static int teardown(void **state)
{
    split_done(&s);
    return 0;
}

static struct str times(struct buf *b, const char *what, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buf_add_z(b, what);
    return buf_str(b);
}

static void a_short_text_is_one_part_as_it_is(void **state)
{
    split_text(&s, STR("hello\n\n  world"), 2000, SPLIT_CHARS);
    assert_int_equal(s.n, 1);
    assert_str(split_part(&s, 0), "hello\n\n  world");
}

static void white_space_alone_gives_no_part(void **state)
{
    split_text(&s, STR(""), 2000, SPLIT_CHARS);
    assert_int_equal(s.n, 0);
    split_text(&s, STR(" \n\t\n"), 2000, SPLIT_CHARS);
    assert_int_equal(s.n, 0);
}

static void a_paragraph_border_is_preferred_to_a_line_and_a_line_to_a_word(void **state)
{
    struct buf b = BUF_INIT;

    times(&b, "word ", 8); /* 40 */
    buf_add_z(&b, "\n\nsecond para\nthe third line of it goes on and on");
    split_text(&s, buf_str(&b), 64, SPLIT_CHARS);
    assert_int_equal(s.n, 2);
    assert_str(split_part(&s, 0), "word word word word word word word word");
    assert_str(split_part(&s, 1), "second para\nthe third line of it goes on and on");

    buf_reset(&b);
    times(&b, "word ", 8);
    buf_add_z(&b, "\nline two goes on past the end of it all");
    split_text(&s, buf_str(&b), 64, SPLIT_CHARS);
    assert_int_equal(s.n, 2);
    assert_str(split_part(&s, 1), "line two goes on past the end of it all");
    buf_done(&b);
}

static void words_stay_whole_where_they_can(void **state)
{
    struct buf b = BUF_INIT;

    times(&b, "seven77 ", 20);
    split_text(&s, buf_str(&b), 64, SPLIT_CHARS);
    assert_int_equal(s.n, 3);
    for (size_t i = 0; i < s.n; i++)
        assert_memory_equal(split_part(&s, i).p, "seven77", 7);
    buf_done(&b);
}

static void a_word_without_end_is_cut_hard_but_never_inside_a_code_point(void **state)
{
    struct buf b = BUF_INIT;

    times(&b, "\xf0\x9f\x98\x80", 100); /* two UTF-16 units each */
    split_text(&s, buf_str(&b), 65, SPLIT_UTF16);
    assert_int_equal(s.n, 4);
    assert_int_equal(split_part(&s, 0).n, 32 * 4);
    split_text(&s, buf_str(&b), 65, SPLIT_CHARS);
    assert_int_equal(s.n, 2);
    assert_int_equal(split_part(&s, 0).n, 65 * 4);
    buf_done(&b);
}

static void a_cut_fence_is_closed_and_reopened_with_its_language(void **state)
{
    struct buf b = BUF_INIT;

    buf_add_z(&b, "look:\n```python title=x\n");
    times(&b, "print('hello')\n", 6);
    buf_add_z(&b, "```\nthat was it");
    split_text(&s, buf_str(&b), 80, SPLIT_CHARS);
    assert_int_equal(s.n, 2);
    assert_str(split_part(&s, 0), "look:\n```python title=x\nprint('hello')\nprint('hello')\n"
                                  "print('hello')\n```");
    assert_str(split_part(&s, 1), "```python\nprint('hello')\nprint('hello')\nprint('hello')\n```\n"
                                  "that was it");
    buf_done(&b);
}

static void a_fence_cut_before_its_closing_line_leaves_no_empty_fence_behind(void **state)
{
    struct buf b = BUF_INIT;

    buf_add_z(&b, "```\n");
    times(&b, "x", 56);
    buf_add_z(&b, "\n```\nand then some words");
    split_text(&s, buf_str(&b), 64, SPLIT_CHARS);
    assert_int_equal(s.n, 2);
    assert_str(split_part(&s, 1), "and then some words");
    buf_done(&b);
}

static void indentation_survives_a_cut_at_a_line(void **state)
{
    struct buf b = BUF_INIT;

    times(&b, "x", 60);
    buf_add_z(&b, "\n    - indented item that is long");
    split_text(&s, buf_str(&b), 64, SPLIT_CHARS);
    assert_int_equal(s.n, 2);
    assert_str(split_part(&s, 1), "    - indented item that is long");
    buf_done(&b);
}

/* ---- properties, on texts made of the pieces that cause trouble ---- */

static void random_text(struct rand *r, struct buf *b, bool fences)
{
    static const char *const pieces[] = {
        "a",
        "word ",
        "\n",
        "\n\n",
        " ",
        "  ",
        "\xc3\xa9",
        "\xf0\x9f\x98\x80",
        "\xe2\x82\xac",
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "tab\t",
        "- li\n",
        "\n```\n",
        "\n```js\n",
        "\n~~~~\n",
        "`x`",
    };
    size_t n = 1 + rand_below(r, 120);

    for (size_t i = 0; i < n; i++)
        buf_add_z(b, pieces[rand_below(r, fences ? 16 : 12)]);
}

static void add_solid(struct buf *to, struct str text)
{
    for (size_t i = 0; i < text.n; i++)
        if ((unsigned char)text.p[i] > ' ')
            buf_add_c(to, text.p[i]);
}

/* Fences as the naive reader sees them: open or closed at the end of @text. */
static bool ends_open(struct str text)
{
    struct str line;
    char mark = 0;
    size_t len = 0;

    while (str_split(&text, '\n', &line)) {
        struct str t = str_trim(line);
        size_t n = 0;
        while (n < t.n && t.p[n] == t.p[0] && (t.p[0] == '`' || t.p[0] == '~'))
            n++;
        if (n < 3)
            continue;
        if (len == 0 && memchr(t.p + n, '`', t.n - n) == NULL)
            mark = t.p[0], len = n;
        else if (len > 0 && t.p[0] == mark && n >= len && t.n == n)
            len = 0;
    }
    return len > 0;
}

static void no_part_is_too_long_and_none_breaks_a_code_point(void **state)
{
    struct rand r = rand_seeded(7);

    for (int run = 0; run < 3000; run++) {
        struct buf b = BUF_INIT;
        enum split_unit unit = run & 1 ? SPLIT_UTF16 : SPLIT_CHARS;
        size_t limit = SPLIT_MIN_LIMIT + rand_below(&r, 200);

        random_text(&r, &b, true);
        split_text(&s, buf_str(&b), limit, unit);
        for (size_t i = 0; i < s.n; i++) {
            assert_true(split_length(split_part(&s, i), unit) <= limit);
            assert_true(utf8_valid(split_part(&s, i)));
            assert_true(str_trim(split_part(&s, i)).n > 0);
            if (s.n > 1)
                assert_false(ends_open(split_part(&s, i)));
        }
        buf_done(&b);
    }
}

static void nothing_but_white_space_is_lost_or_added_outside_of_fences(void **state)
{
    struct rand r = rand_seeded(11);

    for (int run = 0; run < 3000; run++) {
        struct buf b = BUF_INIT, want = BUF_INIT, got = BUF_INIT;

        random_text(&r, &b, false);
        add_solid(&want, buf_str(&b));
        split_text(&s, buf_str(&b), SPLIT_MIN_LIMIT + rand_below(&r, 100), SPLIT_CHARS);
        for (size_t i = 0; i < s.n; i++)
            add_solid(&got, split_part(&s, i));
        assert_true(str_eq(buf_str(&want), buf_str(&got)));
        buf_done(&b);
        buf_done(&want);
        buf_done(&got);
    }
}

static bool is_subsequence(struct str small, struct str big)
{
    size_t at = 0;

    for (size_t i = 0; i < big.n && at < small.n; i++)
        at += big.p[i] == small.p[at];
    return at == small.n;
}

static void with_fences_everything_is_still_there_in_order(void **state)
{
    struct rand r = rand_seeded(13);

    for (int run = 0; run < 3000; run++) {
        struct buf b = BUF_INIT, want = BUF_INIT, got = BUF_INIT;

        random_text(&r, &b, true);
        add_solid(&want, buf_str(&b));
        split_text(&s, buf_str(&b), SPLIT_MIN_LIMIT + rand_below(&r, 100), SPLIT_CHARS);
        for (size_t i = 0; i < s.n; i++)
            add_solid(&got, split_part(&s, i));
        assert_true(is_subsequence(buf_str(&want), buf_str(&got)));
        buf_done(&b);
        buf_done(&want);
        buf_done(&got);
    }
}

static void bytes_that_are_no_text_do_not_hurt(void **state)
{
    struct rand r = rand_seeded(17);

    for (int run = 0; run < 500; run++) {
        char noise[700];

        rand_bytes(&r, noise, sizeof noise);
        split_text(&s, str_make(noise, sizeof noise), 64, SPLIT_UTF16);
        for (size_t i = 0; i < s.n; i++)
            assert_true(split_length(split_part(&s, i), SPLIT_UTF16) <= 64);
    }
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
UNIT(platform_test_split)
{
    const struct CMUnitTest tests[] = {
        T(a_short_text_is_one_part_as_it_is),
        T(white_space_alone_gives_no_part),
        T(a_paragraph_border_is_preferred_to_a_line_and_a_line_to_a_word),
        T(words_stay_whole_where_they_can),
        T(a_word_without_end_is_cut_hard_but_never_inside_a_code_point),
        T(a_cut_fence_is_closed_and_reopened_with_its_language),
        T(a_fence_cut_before_its_closing_line_leaves_no_empty_fence_behind),
        T(indentation_survives_a_cut_at_a_line),
        T(no_part_is_too_long_and_none_breaks_a_code_point),
        T(nothing_but_white_space_is_lost_or_added_outside_of_fences),
        T(with_fences_everything_is_still_there_in_order),
        T(bytes_that_are_no_text_do_not_hurt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
