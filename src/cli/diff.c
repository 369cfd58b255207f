/* diff.c - the longest common subsequence of lines, printed in hunks.
 *
 * The common beginning and end are cut off first.  The rest costs the product of its lengths, which
 * is bounded. */
#include "cli/diff.h"
#include <stdlib.h>
#include "base/mem.h"

enum { CONTEXT = 3 };
#define CELLS_MAX ((size_t)16 << 20)

struct lines {
    struct str *at; /* owned array; without their line breaks */
    size_t n;
    bool unended; /* the last one has no line break */
};
struct script {
    char *steps; /* owned; '=' both, '-' the old, '+' the new */
    size_t n;
};

static struct lines split(struct str text)
{
    struct lines l = {.unended = text.n > 0 && text.p[text.n - 1] != '\n'};
    struct str rest = text, line;
    size_t cap = 1;

    for (size_t i = 0; i < text.n; i++)
        cap += text.p[i] == '\n';
    l.at = xcalloc(cap, sizeof *l.at);
    while (rest.n > 0 && str_split(&rest, '\n', &line))
        l.at[l.n++] = line;
    return l;
}

static bool same(const struct lines *a, size_t x, const struct lines *b, size_t y)
{
    bool a_cut = a->unended && x + 1 == a->n, b_cut = b->unended && y + 1 == b->n;

    return a_cut == b_cut && str_eq(a->at[x], b->at[y]);
}

static void step(struct script *s, char what, size_t times)
{
    memset(s->steps + s->n, what, times);
    s->n += times;
}

/* Compares the middle parts: @an lines from @a0 and @bn lines from @b0. */
static void align(const struct lines *a, size_t a0, size_t an, const struct lines *b, size_t b0,
                  size_t bn, struct script *s)
{
    if (an == 0 || bn == 0 || an > CELLS_MAX / (bn + 1)) {
        step(s, '-', an);
        step(s, '+', bn);
        return;
    }
    char *way = xmalloc((an + 1) * (bn + 1)); /* the best first step from (x, y) to the end */
    unsigned *best = xcalloc(bn + 1, sizeof *best), *below = xcalloc(bn + 1, sizeof *below);
    for (size_t x = an; x-- > 0;) {
        unsigned *spare = below;
        below = best;
        best = spare;
        best[bn] = 0;
        for (size_t y = bn; y-- > 0;) {
            bool equal = same(a, a0 + x, b, b0 + y);
            best[y] = equal ? below[y + 1] + 1 : below[y] >= best[y + 1] ? below[y] : best[y + 1];
            way[x * (bn + 1) + y] = equal ? '=' : below[y] >= best[y + 1] ? '-' : '+';
        }
    }
    size_t x = 0, y = 0;
    while (x < an && y < bn) {
        char w = way[x * (bn + 1) + y];
        step(s, w, 1);
        x += w != '+';
        y += w != '-';
    }
    step(s, '-', an - x);
    step(s, '+', bn - y);
    free(way);
    free(best);
    free(below);
}

static struct script compare(const struct lines *a, const struct lines *b)
{
    struct script s = {.steps = xmalloc(a->n + b->n + 1)};
    size_t head = 0, tail = 0, least = a->n < b->n ? a->n : b->n;

    while (head < least && same(a, head, b, head))
        head++;
    while (tail < least - head && same(a, a->n - 1 - tail, b, b->n - 1 - tail))
        tail++;
    step(&s, '=', head);
    align(a, head, a->n - head - tail, b, head, b->n - head - tail, &s);
    step(&s, '=', tail);
    return s;
}

/* ---- printing ---- */

static void print_line(FILE *out, char mark, const struct lines *l, size_t i)
{
    fprintf(out, "%c%.*s\n", mark, STR_FMT(l->at[i]));
    if (l->unended && i + 1 == l->n)
        fputs("\\ No newline at end of file\n", out);
}

static void print_range(FILE *out, char mark, size_t first, size_t n)
{
    fprintf(out, "%c%zu", mark, n == 0 ? first : first + 1);
    if (n != 1)
        fprintf(out, ",%zu", n);
}

/* Prints the steps from @from to @to, which begin at line @x of @a and @y of @b. */
static void print_hunk(FILE *out, const struct script *s, size_t from, size_t to,
                       const struct lines *a, size_t x, const struct lines *b, size_t y)
{
    size_t an = 0, bn = 0;

    for (size_t i = from; i < to; i++) {
        an += s->steps[i] != '+';
        bn += s->steps[i] != '-';
    }
    fputs("@@ ", out);
    print_range(out, '-', x, an);
    fputc(' ', out);
    print_range(out, '+', y, bn);
    fputs(" @@\n", out);
    for (size_t i = from; i < to; i++) {
        char w = s->steps[i];
        if (w == '+')
            print_line(out, '+', b, y);
        else
            print_line(out, w == '=' ? ' ' : '-', a, x);
        x += w != '+';
        y += w != '-';
    }
}

/* The step after the hunk whose first change is at @at: it ends before a long run of equal
 * lines. */
static size_t hunk_end(const struct script *s, size_t at)
{
    size_t end = at, quiet = 0;

    for (size_t i = at; i < s->n && quiet <= 2 * CONTEXT; i++) {
        quiet = s->steps[i] == '=' ? quiet + 1 : 0;
        if (quiet == 0)
            end = i + 1;
    }
    return end + CONTEXT < s->n ? end + CONTEXT : s->n;
}

static void print_hunks(FILE *out, const struct script *s, const struct lines *a,
                        const struct lines *b)
{
    size_t x = 0, y = 0, told = 0; /* steps before @told are in a hunk already */

    for (size_t i = 0; i < s->n; i++) {
        if (s->steps[i] != '=' && i >= told) {
            size_t before = i - told < CONTEXT ? i - told : CONTEXT;
            told = hunk_end(s, i);
            print_hunk(out, s, i - before, told, a, x - before, b, y - before);
        }
        x += s->steps[i] != '+';
        y += s->steps[i] != '-';
    }
}

void diff_print(FILE *out, const char *a_name, struct str a_text, const char *b_name,
                struct str b_text)
{
    struct lines a = split(a_text), b = split(b_text);
    struct script s = compare(&a, &b);

    if (!str_eq(a_text, b_text)) {
        fprintf(out, "--- %s\n+++ %s\n", a_name, b_name);
        print_hunks(out, &s, &a, &b);
    }
    free(a.at);
    free(b.at);
    free(s.steps);
}
