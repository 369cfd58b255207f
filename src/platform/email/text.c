/* text.c - see text.h. */
#include "platform/email/text.h"

/* ---- bytes ---- */

void text_clean(struct buf *out, struct str s, bool one_line)
{
    while (s.n > 0) {
        unsigned char c = (unsigned char)s.p[0];
        size_t n = utf8_seq_bytes(s);
        bool c1 = n == 2 && c == 0xc2 && (unsigned char)s.p[1] < 0xa0;
        /* U+2028 and U+2029 end lines in some programs; U+202A.. and U+2066.. reverse text. */
        bool tricky = n == 3 && c == 0xe2 && (unsigned char)s.p[1] <= 0x81 &&
                      ((unsigned char)s.p[2] == 0xa8 || (unsigned char)s.p[2] == 0xa9 ||
                       ((unsigned char)s.p[1] == 0x80 && (unsigned char)s.p[2] >= 0xaa &&
                        (unsigned char)s.p[2] <= 0xae) ||
                       ((unsigned char)s.p[1] == 0x81 && (unsigned char)s.p[2] >= 0xa6 &&
                        (unsigned char)s.p[2] <= 0xa9));
        if (n == 0) {
            buf_add_str(out, STR("\xef\xbf\xbd"));
            n = 1;
        } else if (n == 1 && (c == '\n' || c == '\t')) {
            buf_add_c(out, one_line ? ' ' : (char)c);
        } else if (n == 1 && (c < 0x20 || c == 0x7f)) {
            if (one_line && c == '\r' && (s.n < 2 || s.p[1] != '\n'))
                buf_add_c(out, ' ');
            else if (!one_line && c == '\r' && (s.n < 2 || s.p[1] != '\n'))
                buf_add_c(out, '\n');
        } else if (!c1 && !tricky) {
            buf_add(out, s.p, n);
        }
        s = str_skip(s, n);
    }
}

/* ---- HTML ---- */

struct html {
    struct buf *out;
    size_t start;        /* of our text in @out */
    unsigned newlines;   /* at the end of the text */
    bool space, pre;     /* a space is owed; white space counts */
    struct str skipping; /* the tag whose content is not shown; absent: none */
};

static void newline(struct html *h, unsigned wanted)
{
    h->space = false;
    if (h->out->n == h->start)
        return;
    for (; h->newlines < wanted; h->newlines++)
        buf_add_c(h->out, '\n');
}

static void add_text(struct html *h, struct str s)
{
    if (h->space && h->newlines == 0 && h->out->n > h->start)
        buf_add_c(h->out, ' ');
    h->space = false;
    h->newlines = 0;
    buf_add_str(h->out, s);
}

static const struct {
    const char *name, *text;
} entities[] = {
    {"amp", "&"},         {"lt", "<"},          {"gt", ">"},          {"quot", "\""},
    {"apos", "'"},        {"nbsp", " "},        {"copy", "\u00a9"},   {"reg", "\u00ae"},
    {"auml", "\u00e4"},   {"ouml", "\u00f6"},   {"uuml", "\u00fc"},   {"Auml", "\u00c4"},
    {"Ouml", "\u00d6"},   {"Uuml", "\u00dc"},   {"szlig", "\u00df"},  {"eacute", "\u00e9"},
    {"agrave", "\u00e0"}, {"egrave", "\u00e8"}, {"ccedil", "\u00e7"}, {"euro", "\u20ac"},
    {"ndash", "\u2013"},  {"mdash", "\u2014"},  {"lsquo", "\u2018"},  {"rsquo", "\u2019"},
    {"ldquo", "\u201c"},  {"rdquo", "\u201d"},  {"hellip", "\u2026"}, {"bull", "\u2022"},
    {"middot", "\u00b7"}, {"laquo", "\u00ab"},  {"raquo", "\u00bb"},  {"trade", "\u2122"},
};

static void add_code_point(struct buf *out, uint64_t c)
{
    char b[4];
    size_t n = 0;

    if (c < 0x20 || (c >= 0xd800 && c < 0xe000) || c > 0x10ffff)
        c = ' ';
    if (c < 0x80) {
        b[n++] = (char)c;
    } else if (c < 0x800) {
        b[n++] = (char)(0xc0 | c >> 6);
    } else if (c < 0x10000) {
        b[n++] = (char)(0xe0 | c >> 12);
        b[n++] = (char)(0x80 | (c >> 6 & 0x3f));
    } else {
        b[n++] = (char)(0xf0 | c >> 18);
        b[n++] = (char)(0x80 | (c >> 12 & 0x3f));
        b[n++] = (char)(0x80 | (c >> 6 & 0x3f));
    }
    if (c >= 0x80)
        b[n++] = (char)(0x80 | (c & 0x3f));
    buf_add(out, b, n);
}

/* Decodes the entity that @s starts with; returns its length, 0: it is no entity. */
static size_t add_entity(struct html *h, struct str s)
{
    ptrdiff_t end = str_find(str_make(s.p, s.n < 12 ? s.n : 12), ';');
    struct str name = end > 1 ? str_make(s.p + 1, (size_t)end - 1) : STR_NULL;
    BUF_LOCAL c = BUF_INIT;

    if (name.n > 1 && name.p[0] == '#') {
        uint64_t v = 0;
        bool hex = name.p[1] == 'x' || name.p[1] == 'X';
        for (size_t i = hex ? 2 : 1; i < name.n; i++) {
            int d = hex_value(name.p[i]);
            if (d < 0 || (!hex && d > 9))
                return 0;
            v = v * (hex ? 16 : 10) + (uint64_t)d;
        }
        add_code_point(&c, v);
        add_text(h, buf_str(&c));
        return (size_t)end + 1;
    }
    for (size_t i = 0; name.n > 0 && i < sizeof entities / sizeof *entities; i++)
        if (str_eq(name, str_of(entities[i].name))) {
            add_text(h, str_of(entities[i].text));
            return (size_t)end + 1;
        }
    return 0;
}

static bool is_one_of(struct str name, const char *words)
{
    struct str rest = str_of(words), w;

    while (str_split(&rest, ' ', &w))
        if (str_eq_ci(name, w))
            return true;
    return false;
}

/* The end of the tag that @s starts with: behind its ">", outside of quoted attributes. */
static size_t tag_end(struct str s)
{
    char quote = 0;

    for (size_t i = 1; i < s.n; i++) {
        char c = s.p[i];
        if (quote != 0 && c == quote)
            quote = 0;
        else if (quote == 0 && (c == '"' || c == '\'') && s.p[i - 1] == '=')
            quote = c;
        else if (quote == 0 && c == '>')
            return i + 1;
    }
    return s.n;
}

static void take_tag(struct html *h, struct str tag)
{
    bool closes = tag.n > 1 && tag.p[1] == '/';
    struct str name = str_skip(tag, closes ? 2 : 1);
    size_t n = 0;

    while (n < name.n && ((name.p[n] | 32) >= 'a' || (name.p[n] >= '0' && name.p[n] <= '9')) &&
           name.p[n] != '>' && name.p[n] != '/')
        n++;
    name.n = n;
    if (h->skipping.p != NULL) {
        if (closes && str_eq_ci(name, h->skipping))
            h->skipping = STR_NULL;
        return;
    }
    if (!closes && is_one_of(name, "script style head title noscript template") && tag.n > 1 &&
        tag.p[tag.n - 2] != '/')
        h->skipping = name;
    else if (str_eq_ci(name, STR("br")))
        newline(h, h->newlines + 1);
    else if (is_one_of(name, "p h1 h2 h3 h4 h5 h6 ul ol table blockquote pre"))
        newline(h, 2);
    else if (is_one_of(name, "div tr li hr section article header footer dt dd"))
        newline(h, 1);
    else if (is_one_of(name, "td th"))
        h->space = true;
    if (!closes && str_eq_ci(name, STR("li")))
        add_text(h, STR("- "));
    if (str_eq_ci(name, STR("pre")))
        h->pre = !closes;
}

void text_from_html(struct buf *out, struct str s)
{
    struct html h = {.out = out, .start = out->n};

    while (s.n > 0) {
        size_t n = 1;
        size_t entity = s.p[0] == '&' && h.skipping.p == NULL ? add_entity(&h, s) : 0;
        if (str_starts(s, STR("<!--"))) {
            for (n = 4; n < s.n && !str_starts(str_skip(s, n), STR("-->")); n++)
                ;
            n = n + 3 < s.n ? n + 3 : s.n;
        } else if (s.p[0] == '<' && s.n > 1 &&
                   (s.p[1] == '/' || s.p[1] == '!' || s.p[1] == '?' || (s.p[1] | 32) >= 'a')) {
            n = tag_end(s);
            take_tag(&h, str_make(s.p, n));
        } else if (h.skipping.p != NULL) {
            n = 1;
        } else if (entity > 0) {
            n = entity;
        } else if (h.pre && s.p[0] == '\n') {
            newline(&h, h.newlines + 1);
        } else if (s.p[0] == ' ' || s.p[0] == '\t' || s.p[0] == '\n' || s.p[0] == '\r') {
            if (h.pre)
                add_text(&h, STR(" "));
            else
                h.space = true;
        } else {
            add_text(&h, str_make(s.p, 1));
        }
        s = str_skip(s, n);
    }
}

/* ---- lines ---- */

void text_unflow(struct buf *out, struct str text, bool delsp)
{
    struct str line;
    bool joined = false;

    while (str_split(&text, '\n', &line)) {
        bool soft = line.n > 0 && line.p[line.n - 1] == ' ' && !str_eq(line, STR("-- ")) &&
                    line.p[0] != '>';
        if (!joined && line.n > 1 && line.p[0] == ' ')
            line = str_skip(line, 1); /* stuffed */
        if (soft && delsp)
            line.n--;
        buf_add_str(out, line);
        if (!soft && text.p != NULL)
            buf_add_c(out, '\n');
        joined = soft;
    }
}

struct lines { /* [from, to) of a text that is kept, as offsets */
    struct str text;
    size_t from, to;
};

static struct str line_at(const struct lines *l, size_t at, size_t *ret_next)
{
    struct str rest = str_make(l->text.p + at, l->to - at);
    ptrdiff_t end = str_find(rest, '\n');

    *ret_next = end < 0 ? l->to : at + (size_t)end + 1;
    return end < 0 ? rest : str_make(rest.p, (size_t)end);
}

/* The start of the line that ends before @end. */
static size_t line_before(const struct lines *l, size_t end)
{
    size_t at = end > l->from ? end - 1 : end; /* its newline */

    while (at > l->from && l->text.p[at - 1] != '\n')
        at--;
    return at;
}

static bool is_quote(struct str line)
{
    return line.n > 0 && line.p[0] == '>';
}

static bool is_blank(struct str line)
{
    return str_trim(line).n == 0;
}

/* "On Monday, Bob <bob@example.org> wrote:" in any language: a short line that ends with a colon
 * and names an address or a time. */
static bool is_attribution(struct str line)
{
    struct str t = str_trim(line);

    return t.n > 3 && t.n < 200 && t.p[t.n - 1] == ':' &&
           (str_find(t, '@') >= 0 || str_contains(t, STR("wrote")) ||
            (str_find(t, ':') < (ptrdiff_t)t.n - 1 && t.p[t.n - 2] != ':'));
}

static bool is_signature(struct str line)
{
    return str_eq(line, STR("-- ")) || str_eq(line, STR("--"));
}

/* What follows is an older mail. */
static bool is_older(struct str line)
{
    return str_starts(line, STR("-----Original Message-----")) ||
           str_starts(line, STR("________________________________"));
}

static void cut_end(struct lines *l, bool first)
{
    size_t at = l->from, next;

    while (at < l->to) {
        struct str line = line_at(l, at, &next);
        if ((is_signature(line) || (!first && is_older(line))) && at > l->from) {
            l->to = at;
            return;
        }
        at = next;
    }
}

static void cut_quote_below(struct lines *l)
{
    size_t to = l->to, next;
    bool quoted = false;

    while (to > l->from) {
        size_t at = line_before(l, to);
        struct str line = line_at(l, at, &next);
        if (!is_quote(line) && !is_blank(line))
            break;
        quoted |= is_quote(line);
        to = at;
    }
    if (!quoted)
        return;
    if (to > l->from) { /* the attribution may be folded into two lines */
        size_t at = line_before(l, to), above = line_before(l, at);
        struct str line = line_at(l, at, &next), first = line_at(l, above, &next);
        BUF_LOCAL both = BUF_INIT;
        buf_printf(&both, "%.*s %.*s", STR_FMT(first), STR_FMT(line));
        bool folded = above < at && !str_starts(line, STR("On ")) &&
                      str_starts(first, STR("On ")) && is_attribution(buf_str(&both));
        if (folded)
            to = above;
        else if (is_attribution(line))
            to = at;
    }
    l->to = to;
}

static void cut_quote_above(struct lines *l)
{
    size_t at = l->from, next;
    bool quoted = false, first = true;

    while (at < l->to) {
        struct str line = line_at(l, at, &next);
        if (!is_quote(line) && !is_blank(line) && !(first && is_attribution(line)))
            break;
        first &= is_blank(line);
        quoted |= is_quote(line);
        at = next;
    }
    if (quoted)
        l->from = at;
}

void text_answer(struct buf *out, struct str text, bool first)
{
    struct lines l = {text, 0, text.n};

    cut_end(&l, first);
    if (!first) {
        cut_quote_below(&l);
        cut_quote_above(&l);
    }
    struct str kept = str_trim(str_make(text.p + l.from, l.to - l.from));
    buf_add_str(out, kept.n > 0 ? kept : str_trim(text));
}
