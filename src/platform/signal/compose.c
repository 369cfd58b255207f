/* compose.c - see compose.h.
 *
 * md_parse() gives the visible text and its entities.  Signal has neither links nor quotes, so
 * their marks are inserted into the text, and the ranges behind an insertion move. */
#include "platform/signal/compose.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"

struct insert {
    size_t at;       /* UTF-16 units of the parsed text */
    struct str text; /* borrowed */
    bool address;    /* in brackets, behind a label */
    size_t units;    /* of this one and those before it */
};

struct inserts {
    struct insert *all; /* owned */
    size_t n, cap;
};

static void add_insert(struct inserts *l, size_t at, struct str text, bool address)
{
    l->all = xgrow(l->all, l->n, &l->cap, sizeof *l->all);
    l->all[l->n++] = (struct insert){.at = at, .text = text, .address = address};
}

static int by_place(const void *a, const void *b)
{
    const struct insert *x = a, *y = b;

    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return (int)y->address - (int)x->address; /* the end of a line before the next one's mark */
}

struct unit_cursor {
    size_t at, unit;
};

/* Moves @c forward to @unit. */
static void walk_to(const struct md *m, struct unit_cursor *c, size_t unit)
{
    while (c->at < m->text.n && c->unit < unit) {
        size_t n = utf8_seq_bytes(str_make(m->text.p + c->at, m->text.n - c->at));
        c->unit += n == 4 ? 2 : 1;
        c->at += n > 0 ? n : 1;
    }
}

/* Marks the lines of all quotes in one pass: quotes are sorted and do not nest. */
static void find_quotes(const struct md *m, struct inserts *l)
{
    size_t at = 0, unit = 0, k = 0;

    while (at < m->text.n && k < m->n) {
        size_t n = utf8_seq_bytes(str_make(m->text.p + at, m->text.n - at));
        const struct md_entity *e = &m->entities[k];
        if (e->kind != MD_QUOTE || unit >= e->off + e->len) {
            k++;
            continue;
        }
        if (unit == e->off || (unit > e->off && m->text.p[at - 1] == '\n'))
            add_insert(l, unit, STR("> "), false);
        unit += n == 4 ? 2 : 1;
        at += n > 0 ? n : 1;
    }
}

/* A link whose label is its address stays as it is. */
static void find_links(const struct md *m, struct inserts *l)
{
    struct unit_cursor c = {0};

    for (size_t i = 0; i < m->n; i++) {
        const struct md_entity *e = &m->entities[i];
        struct str url = str_make(m->args.p + e->arg, e->n_arg);
        if (e->kind != MD_LINK || url.n == 0)
            continue;
        walk_to(m, &c, e->off);
        struct unit_cursor end = c;
        walk_to(m, &end, e->off + e->len);
        if (!str_eq(str_make(m->text.p + c.at, end.at - c.at), url))
            add_insert(l, e->off + e->len, url, true);
    }
}

/* Units that are inserted before @at; @also: and at @at. */
static size_t inserted(const struct inserts *l, size_t at, bool also)
{
    size_t low = 0, high = l->n;

    while (low < high) {
        size_t mid = (low + high) / 2;
        if (l->all[mid].at < at || (also && l->all[mid].at == at))
            low = mid + 1;
        else
            high = mid;
    }
    return low > 0 ? l->all[low - 1].units : 0;
}

static void merge_text(const struct md *from, struct inserts *l, struct md *to)
{
    size_t at = 0, unit = 0, k = 0, done = 0;

    while (at < from->text.n || k < l->n) {
        if (k < l->n && (l->all[k].at <= unit || at >= from->text.n)) {
            size_t before;
            md_add(to, str_make(from->text.p + done, at - done));
            done = at;
            before = to->units;
            if (l->all[k].address)
                md_add(to, STR(" ("));
            md_add(to, l->all[k].text);
            if (l->all[k].address)
                md_add(to, STR(")"));
            l->all[k].units = to->units - before + (k > 0 ? l->all[k - 1].units : 0);
            k++;
            continue;
        }
        size_t n = utf8_seq_bytes(str_make(from->text.p + at, from->text.n - at));
        unit += n == 4 ? 2 : 1;
        at += n > 0 ? n : 1;
    }
    md_add(to, str_make(from->text.p + done, at - done));
}

static void move_entities(const struct md *from, const struct inserts *l, struct md *to)
{
    for (size_t i = 0; i < from->n; i++) {
        struct md_entity e = from->entities[i];
        size_t start = e.off + inserted(l, e.off, true),
               end = e.off + e.len + inserted(l, e.off + e.len, false);
        if (e.kind == MD_LINK || e.kind == MD_QUOTE || end <= start)
            continue;
        to->entities = xgrow(to->entities, to->n, &to->cap, sizeof *to->entities);
        to->entities[to->n++] =
            (struct md_entity){.kind = e.kind, .off = start, .len = end - start};
    }
}

void signal_text(struct md *m, struct str markdown)
{
    struct md parsed = MD_INIT;
    struct inserts l = {0};

    md_parse(&parsed, markdown);
    if (parsed.text.n > 0) {
        find_links(&parsed, &l);
        find_quotes(&parsed, &l);
        if (l.n > 0)
            qsort(l.all, l.n, sizeof *l.all, by_place);
        merge_text(&parsed, &l, m);
        move_entities(&parsed, &l, m);
    }
    free(l.all);
    md_done(&parsed);
}

void signal_write_text(struct jw *w, const struct md *m, const struct md_part *part)
{
    static const char *const names[] = {
        [MD_BOLD] = "BOLD",       [MD_ITALIC] = "ITALIC",  [MD_STRIKE] = "STRIKETHROUGH",
        [MD_SPOILER] = "SPOILER", [MD_CODE] = "MONOSPACE", [MD_PRE] = "MONOSPACE"};
    size_t end = part->off + part->len, n = 0;

    jw_kstr(w, "message", str_make(m->text.p + part->from, part->to - part->from));
    for (size_t i = 0; i < m->n && n < SIGNAL_STYLES; i++) {
        const struct md_entity *e = &m->entities[i];
        size_t from = e->off > part->off ? e->off : part->off;
        size_t to = e->off + e->len < end ? e->off + e->len : end;
        char range[64];
        if (from >= to)
            continue;
        if (n++ == 0)
            jw_karr(w, "textStyles");
        snprintf(range, sizeof range, "%zu:%zu:%s", from - part->off, to - from, names[e->kind]);
        jw_str(w, str_of(range));
    }
    if (n > 0)
        jw_end_arr(w);
}
