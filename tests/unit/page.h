/* page.h - a page of docs/ whose tables are held against the program.
 *
 * A table is found by the heading above it.  What does not agree is a complaint, and every cell
 * that was compared is remembered: page_prove() changes each of them and insists that somebody
 * complains, so that no table is pinned in name only. */
#pragma once
#include <stdarg.h>
#include "core/vectors.h"

#define PAGE_CELLS 1024

static struct buf page;
static struct {
    unsigned n;
    char first[400];
} complaints;
static struct {
    size_t at[PAGE_CELLS], n;
    bool recording;
} compared;

static inline void complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static inline void complain(const char *fmt, ...)
{
    va_list ap;

    if (complaints.n++ > 0)
        return;
    va_start(ap, fmt);
    vsnprintf(complaints.first, sizeof complaints.first, fmt, ap);
    va_end(ap);
}

struct table {        /* its rows, top to bottom */
    struct str rest;  /* the page from the next row on */
    struct str row;   /* what is left of the current row */
    const char *name; /* of its heading, for complaints */
};

/* Stands before the first row of the table under @heading, such as "### Event fields". */
static inline struct table table_open(const char *heading)
{
    struct table t = {.rest = buf_str(&page), .name = heading};
    struct str line;

    while (str_split(&t.rest, '\n', &line))
        if (str_eq(line, str_of(heading)))
            break;
    while (str_split(&t.rest, '\n', &line))
        if (str_starts(line, STR("|---")))
            return t;
        else if (str_starts(line, STR("#")))
            break;
    complain("no table under \"%s\"", heading);
    t.rest = STR_NULL;
    return t;
}

static inline bool table_row(struct table *t)
{
    struct str line, before;

    if (!str_split(&t->rest, '\n', &line) || !str_starts(line, STR("|")))
        return false;
    t->row = line;
    return str_split(&t->row, '|', &before);
}

/* The next cell as it stands. */
static inline struct str raw_cell(struct table *t)
{
    struct str c = STR_NULL;

    if (!str_split(&t->row, '|', &c))
        complain("%s: a row is too short", t->name);
    c = str_trim(c);
    if (compared.recording && c.n > 0) {
        assert_true(compared.n < PAGE_CELLS);
        compared.at[compared.n++] = (size_t)(c.p - page.p) + c.n / 2;
    }
    return c;
}

/* The same without the backticks around it, if there are any. */
static inline struct str cell(struct table *t)
{
    struct str c = raw_cell(t);
    bool quoted = c.n >= 2 && c.p[0] == '`' && c.p[c.n - 1] == '`';

    return quoted ? str_make(c.p + 1, c.n - 2) : c;
}

static inline void agree(struct table *t, struct str said, struct str want)
{
    if (!str_eq(said, want))
        complain("%s: the page says \"%.*s\", the program \"%.*s\"", t->name, STR_FMT(said),
                 STR_FMT(want));
}

static inline void check_cell(struct table *t, const char *want)
{
    agree(t, cell(t), str_of(want));
}

/* False, and a complaint: there is no row for @next. */
static inline bool next_row(struct table *t, const char *next)
{
    if (table_row(t))
        return true;
    complain("%s: the page lacks %s", t->name, next);
    return false;
}

static inline void check_end(struct table *t)
{
    if (table_row(t))
        complain("%s: the page has too much: %.*s", t->name, STR_FMT(t->row));
}

typedef void page_check(void);

/* The page and the program agree. */
static inline void page_agrees(page_check *check)
{
    complaints.n = 0;
    check();
    if (complaints.n > 0)
        fail_msg("%s", complaints.first);
}

/* Every cell that @check compares is really compared. */
static inline void page_prove(page_check *check)
{
    compared.n = 0;
    compared.recording = true;
    page_agrees(check);
    compared.recording = false;
    assert_true(compared.n > 0);
    for (size_t i = 0; i < compared.n; i++) {
        char *c = &page.p[compared.at[i]], was = *c;
        *c = was == '7' ? '8' : '7';
        complaints.n = 0;
        check();
        if (complaints.n == 0)
            fail_msg("a changed cell is not noticed: ...%.30s", c);
        *c = was;
    }
    page_agrees(check);
}

static inline int page_open(void **state)
{
    (void)state;
    slurp(DOCS "/contract.md", &page);
    return 0;
}

static inline int page_close(void **state)
{
    (void)state;
    buf_done(&page);
    return 0;
}
