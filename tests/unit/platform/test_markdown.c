/* The promises of markdown.h.  What is expected is written with tags: <b> <i> <s> <sp> <a url> <c>
 * <pre lang> <q>; a real '<' of the text comes out as "&lt;". */
#include "unit.h"
#include <time.h>
#include "base/jw.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rand.h"
#include "platform/markdown.h"

static const char *const tags[] = {
    [MD_BOLD] = "b", [MD_ITALIC] = "i", [MD_STRIKE] = "s", [MD_SPOILER] = "sp",
    [MD_LINK] = "a", [MD_CODE] = "c",   [MD_PRE] = "pre",  [MD_QUOTE] = "q",
};

/* ---- a validator as strict as the Bot API's rules ---- */

static bool may_contain(enum md_kind outer, enum md_kind inner)
{
    if (outer == MD_CODE || outer == MD_PRE || outer == inner)
        return false;
    if (inner == MD_CODE || inner == MD_PRE)
        return outer == MD_QUOTE;
    if (inner == MD_QUOTE)
        return false; /* we never write one inside of anything */
    return true;
}

static bool is_boundary(struct str text, size_t unit)
{
    size_t at = 0, seen = 0;

    while (seen < unit && at < text.n) {
        size_t n = utf8_seq_bytes(str_skip(text, at));
        assert_true(n > 0);
        seen += n == 4 ? 2 : 1;
        at += n;
    }
    return seen == unit;
}

static void assert_valid(const struct md *m)
{
    struct str text = buf_str(&m->text);
    size_t stack[64], n = 0;

    assert_true(utf8_valid(text));
    assert_int_equal(m->units, utf16_units(text));
    for (size_t i = 0; i < m->n; i++) {
        const struct md_entity *e = &m->entities[i];
        assert_true(e->len > 0);
        assert_true(e->off + e->len <= m->units);
        assert_true(is_boundary(text, e->off) && is_boundary(text, e->off + e->len));
        if (i > 0)
            assert_true(m->entities[i - 1].off <= e->off);
        while (n > 0 && e->off >= m->entities[stack[n - 1]].off + m->entities[stack[n - 1]].len)
            n--;
        for (size_t k = 0; k < n; k++) {
            const struct md_entity *o = &m->entities[stack[k]];
            assert_true(e->off + e->len <= o->off + o->len);
            assert_true(may_contain(o->kind, e->kind));
        }
        assert_true(n < ARRAY_LEN(stack));
        stack[n++] = i;
        if (e->kind == MD_LINK)
            assert_true(e->n_arg > 5 && utf8_valid(str_make(m->args.p + e->arg, e->n_arg)));
    }
}

static void render(struct buf *out, const struct md *m)
{
    size_t unit = 0, stack[64], n = 0, next = 0;
    struct str text = buf_str(&m->text);

    for (size_t at = 0; at <= text.n;) {
        while (n > 0 && m->entities[stack[n - 1]].off + m->entities[stack[n - 1]].len == unit)
            buf_printf(out, "</%s>", tags[m->entities[stack[--n]].kind]);
        for (; next < m->n && m->entities[next].off == unit; next++) {
            const struct md_entity *e = &m->entities[next];
            buf_printf(out, "<%s%s%.*s>", tags[e->kind], e->n_arg > 0 ? " " : "", (int)e->n_arg,
                       m->args.p + e->arg);
            stack[n++] = next;
        }
        if (at == text.n)
            break;
        size_t len = utf8_seq_bytes(str_skip(text, at));
        if (text.p[at] == '<')
            buf_add_z(out, "&lt;");
        else
            buf_add(out, text.p + at, len);
        unit += len == 4 ? 2 : 1;
        at += len;
    }
}

static void assert_reads(const char *markdown, const char *want)
{
    struct md m = MD_INIT;
    struct buf got = BUF_INIT;

    md_parse(&m, str_of(markdown));
    assert_valid(&m);
    render(&got, &m);
    assert_string_equal(buf_z(&got), want);
    buf_done(&got);
    md_done(&m);
}

static void markdown_becomes_styled_text(void **state)
{
    static const char *const table[][2] = {
        {"plain", "plain"},
        {"**bold** and *it* and __bold__ and _it_",
         "<b>bold</b> and <i>it</i> and <b>bold</b> and <i>it</i>"},
        {"***both***", "<i><b>both</b></i>"},
        {"**a *b* c**", "<b>a <i>b</i> c</b>"},
        {"*a **b** c*", "<i>a <b>b</b> c</i>"},
        {"~~gone~~ ||secret||", "<s>gone</s> <sp>secret</sp>"},
        {"`x*y*`", "<c>x*y*</c>"},
        {"`` a`b ``", "<c>a`b</c>"},
        {"**see `code` now**", "<b>see </b><c>code</c><b> now</b>"},
        {"[text](https://x.org/a_b)", "<a https://x.org/a_b>text</a>"},
        {"[*t*](https://x.org/(a))", "<a https://x.org/(a)><i>t</i></a>"},
        {"[t](<https://x.org/a> \"title\")", "<a https://x.org/a>t</a>"},
        {"[run `ls`](https://x.org)", "<a https://x.org>run ls</a>"},
        {"**[a](https://x.org)**", "<a https://x.org><b>a</b></a>"},
        {"![cat](https://x.org/c.png)", "<a https://x.org/c.png>cat</a>"},
        {"[![b](https://i.org/s)](https://x.org)", "<a https://x.org>b</a>"},
        {"[](https://x.org)", "<a https://x.org>https://x.org</a>"},
        {"[file](src/main.c)", "file (src/main.c)"},
        {"[top](#top)", "top"},
        {"[x](javascript:alert)", "x (javascript:alert)"},
        {"<https://x.org/_a_>", "https://x.org/_a_"},
        {"# Title **x**", "<b>Title x</b>"},
        {"## Two ##", "<b>Two</b>"},
        {"### `f()` works", "<c>f()</c><b> works</b>"},
        {"#tag", "#tag"},
        {"- a\n* b\n+ c\n  - d", "\u2022 a\n\u2022 b\n\u2022 c\n  \u2022 d"},
        {"- [ ] do\n- [x] done", "\u2610 do\n\u2611 done"},
        {"1. a\n2. *b*", "1. a\n2. <i>b</i>"},
        {"> q *x*\n> r\nafter", "<q>q <i>x</i>\nr</q>\nafter"},
        {"> > deep", "<q>deep</q>"},
        {"> ```c\n> int x;\n> ```", "<q><pre c>int x;</pre></q>"},
        {"a\n\n---\n\nb", "a\n\n\u2014\u2014\u2014\n\nb"},
        {"| a | b |\n|---|---|\n| 1 | 2 |\nend", "<pre>| a | b |\n|---|---|\n| 1 | 2 |</pre>\nend"},
        {"see\n```python\nx = 1\n\ny\n```\nok", "see\n<pre python>x = 1\n\ny</pre>\nok"},
        {"```\nnever closed **x**", "<pre>never closed **x**</pre>"},
        {"~~~js title\n```\n~~~", "<pre js>```</pre>"},
        {"```\n```", ""},
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        assert_reads(table[i][0], table[i][1]);
}

static void what_is_no_markdown_stays_as_it_is(void **state)
{
    static const char *const same[] = {
        "snake_case_name, 2 * 3 * 4",
        "a ** b ** c",
        "*",
        "**",
        "a **** b",
        "_ _",
        "a || b || c",
        "`open",
        "[a](",
        "[a] (https://x.org)",
        "[a](https://x.org",
        "1 > 0 & 2 ! = # + - . ( ) { } | ~",
        "C:\\path\\file",
        "- ",
        "-5",
        "1.5",
        "unpaired **bold",
        "unpaired *it _also",
        "a ~ b ~~ c",
    };

    assert_reads("https://x.org/a_b", "https://x.org/a_b");
    for (size_t i = 0; i < ARRAY_LEN(same); i++)
        assert_reads(same[i], same[i]);
    assert_reads("\\*not\\* \\`code\\` \\[x\\](y)", "*not* `code` [x](y)");
    assert_reads("a < b", "a &lt; b");
    assert_reads("a\r\nb", "a\nb");
}

static void offsets_count_utf16_units(void **state)
{
    struct md m = MD_INIT;

    md_parse(&m, STR("\U0001F600\u00e9 **\U0001F600**"));
    assert_int_equal(m.n, 1);
    assert_int_equal(m.entities[0].off, 4);
    assert_int_equal(m.entities[0].len, 2);
    assert_int_equal(m.units, 6);
    md_done(&m);
}

/* ---- parts ---- */

struct parts {
    size_t n;
    struct buf text[64], json[64];
};

static void cut(struct parts *p, struct str markdown, size_t limit)
{
    struct md m = MD_INIT;

    *p = (struct parts){0};
    md_parse(&m, markdown);
    for (struct md_part part = {0}; md_next(&m, limit, &part); p->n++) {
        struct jw w = jw_begin(&p->json[p->n]);
        struct str text = str_make(m.text.p + part.from, part.to - part.from);
        assert_true(p->n < 64);
        assert_int_equal(utf16_units(text), part.len);
        assert_true(part.len <= limit && part.len > 0);
        assert_true(utf8_valid(text));
        buf_add_str(&p->text[p->n], text);
        jw_obj(&w);
        md_write(&w, &m, &part, true);
        jw_end_obj(&w);
    }
    md_done(&m);
}

static void drop(struct parts *p)
{
    for (size_t i = 0; i < p->n; i++) {
        buf_done(&p->text[i]);
        buf_done(&p->json[i]);
    }
}

static void long_texts_are_cut_at_paragraphs_lines_and_words(void **state)
{
    struct parts p;

    cut(&p, STR("one two\n\nthree four"), 12);
    assert_int_equal(p.n, 2);
    assert_str(buf_str(&p.text[0]), "one two");
    assert_str(buf_str(&p.text[1]), "three four");
    drop(&p);
    cut(&p, STR("aaa bbb ccc ddd"), 8);
    assert_int_equal(p.n, 2);
    assert_str(buf_str(&p.text[0]), "aaa bbb");
    assert_str(buf_str(&p.text[1]), "ccc ddd");
    drop(&p);
    cut(&p, STR("abcdefghij"), 4);
    assert_int_equal(p.n, 3);
    assert_str(buf_str(&p.text[2]), "ij");
    drop(&p);
    cut(&p, STR("  \n \n"), 100);
    assert_int_equal(p.n, 0);
}

static void a_cut_never_halves_a_surrogate_pair(void **state)
{
    struct parts p;

    cut(&p, STR("\U0001F600\U0001F600\U0001F600"), 5);
    assert_int_equal(p.n, 2);
    assert_int_equal(p.text[0].n, 8);
    drop(&p);
}

static void entities_go_on_behind_a_cut(void **state)
{
    struct parts p;

    cut(&p, STR("```c\naaaa\n  bb\n```"), 6);
    assert_int_equal(p.n, 2);
    assert_str(buf_str(&p.json[0]),
               "{\"text\":\"aaaa\",\"entities\":[{\"type\":\"pre\",\"offset\":0,"
               "\"length\":4,\"language\":\"c\"}]}");
    assert_str(buf_str(&p.json[1]),
               "{\"text\":\"  bb\",\"entities\":[{\"type\":\"pre\",\"offset\":0,"
               "\"length\":4,\"language\":\"c\"}]}");
    drop(&p);
    cut(&p, STR("[aaaa bbbb](https://x.org)"), 5);
    assert_str(buf_str(&p.json[1]),
               "{\"text\":\"bbbb\",\"entities\":[{\"type\":\"text_link\",\"offset\":0,"
               "\"length\":4,\"url\":\"https://x.org\"}]}");
    drop(&p);
}

/* ---- whatever comes in ---- */

static void add_random(struct buf *b, struct rand *r)
{
    static const char *const bits[] = {
        "*",
        "**",
        "***",
        "_",
        "__",
        "~~",
        "||",
        "`",
        "``",
        "```",
        "```c\n",
        "\n",
        "\n\n",
        "> ",
        ">",
        "# ",
        "- ",
        "1. ",
        "[",
        "](",
        "](https://x.org)",
        ")",
        "!",
        "<",
        ">",
        "\\",
        " ",
        "  ",
        "a",
        "word",
        "x y",
        "\u00e9",
        "\U0001F600",
        "| a | b |\n|--|--|\n",
        "---\n",
        "\t",
        "~~~\n",
        "(",
        "https://x.org/a_b",
        "- [ ] ",
        "\r\n",
    };

    for (size_t n = rand_below(r, 40); n > 0; n--)
        buf_add_z(b, bits[rand_below(r, ARRAY_LEN(bits))]);
}

static void any_text_gives_valid_entities_and_loses_no_letter(void **state)
{
    struct rand r = rand_seeded(7);

    for (int round = 0; round < 20000; round++) {
        struct buf in = BUF_INIT;
        struct md m = MD_INIT;
        size_t letters = 0, seen = 0, at = 0;
        add_random(&in, &r);
        md_parse(&m, buf_str(&in));
        assert_valid(&m);
        for (size_t i = 0; i < m.text.n; i++)
            letters += m.text.p[i] != ' ' && m.text.p[i] != '\n' && m.text.p[i] != '\t';
        for (struct md_part p = {0}; md_next(&m, 8, &p);) {
            assert_true(p.from >= at && p.to > p.from && p.len <= 8);
            at = p.to;
            for (size_t i = p.from; i < p.to; i++)
                seen += m.text.p[i] != ' ' && m.text.p[i] != '\n' && m.text.p[i] != '\t';
        }
        assert_int_equal(letters, seen);
        buf_done(&in);
        md_done(&m);
    }
}

static void links_inside_a_link_are_its_text(void **state)
{
    struct parts p;

    cut(&p, STR("[a [b](https://y.org) ![c](https://z.org) d](https://x.org)"), 64);
    assert_str(buf_str(&p.json[0]),
               "{\"text\":\"a b c d\",\"entities\":[{\"type\":\"text_link\",\"offset\":0,"
               "\"length\":7,\"url\":\"https://x.org\"}]}");
    drop(&p);
}

/* As deep as a frame allows: a stack of one frame per level would be gone long before. */
static void nested_links_cost_no_stack(void **state)
{
    for (size_t n = 5000; n <= 100000; n += 95000) {
        struct buf in = BUF_INIT;
        struct md m = MD_INIT;
        for (size_t i = 0; i < n; i++)
            buf_add_c(&in, '[');
        buf_add_c(&in, 'a');
        for (size_t i = 0; i < n; i++)
            buf_add_z(&in, "](https://x.org)");
        md_parse(&m, buf_str(&in));
        if (n == 5000)
            assert_str(buf_str(&m.text), "a");
        assert_true(m.text.n <= in.n);
        buf_done(&in);
        md_done(&m);
    }
}

static void hostile_input_takes_linear_time(void **state)
{
    static const char *const bits[] = {"*a ", "[",          "`a``b", "[a](",  "**_",   "||a",
                                       "> ",  "<https://a", "_a*",   "[`](x", "[a](<", "[a](x\"y"};

    for (size_t i = 0; i < ARRAY_LEN(bits); i++) {
        struct buf in = BUF_INIT;
        struct md m = MD_INIT;
        while (in.n < 500000)
            buf_add_z(&in, bits[i]);
        md_parse(&m, buf_str(&in)); /* the test's time-out is the assertion */
        assert_true(m.text.n <= in.n);
        md_done(&m);
        buf_done(&in);
    }
}

static double cpu_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Steps are counted, because on a busy machine time says little: MD_MOST_WORK of them took 1 ms,
 * and the search that used up the last of them is bounded by the text. */
static void no_text_makes_more_work_than_that(void **state)
{
    static const char *const bits[] = {"[",  "](", "(",  ")",        "*",  "_",  "`", "a", " ",
                                       "\n", "<",  ">",  "|",        "~~", "\"", "]", "!", "\\",
                                       "# ", "- ", "> ", "http://a", "'",  "**", "||"};
    unsigned seed = 1;

    for (int k = 0; k < 400; k++) {
        struct buf in = BUF_INIT, bit = BUF_INIT;
        struct md m = MD_INIT;
        for (size_t i = 0; i < 1 + (unsigned)k % 7; i++) {
            seed = seed * 1103515245 + 12345;
            buf_add_z(&bit, bits[(seed >> 16) % ARRAY_LEN(bits)]);
        }
        while (in.n < 65536)
            buf_add_str(&in, buf_str(&bit));
        md_parse(&m, buf_str(&in));
        if (m.work > MD_MOST_WORK + 65536 / 16 + 16)
            fail_msg("%.*s: %zu", (int)bit.n, bit.p, m.work);
        md_done(&m);
        buf_done(&in);
        buf_done(&bit);
    }
}

static void what_is_too_much_stays_as_text(void **state)
{
    struct buf in = BUF_INIT;
    struct md m = MD_INIT;

    while (in.n < 60000)
        buf_add_z(&in, "*a* ");
    buf_add_z(&in, "the *end*\n\n**and** more");
    md_parse(&m, buf_str(&in));
    assert_true(m.n > 1000);
    struct str tail = STR("the *end*\n\n**and** more");
    assert_str(str_skip(buf_str(&m.text), m.text.n - tail.n), tail.p);
    buf_done(&in);
    md_done(&m);
}

static void a_long_answer_of_the_usual_kind_is_read_whole(void **state)
{
    struct buf in = BUF_INIT;
    struct md m = MD_INIT;

    while (in.n < 65000)
        buf_add_z(&in, "## A heading\n\nSome words, **some of them bold**, a `name()` and [a "
                       "link](https://x.org).\n\n- an item\n- [x] another *item* of the list\n\n");
    buf_add_z(&in, "**the end**");
    md_parse(&m, buf_str(&in));
    assert_true(m.work < MD_MOST_WORK / 2);
    assert_int_equal(m.entities[m.n - 1].len, 7);
    buf_done(&in);
    md_done(&m);
}

/* The longest text that is read at all, sixteen messages, in one turn of the loop: under 2 ms, and
 * with sanitizers and company on the machine not thirty times that. */
static void the_longest_text_of_the_worst_kind_takes_no_long_turn(void **state)
{
    static const char *const bits[] = {"[a](",           "[*a](", "[[a]](",  "*a",
                                       "# a\n",          "\n",    "(",       "[a](b) ",
                                       "[a](((((((((((", "**a* ", "|a|b|\n", "> *a",
                                       "- [ ] a\n"};

    for (size_t i = 0; i < ARRAY_LEN(bits); i++) {
        double best = 1e9;
        struct buf in = BUF_INIT;
        while (in.n < 65536)
            buf_add_z(&in, bits[i]);
        for (int k = 0; k < 5; k++) {
            struct md m = MD_INIT;
            double begin = cpu_ms();
            md_parse(&m, buf_str(&in));
            best = cpu_ms() - begin < best ? cpu_ms() - begin : best;
            assert_true(m.n <= MD_MOST_ENTITIES);
            md_done(&m);
        }
        if (best > 60)
            fail_msg("%s: %.1f ms", bits[i], best);
        buf_done(&in);
    }
}

UNIT(platform_test_markdown)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_longest_text_of_the_worst_kind_takes_no_long_turn),
        cmocka_unit_test(no_text_makes_more_work_than_that),
        cmocka_unit_test(what_is_too_much_stays_as_text),
        cmocka_unit_test(a_long_answer_of_the_usual_kind_is_read_whole),
        cmocka_unit_test(markdown_becomes_styled_text),
        cmocka_unit_test(what_is_no_markdown_stays_as_it_is),
        cmocka_unit_test(offsets_count_utf16_units),
        cmocka_unit_test(long_texts_are_cut_at_paragraphs_lines_and_words),
        cmocka_unit_test(a_cut_never_halves_a_surrogate_pair),
        cmocka_unit_test(entities_go_on_behind_a_cut),
        cmocka_unit_test(any_text_gives_valid_entities_and_loses_no_letter),
        cmocka_unit_test(links_inside_a_link_are_its_text),
        cmocka_unit_test(nested_links_cost_no_stack),
        cmocka_unit_test(hostile_input_takes_linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
