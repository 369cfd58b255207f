/* md_inline.c - design.  (markdown.h has the contract.)
 *
 * Two passes over one paragraph.  The first makes tokens: text, code, the borders of links, and
 * runs of * _ ~~ ||.  It pairs runs with a stack, as CommonMark does.  The text of a link has its
 * own stack, so links bind tighter than emphasis.  The second pass writes the tokens; marks without
 * a partner are written as text.
 *
 * Hostile input costs linear time.  A search that could run over the same bytes again records its
 * failure (bottom[], no_code) or is bounded (MAX_URL), and brackets are paired once, up front.
 * md.work counts the steps; above MD_MOST_WORK the rest is text.
 *
 * The file is long because the tokens and their meaning are one grammar. */
#include "platform/markdown.h"
#include <stdlib.h>
#include "base/mem.h"

enum { SEARCHED = 16 /* bytes that cost one step of work */ };
enum { MAX_MARKS = 3, MAX_TICKS = 31, MAX_URL = 2048, MAX_NESTED = 8, MARKS = 4 };

enum tok_type { TOK_TEXT, TOK_CODE, TOK_MARK, TOK_LINK, TOK_LINK_END };

struct tok {
    uint8_t type;
    char mark;                                   /* TOK_MARK: one of * _ ~ | */
    uint8_t n, n_closes, n_opens;                /* characters; styles it closes and opens */
    uint8_t left;                                /* characters without a partner */
    uint8_t closes[MAX_MARKS], opens[MAX_MARKS]; /* enum md_kind, in order of pairing */
    struct str s;                                /* text, code, or a link's destination */
};

struct scan {
    struct str s;          /* the paragraph */
    size_t *work;          /* borrowed: md.work */
    struct md_scratch *of; /* borrowed; owns the arrays below */
    uint32_t *brackets;    /* borrowed; at a '[': its ']', or 0; at the ']' of a link inside a link:
                            * the end of that link; NULL: no brackets */
    struct tok *toks;      /* borrowed */
    size_t n;
    size_t *stack; /* borrowed; tokens that may still open a style */
    size_t n_stack;
    size_t base;          /* start of the stack of the current link text */
    size_t bottom[MARKS]; /* no opener of that mark below this */
    uint32_t no_code;     /* bit n: no run of n backticks follows */
    bool in_link;
};

static struct tok *add_tok(struct scan *sc, enum tok_type type, struct str s)
{
    if (sc->n == sc->of->cap) {
        sc->of->cap = sc->of->cap != 0 ? sc->of->cap * 2 : 256;
        sc->toks = sc->of->toks = xrealloc(sc->toks, sc->of->cap * sizeof *sc->toks);
    }
    ++*sc->work;
    sc->toks[sc->n] = (struct tok){.type = (uint8_t)type, .s = s};
    return &sc->toks[sc->n++];
}

static void add_text(struct scan *sc, size_t from, size_t to)
{
    if (to > from)
        add_tok(sc, TOK_TEXT, str_make(sc->s.p + from, to - from));
}

static bool is_punct(char c)
{
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t';
}

static size_t run_of(struct str s, size_t at, char c)
{
    size_t n = 0;

    while (at + n < s.n && s.p[at + n] == c)
        n++;
    return n;
}

/* ---- pairing ---- */

static size_t mark_index(char mark)
{
    return mark == '*' ? 0 : mark == '_' ? 1 : mark == '~' ? 2 : 3;
}

static void shrink_stack(struct scan *sc, size_t n)
{
    sc->n_stack = n;
    for (size_t i = 0; i < MARKS; i++)
        if (sc->bottom[i] > n)
            sc->bottom[i] = n;
}

/* Pairs @closer, the newest token, with the open marks as far as possible. */
static void close_styles(struct scan *sc, struct tok *closer)
{
    size_t *bottom = &sc->bottom[mark_index(closer->mark)];

    while (closer->left > 0) {
        size_t at = sc->n_stack, low = *bottom > sc->base ? *bottom : sc->base;
        while (at > low && sc->toks[sc->stack[at - 1]].mark != closer->mark)
            at--;
        if (at <= low) {
            *bottom = sc->n_stack;
            return;
        }
        struct tok *opener = &sc->toks[sc->stack[at - 1]];
        unsigned use = opener->left >= 2 && closer->left >= 2 ? 2 : 1;
        enum md_kind kind = closer->mark == '~'   ? MD_STRIKE
                            : closer->mark == '|' ? MD_SPOILER
                            : use == 2            ? MD_BOLD
                                                  : MD_ITALIC;
        opener->opens[opener->n_opens++] = (uint8_t)kind;
        closer->closes[closer->n_closes++] = (uint8_t)kind;
        opener->left = (uint8_t)(opener->left - use);
        closer->left = (uint8_t)(closer->left - use);
        shrink_stack(sc, opener->left > 0 ? at : at - 1);
    }
}

/* Decides whether the run of @n marks at @at may open or close a style, then pairs it. */
static void take_marks(struct scan *sc, size_t at, size_t n)
{
    char mark = sc->s.p[at];
    char before = at > 0 ? sc->s.p[at - 1] : ' ';
    char after = at + n < sc->s.n ? sc->s.p[at + n] : ' ';
    bool left = !is_blank(after) && (!is_punct(after) || is_blank(before) || is_punct(before));
    bool right = !is_blank(before) && (!is_punct(before) || is_blank(after) || is_punct(after));
    bool opens = left, closes = right;

    if (mark == '_') { /* snake_case is a word */
        opens = left && (!right || is_punct(before));
        closes = right && (!left || is_punct(after));
    } else if (mark != '*') {
        opens = !is_blank(after);
        closes = !is_blank(before);
    }
    struct tok *t = add_tok(sc, TOK_MARK, STR_NULL);
    t->mark = mark;
    t->n = t->left = (uint8_t)n;
    if (closes)
        close_styles(sc, t);
    if (opens && t->left > 0) {
        if (sc->n_stack == sc->of->cap_stack) {
            sc->of->cap_stack = sc->of->cap_stack != 0 ? sc->of->cap_stack * 2 : 256;
            sc->stack = sc->of->stack = xrealloc(sc->stack, sc->of->cap_stack * sizeof *sc->stack);
        }
        sc->stack[sc->n_stack++] = sc->n - 1;
    }
}

/* ---- code ---- */

static struct str trim_code(struct str s)
{
    bool blank = str_trim(s).n == 0;

    if (!blank && s.n > 2 && s.p[0] == ' ' && s.p[s.n - 1] == ' ')
        return str_make(s.p + 1, s.n - 2);
    return s;
}

/* Reads a code span at @at up to *@ret_end; false: these backticks are text. */
static bool take_code(struct scan *sc, size_t at, size_t n, size_t *ret_end)
{
    if (n > MAX_TICKS || sc->no_code & 1u << n)
        return false;
    for (size_t i = at + n; i < sc->s.n;) {
        if (sc->s.p[i] != '`') {
            i++;
            continue;
        }
        size_t run = run_of(sc->s, i, '`');
        if (run == n) {
            *sc->work += (i - at) / SEARCHED;
            add_tok(sc, TOK_CODE, trim_code(str_make(sc->s.p + at + n, i - at - n)));
            *ret_end = i + n;
            return true;
        }
        i += run;
    }
    *sc->work += (sc->s.n - at) / SEARCHED;
    sc->no_code |= 1u << n;
    return false;
}

/* ---- links ---- */

/* False: Telegram would refuse this target, so the link is shown as text. */
static bool is_target(struct str url)
{
    static const struct str schemes[] = {{"https://", 8}, {"http://", 7}, {"tg://", 5}};

    for (size_t i = 0; i < ARRAY_LEN(schemes); i++) {
        struct str s = schemes[i];
        if (url.n <= s.n || !str_eq_ci(str_make(url.p, s.n), s))
            continue;
        char c = url.p[s.n];
        return c == '[' || !(is_punct(c) || is_blank(c));
    }
    return false;
}

static size_t skip_blanks(struct str s, size_t at)
{
    while (at < s.n && is_blank(s.p[at]))
        at++;
    return at;
}

/* The end of the destination that starts at @at: white space or the closing bracket.  Stops at more
 * than MAX_NESTED open brackets, so that nested links do not scan the same bytes many times. */
static size_t dest_end(struct str s, size_t at)
{
    size_t end = at, depth = 0;

    for (; end < s.n && end - at < MAX_URL && (unsigned char)s.p[end] > ' '; end++) {
        if (s.p[end] == '\\' && end + 1 < s.n && is_punct(s.p[end + 1])) {
            end++;
            continue;
        }
        depth += s.p[end] == '(';
        if (depth > MAX_NESTED)
            break;
        if (s.p[end] == ')' && depth-- == 0)
            break;
    }
    return end;
}

static size_t skip_title(struct scan *sc, size_t at)
{
    struct str s = sc->s;
    char quote = at < s.n ? s.p[at] : '\0';
    size_t end = at + 1;

    if (quote != '"' && quote != '\'')
        return at;
    while (end < s.n && end - at < MAX_URL && s.p[end] != quote)
        end++;
    *sc->work += (end - at) / SEARCHED;
    return end < s.n && s.p[end] == quote ? skip_blanks(s, end + 1) : at;
}

/* Reads "(url)" or "(<url> "title")" at @at, up to *@ret_end. */
static bool take_dest(struct scan *sc, size_t at, struct str *ret_url, size_t *ret_end)
{
    struct str s = sc->s;

    if (at >= s.n || s.p[at] != '(')
        return false;
    size_t from = skip_blanks(s, at + 1), to, next;
    if (from < s.n && s.p[from] == '<') {
        from++;
        for (to = from; to < s.n && to - from < MAX_URL && (unsigned char)s.p[to] > ' ' &&
                        strchr("<>", s.p[to]) == NULL;)
            to++;
        *sc->work += (to - from) / SEARCHED;
        if (to >= s.n || s.p[to] != '>')
            return false;
        next = to + 1;
    } else {
        next = to = dest_end(s, from);
    }
    next = skip_title(sc, skip_blanks(s, next));
    *sc->work += (next - at) / SEARCHED + 1;
    if (next >= s.n || s.p[next] != ')')
        return false;
    *ret_url = str_make(s.p + from, to - from);
    *ret_end = next + 1;
    return true;
}

static void scan_range(struct scan *sc, size_t from, size_t to);

/* Reads "[text](url)" whose '[' is at @open.  Of a link or an image inside a link only the text
 * stays: scanning continues after its '[', and skips from its ']' to its end.  There is no
 * recursion, because links may be nested to any depth. */
static bool take_link(struct scan *sc, size_t open, size_t to, size_t *ret_end)
{
    size_t close = sc->brackets != NULL ? sc->brackets[open] : 0;
    struct str url;

    if (close == 0 || !take_dest(sc, close + 1, &url, ret_end) || *ret_end > to)
        return false;
    if (sc->in_link) {
        sc->brackets[close] = (uint32_t)*ret_end;
        *ret_end = open + 1;
        return true;
    }
    size_t base = sc->base, bottom[MARKS];
    memcpy(bottom, sc->bottom, sizeof bottom);
    sc->base = sc->n_stack;
    sc->in_link = true;
    add_tok(sc, TOK_LINK, url);
    scan_range(sc, open + 1, close);
    add_tok(sc, TOK_LINK_END, url);
    sc->in_link = false;
    shrink_stack(sc, sc->base);
    sc->base = base;
    memcpy(sc->bottom, bottom, sizeof bottom);
    return true;
}

/* ---- the first pass ---- */

/* Adds the tokens of the element at @at, which ends at *@ret_end.  False: it is text. */
static bool take(struct scan *sc, size_t at, size_t to, size_t *ret_end)
{
    char c = sc->s.p[at];
    size_t n;

    switch (c) {
    case '`':
        n = run_of(sc->s, at, c);
        return take_code(sc, at, n, ret_end) && *ret_end <= to;
    case '[':
        return take_link(sc, at, to, ret_end);
    case ']':
        *ret_end = sc->in_link ? sc->brackets[at] : 0;
        return *ret_end > at && *ret_end <= to;
    case '!':
        return at + 1 < to && sc->s.p[at + 1] == '[' && take_link(sc, at + 1, to, ret_end);
    case '<': { /* "<https://...>" is the address without brackets */
        size_t end = at + 1;
        while (end < to && end - at < MAX_URL && (unsigned char)sc->s.p[end] > ' ' &&
               sc->s.p[end] != '>' && sc->s.p[end] != '<')
            end++;
        *sc->work += (end - at) / SEARCHED;
        if (end >= to || sc->s.p[end] != '>' ||
            !is_target(str_make(sc->s.p + at + 1, end - at - 1)))
            return false;
        add_text(sc, at + 1, end);
        *ret_end = end + 1;
        return true;
    }
    case '*':
    case '_':
    case '~':
    case '|':
        n = run_of(sc->s, at, c);
        if (at + n > to || n > MAX_MARKS || ((c == '~' || c == '|') && n != 2))
            return false;
        take_marks(sc, at, n);
        *ret_end = at + n;
        return true;
    default:
        return false;
    }
}

static const bool may_begin[256] = {
    ['`'] = true, ['['] = true, [']'] = true, ['!'] = true, ['<'] = true,
    ['*'] = true, ['_'] = true, ['~'] = true, ['|'] = true};

static void scan_range(struct scan *sc, size_t from, size_t to)
{
    size_t text = from, at = from;

    while (at < to && *sc->work < MD_MOST_WORK) {
        char c = sc->s.p[at];
        size_t end, n_before = sc->n;
        if (c == '\\' && at + 1 < to && (is_punct(sc->s.p[at + 1]) || sc->s.p[at + 1] == '\n')) {
            add_text(sc, text, at);
            text = at + 1;
            at += 2;
            continue;
        }
        if (!may_begin[(unsigned char)c]) {
            at++;
            continue;
        }
        add_text(sc, text, at);
        if (take(sc, at, to, &end)) {
            text = at = end;
            continue;
        }
        sc->n = n_before; /* text, or it ends outside of this link's text */
        at += c == '`' || c == '*' || c == '_' || c == '~' || c == '|' ? run_of(sc->s, at, c) : 1;
    }
    add_text(sc, text, to); /* with everything unread if the budget of work is spent */
}

static void pair_brackets(struct scan *sc)
{
    uint32_t *open;
    size_t n = 0;

    if (str_find(sc->s, '[') < 0)
        return;
    if (sc->s.n > sc->of->cap_brackets) {
        sc->of->cap_brackets = sc->s.n;
        sc->of->brackets =
            xrealloc(sc->of->brackets, 2 * sc->of->cap_brackets * sizeof *sc->of->brackets);
    }
    sc->brackets = sc->of->brackets;
    open = sc->brackets + sc->s.n;
    memset(sc->brackets, 0, sc->s.n * sizeof *sc->brackets);
    for (size_t i = 0; i < sc->s.n; i++) {
        if (sc->s.p[i] == '\\')
            i++;
        else if (sc->s.p[i] == '[')
            open[n++] = (uint32_t)i;
        else if (sc->s.p[i] == ']' && n > 0)
            sc->brackets[open[--n]] = (uint32_t)i;
    }
}

/* ---- the second pass ---- */

static void end_link(struct md *m, struct str url, size_t off, size_t text_from)
{
    BUF_LOCAL plain = BUF_INIT;

    for (size_t i = 0; i < url.n; i++) {
        if (url.p[i] == '\\' && i + 1 < url.n && is_punct(url.p[i + 1]))
            i++;
        buf_add_c(&plain, url.p[i]);
    }
    struct str to = buf_str(&plain);

    if (m->units == off) /* a link without text shows its address */
        md_add(m, to);
    if (is_target(to))
        md_entity_add(m, MD_LINK, off, to);
    else if (to.n > 0 && to.p[0] != '#' &&
             !str_eq(str_make(m->text.p + text_from, m->text.n - text_from), to)) {
        md_add(m, STR(" ("));
        md_add(m, to);
        md_add(m, STR(")"));
    }
}

static void write_toks(struct md_run *r, const struct scan *sc)
{
    size_t link_off = 0, link_from = 0;
    bool in_link = false;

    for (size_t i = 0; i < sc->n; i++) {
        const struct tok *t = &sc->toks[i];
        switch (t->type) {
        case TOK_TEXT:
            md_add(r->md, t->s);
            break;
        case TOK_CODE:
            if (in_link)
                md_add(r->md, t->s);
            else
                md_add_code(r, t->s);
            break;
        case TOK_MARK:
            for (unsigned k = 0; k < t->n_closes; k++)
                md_style_close(r, (enum md_kind)t->closes[k]);
            for (unsigned k = 0; k < t->left; k++)
                md_add(r->md, str_make(&t->mark, 1));
            for (unsigned k = t->n_opens; k > 0; k--)
                md_style_open(r, (enum md_kind)t->opens[k - 1]);
            break;
        case TOK_LINK:
            in_link = true;
            link_off = r->md->units;
            link_from = r->md->text.n;
            break;
        case TOK_LINK_END:
            in_link = false;
            end_link(r->md, t->s, link_off, link_from);
            break;
        }
    }
}

void md_inline(struct md_run *r, struct str s)
{
    struct scan sc = {.s = s,
                      .work = &r->md->work,
                      .of = r->scratch,
                      .toks = r->scratch->toks,
                      .stack = r->scratch->stack};

    pair_brackets(&sc);
    scan_range(&sc, 0, s.n);
    write_toks(r, &sc);
}

void md_scratch_done(struct md_scratch *t)
{
    free(t->brackets);
    free(t->toks);
    free(t->stack);
    *t = (struct md_scratch){0};
}
