/* Promises of cli/diff.h. */
#include "unit.h"
#include "base/mem.h"
#include "base/rand.h"
#include "base/buf.h"
#include "cli/diff.h"

static char *diff(struct str a, struct str b)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    diff_print(f, "old", a, "new", b);
    fclose(f);
    return text;
}

static void it_looks_like_everybodys(void **state)
{
    static const struct {
        const char *a, *b, *want;
    } cases[] = {
        {"", "", ""},
        {"a\nb\n", "a\nb\n", ""},
        {"a\nb\nc\n", "a\nx\nc\n", "--- old\n+++ new\n@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n"},
        {"", "a\n", "--- old\n+++ new\n@@ -0,0 +1 @@\n+a\n"},
        {"a\n", "", "--- old\n+++ new\n@@ -1 +0,0 @@\n-a\n"},
        {"a\nb", "a\nb\n",
         "--- old\n+++ new\n@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n"},
        {"1\n2\n3\n4\n5\n6\n7\n8\n9\n", "x\n2\n3\n4\n5\n6\n7\n8\ny\n",
         "--- old\n+++ new\n@@ -1,4 +1,4 @@\n-1\n+x\n 2\n 3\n 4\n@@ -6,4 +6,4 @@\n 6\n 7\n "
         "8\n-9\n+y\n"},
        {"1\n2\n3\n4\n5\n6\n7\n8\n", "x\n2\n3\n4\n5\n6\n7\ny\n",
         "--- old\n+++ new\n@@ -1,8 +1,8 @@\n-1\n+x\n 2\n 3\n 4\n 5\n 6\n 7\n-8\n+y\n"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *got = diff(str_of(cases[i].a), str_of(cases[i].b));
        assert_string_equal(got, cases[i].want);
        free(got);
    }
}

/* The new text, made from the old one and the diff as a reader would. */
static void apply(struct str a, const char *patch, struct buf *out)
{
    struct str rest = a, line, p = str_of(patch), step;
    size_t at = 0;
    while (p.n > 0 && str_split(&p, '\n', &step)) {
        if (step.n == 0 || str_starts(step, STR("---")) || str_starts(step, STR("+++")) ||
            step.p[0] == '\\')
            continue;
        if (step.p[0] == '@') {
            size_t from = 0, n = 1;
            if (sscanf(step.p, "@@ -%zu,%zu", &from, &n) < 2)
                n = 1;
            for (size_t until = n > 0 ? from - 1 : from; at < until; at++) {
                assert_true(str_split(&rest, '\n', &line));
                buf_printf(out, "%.*s\n", STR_FMT(line));
            }
            continue;
        }
        if (step.p[0] != '+') {
            assert_true(str_split(&rest, '\n', &line));
            assert_true(str_eq(line, str_skip(step, 1)));
            at++;
        }
        if (step.p[0] != '-')
            buf_printf(out, "%.*s\n", STR_FMT(str_skip(step, 1)));
    }
    while (rest.n > 0 && str_split(&rest, '\n', &line))
        buf_printf(out, "%.*s\n", STR_FMT(line));
}

static void applied_to_the_old_it_gives_the_new(void **state)
{
    struct rand rand = rand_seeded(11);
    for (int round = 0; round < 2000; round++) {
        struct buf a = BUF_INIT, b = BUF_INIT, got = BUF_INIT;
        uint64_t n = rand_below(&rand, 40);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t word = rand_below(&rand, 6), what = rand_below(&rand, 8);
            if (what != 0)
                buf_printf(&a, "line %d\n", (int)word);
            if (what != 1)
                buf_printf(&b, "line %d\n", (int)(what == 2 ? rand_below(&rand, 6) : word));
        }
        char *patch = diff(buf_str(&a), buf_str(&b));
        apply(buf_str(&a), patch, &got);
        assert_string_equal(buf_z(&got), buf_z(&b));
        free(patch);
        buf_done(&a);
        buf_done(&b);
        buf_done(&got);
    }
}

UNIT(cli_test_diff)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_looks_like_everybodys),
        cmocka_unit_test(applied_to_the_old_it_gives_the_new),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
