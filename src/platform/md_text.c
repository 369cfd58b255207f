/* md_text.c - design.  (markdown.h has the contract.)
 *
 * An entity is added when it ends, so inner entities come before outer ones; md_parse() sorts them
 * at the end.  Cutting works on the finished text: each part gets the pieces of the entities that
 * lie in it.  So a cut cannot break a mark. */
#include "platform/markdown.h"
#include <stdlib.h>
#include "base/mem.h"

static const char *const kind_names[] = {
    [MD_BOLD] = "bold",       [MD_ITALIC] = "italic",    [MD_STRIKE] = "strikethrough",
    [MD_SPOILER] = "spoiler", [MD_LINK] = "text_link",   [MD_CODE] = "code",
    [MD_PRE] = "pre",         [MD_QUOTE] = "blockquote",
};

void md_done(struct md *m)
{
    buf_done(&m->text);
    buf_done(&m->args);
    free(m->entities);
    *m = MD_INIT;
}

void md_add(struct md *m, struct str text)
{
    buf_add_str(&m->text, text);
    m->units += utf16_units(text);
}

void md_entity_add(struct md *m, enum md_kind kind, size_t off, struct str arg)
{
    if (m->units == off || m->n == MD_MOST_ENTITIES)
        return; /* Telegram refuses empty entities */
    m->entities = xgrow(m->entities, m->n, &m->cap, sizeof *m->entities);
    m->entities[m->n++] = (struct md_entity){
        .kind = kind, .off = off, .len = m->units - off, .arg = m->args.n, .n_arg = arg.n};
    buf_add_str(&m->args, arg);
}

void md_style_open(struct md_run *r, enum md_kind kind)
{
    if (r->depth[kind]++ == 0)
        r->start[kind] = r->md->units;
}

void md_style_close(struct md_run *r, enum md_kind kind)
{
    if (--r->depth[kind] == 0)
        md_entity_add(r->md, kind, r->start[kind], STR_NULL);
}

void md_add_code(struct md_run *r, struct str code)
{
    size_t off = r->md->units;

    for (enum md_kind k = 0; k < MD_STYLES; k++)
        if (r->depth[k] > 0)
            md_entity_add(r->md, k, r->start[k], STR_NULL);
    md_add(r->md, code);
    md_entity_add(r->md, MD_CODE, off, STR_NULL);
    for (enum md_kind k = 0; k < MD_STYLES; k++)
        r->start[k] = r->md->units;
}

/* ---- parts ---- */

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t';
}

/* True when @unit is inside a fence, where white space matters. */
static bool in_pre(const struct md *m, size_t unit)
{
    for (size_t i = 0; i < m->n && m->entities[i].off <= unit; i++)
        if (m->entities[i].kind == MD_PRE && unit < m->entities[i].off + m->entities[i].len)
            return true;
    return false;
}

struct border {
    size_t at, units; /* bytes and units up to the cut; 0: none yet */
};

/* Finds the end of the part that starts at @from and has at most @limit units. */
static struct border find_cut(const struct md *m, size_t from, size_t limit)
{
    struct border para = {0}, line = {0}, word = {0};
    size_t at = from, units = 0;

    for (;;) {
        char c = m->text.p[at];
        size_t n = utf8_seq_bytes(str_make(m->text.p + at, m->text.n - at));
        size_t u = n == 4 ? 2 : 1;
        if (units + u > limit)
            break;
        if (c == '\n' && at > from && m->text.p[at - 1] == '\n')
            para = line;
        if (c == '\n')
            line = (struct border){at, units};
        else if (is_space(c))
            word = (struct border){at, units};
        at += n > 0 ? n : 1;
        units += u;
    }
    if (is_space(m->text.p[at])) /* the last word ends exactly at the limit */
        return (struct border){at, units};
    if (para.units >= limit / 2)
        return para;
    if (line.units >= limit / 2)
        return line;
    return word.units >= limit / 2 ? word : (struct border){at, units};
}

/* Skips white space before a part; inside a fence only the line break at the cut. */
static void skip_space(const struct md *m, struct md_part *p)
{
    bool pre = in_pre(m, p->off);

    while (p->from < m->text.n && is_space(m->text.p[p->from])) {
        bool line_break = m->text.p[p->from] == '\n';
        if (pre && !line_break)
            return;
        p->from++;
        p->off++;
        if (pre)
            return;
    }
}

bool md_next(const struct md *m, size_t limit, struct md_part *part)
{
    struct md_part p = {.from = part->to, .off = part->off + part->len};

    while (p.from < m->text.n) {
        if (p.from > 0 || !in_pre(m, 0))
            skip_space(m, &p);
        size_t rest = m->units - p.off;
        struct border end = {m->text.n, rest};
        if (rest > limit)
            end = find_cut(m, p.from, limit);
        p.to = end.at;
        p.len = end.units;
        while (p.to > p.from && is_space(m->text.p[p.to - 1])) {
            p.to--;
            p.len--;
        }
        if (p.to > p.from) {
            *part = p;
            return true;
        }
        p.off += end.units;
        p.from = end.at;
    }
    return false;
}

static void write_as(struct jw *w, const struct md *m, const struct md_part *part, bool styled,
                     const char *text, const char *entities)
{
    jw_kstr(w, text, str_make(m->text.p + part->from, part->to - part->from));
    if (!styled || m->n == 0)
        return;
    jw_key(w, entities);
    md_write_entities(w, m, part);
}

void md_write(struct jw *w, const struct md *m, const struct md_part *part, bool styled)
{
    write_as(w, m, part, styled, "text", "entities");
}

void md_write_caption(struct jw *w, const struct md *m, const struct md_part *part, bool styled)
{
    write_as(w, m, part, styled, "caption", "caption_entities");
}

void md_write_entities(struct jw *w, const struct md *m, const struct md_part *part)
{
    size_t end = part->off + part->len, written = 0;

    jw_arr(w);
    for (size_t i = 0; i < m->n && written < MD_MAX_ENTITIES; i++) {
        const struct md_entity *e = &m->entities[i];
        size_t from = e->off > part->off ? e->off : part->off;
        size_t to = e->off + e->len < end ? e->off + e->len : end;
        if (from >= to)
            continue;
        struct str arg = str_make(m->args.p + e->arg, e->n_arg);
        jw_obj(w);
        jw_kstr(w, "type", str_of(kind_names[e->kind]));
        jw_ki64(w, "offset", (int64_t)from - part->off);
        jw_ki64(w, "length", (int64_t)to - from);
        if (e->kind == MD_LINK)
            jw_kstr(w, "url", arg);
        if (e->kind == MD_PRE && arg.n > 0)
            jw_kstr(w, "language", arg);
        jw_end_obj(w);
        written++;
    }
    jw_end_arr(w);
}
