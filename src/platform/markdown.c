/* markdown.c - design.  (markdown.h has the contract; md_inline.c parses a paragraph.)
 *
 * read_blocks() finds blocks line by line.  Consecutive lines of text form one paragraph, because
 * emphasis may cross a line break; every other block is handled alone.  The lines of a quote lose
 * their marks and are read as blocks once more.  Nested quotes become one, because Telegram has no
 * nested quotes. */
#include "platform/markdown.h"

enum { LINE_WORK = 3 };

struct blocks {
    struct md *md;
    struct md_scratch *scratch; /* borrowed */
    struct str rest;            /* unread source; absent: none */
    bool in_quote;
    bool started;    /* a line was written: the next one needs a line break */
    struct str text; /* lines of text not written yet; absent: none */
};

static struct str indent_off(struct str line, size_t max)
{
    size_t n = 0;

    while (n < line.n && n < max && line.p[n] == ' ')
        n++;
    return str_skip(line, n);
}

static bool peek_line(const struct blocks *b, struct str *ret_line)
{
    struct str rest = b->rest;

    return str_split(&rest, '\n', ret_line);
}

static void new_line(struct blocks *b)
{
    if (b->started)
        md_add(b->md, STR("\n"));
    b->started = true;
}

static void flush_text(struct blocks *b)
{
    struct md_run run = {.md = b->md, .scratch = b->scratch};

    if (b->text.p == NULL)
        return;
    new_line(b);
    md_inline(&run, b->text);
    b->text = STR_NULL;
}

/* ---- fences and tables ---- */

/* The number of marks that open or close a fence; 0: not a fence.  *@ret_info is the text after
 * them. */
static size_t fence_marks(struct str line, char mark, struct str *ret_info)
{
    struct str s = indent_off(line, 3);
    size_t n = 0;

    while (n < s.n && s.p[n] == mark)
        n++;
    *ret_info = str_trim(str_skip(s, n));
    return n >= 3 ? n : 0;
}

static struct str language_of(struct str info)
{
    size_t n = 0;

    while (n < info.n && n < 32 && (unsigned char)info.p[n] > ' ' && info.p[n] != '`' &&
           info.p[n] != '{')
        n++;
    return str_make(info.p, n);
}

/* Writes lines unchanged; the entity ends before the next line break. */
static void write_pre(struct blocks *b, struct str code, struct str language)
{
    new_line(b);
    size_t off = b->md->units;
    md_add(b->md, code);
    md_entity_add(b->md, MD_PRE, off, language);
}

static bool take_fence(struct blocks *b, struct str line)
{
    struct str info, end, one;
    char mark = indent_off(line, 3).n > 0 ? indent_off(line, 3).p[0] : '\0';
    size_t n = mark == '`' || mark == '~' ? fence_marks(line, mark, &info) : 0;

    if (n == 0 || (mark == '`' && str_find(info, '`') >= 0))
        return false;
    flush_text(b);
    const char *from = b->rest.p, *to = from;
    while (str_split(&b->rest, '\n', &one)) {
        if (fence_marks(one, mark, &end) >= n && end.n == 0)
            break;
        to = one.p + one.n;
    }
    if (from != NULL && to > from)
        write_pre(b, str_make(from, (size_t)(to - from)), language_of(info));
    return true;
}

static bool is_table_rule(struct str line)
{
    bool dashes = false;

    line = str_trim(line);
    for (size_t i = 0; i < line.n; i++) {
        if (line.p[i] == '\0' || strchr("|-: ", line.p[i]) == NULL)
            return false;
        dashes |= line.p[i] == '-';
    }
    return dashes;
}

static bool is_row(struct str line)
{
    line = str_trim(line);
    return line.n > 1 && line.p[0] == '|';
}

static bool take_table(struct blocks *b, struct str line)
{
    struct str next;

    if (!is_row(line) || !peek_line(b, &next) || !is_row(next) || !is_table_rule(next))
        return false;
    flush_text(b);
    const char *to = line.p + line.n;
    while (peek_line(b, &next) && is_row(next)) {
        str_split(&b->rest, '\n', &next);
        to = next.p + next.n;
    }
    write_pre(b, str_make(line.p, (size_t)(to - line.p)), STR_NULL);
    return true;
}

/* ---- lines ---- */

static bool take_heading(struct blocks *b, struct str line)
{
    struct md_run run = {.md = b->md, .scratch = b->scratch};
    struct str s = indent_off(line, 3);
    size_t n = 0;

    while (n < s.n && s.p[n] == '#')
        n++;
    if (n == 0 || n > 6 || n >= s.n || s.p[n] != ' ')
        return false;
    s = str_trim(str_skip(s, n));
    while (s.n > 0 && s.p[s.n - 1] == '#')
        s.n--;
    flush_text(b);
    new_line(b);
    md_style_open(&run, MD_BOLD);
    md_inline(&run, str_trim(s));
    md_style_close(&run, MD_BOLD);
    return true;
}

static bool take_rule(struct blocks *b, struct str line)
{
    struct str s = str_trim(line);
    size_t marks = 0;

    if (s.n < 3 || (s.p[0] != '-' && s.p[0] != '*' && s.p[0] != '_'))
        return false;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] != s.p[0] && s.p[i] != ' ')
            return false;
        marks += s.p[i] == s.p[0];
    }
    if (marks < 3)
        return false;
    flush_text(b);
    new_line(b);
    md_add(b->md, STR("\u2014\u2014\u2014"));
    return true;
}

/* Removes "[ ] " or "[x] " from @s and returns a box for it; for other items returns a bullet. */
static struct str item_mark(struct str *s)
{
    struct str box = str_make(s->p, s->n < 4 ? s->n : 4);

    if (str_eq(box, STR("[ ] "))) {
        *s = str_skip(*s, 4);
        return STR("\u2610 ");
    }
    if (str_eq_ci(box, STR("[x] "))) {
        *s = str_skip(*s, 4);
        return STR("\u2611 ");
    }
    return STR("\u2022 ");
}

static bool take_item(struct blocks *b, struct str line)
{
    struct md_run run = {.md = b->md, .scratch = b->scratch};
    size_t indent = 0, digits = 0;

    while (indent < line.n && (line.p[indent] == ' ' || line.p[indent] == '\t'))
        indent++;
    struct str s = str_skip(line, indent), mark;
    while (digits < s.n && digits < 9 && s.p[digits] >= '0' && s.p[digits] <= '9')
        digits++;
    if (s.n > digits + 1 && digits > 0 && s.p[digits] == '.' && s.p[digits + 1] == ' ') {
        mark = str_make(s.p, digits + 2);
        s = str_skip(s, digits + 2);
    } else if (s.n > 2 && (s.p[0] == '-' || s.p[0] == '*' || s.p[0] == '+') && s.p[1] == ' ') {
        s = str_skip(s, 2);
        mark = item_mark(&s);
    } else {
        return false;
    }
    flush_text(b);
    new_line(b);
    md_add(b->md, str_make(line.p, indent));
    md_add(b->md, mark);
    md_inline(&run, s);
    return true;
}

/* ---- quotes ---- */

static void read_blocks(struct blocks *b);

static bool is_quote(struct str line)
{
    struct str s = indent_off(line, 3);

    return s.n > 0 && s.p[0] == '>';
}

static void add_quoted(struct buf *to, struct str line)
{
    while (is_quote(line)) {
        line = str_skip(indent_off(line, 3), 1);
        line = str_starts(line, STR(" ")) ? str_skip(line, 1) : line;
    }
    buf_add_str(to, line);
    buf_add_c(to, '\n');
}

static bool take_quote(struct blocks *b, struct str line)
{
    BUF_LOCAL inner = BUF_INIT;
    struct str next;

    if (b->in_quote || !is_quote(line))
        return false;
    flush_text(b);
    add_quoted(&inner, line);
    while (peek_line(b, &next) && is_quote(next)) {
        str_split(&b->rest, '\n', &next);
        add_quoted(&inner, next);
    }
    new_line(b);
    size_t off = b->md->units;
    struct blocks in = {.md = b->md,
                        .scratch = b->scratch,
                        .rest = str_make(inner.p, inner.n - 1),
                        .in_quote = true};
    read_blocks(&in);
    md_entity_add(b->md, MD_QUOTE, off, STR_NULL);
    return true;
}

/* ---- the whole text ---- */

static void read_blocks(struct blocks *b)
{
    struct str line;

    while (b->md->work < MD_MOST_WORK && str_split(&b->rest, '\n', &line)) {
        b->md->work += LINE_WORK;
        if (line.n == 0) {
            flush_text(b);
            new_line(b);
            continue;
        }
        if (take_fence(b, line) || take_quote(b, line) || take_table(b, line) ||
            take_heading(b, line) || take_rule(b, line) || take_item(b, line))
            continue;
        if (str_trim(line).n == 0) { /* emphasis ends with its paragraph */
            flush_text(b);
            new_line(b);
            continue;
        }
        if (b->text.p == NULL)
            b->text = line;
        b->text.n = (size_t)(line.p + line.n - b->text.p);
    }
    flush_text(b);
    if (b->rest.p != NULL) { /* the budget of work is spent: the rest is text */
        new_line(b);
        md_add(b->md, b->rest);
        b->rest = STR_NULL;
    }
}

static bool is_before(const struct md_entity *x, const struct md_entity *y)
{
    if (x->off != y->off)
        return x->off < y->off;
    if (x->len != y->len)
        return x->len > y->len;
    return x->kind > y->kind; /* quotes around links around styles */
}

void md_parse(struct md *m, struct str markdown)
{
    BUF_LOCAL clean = BUF_INIT;
    struct str all = markdown;

    if (str_find(all, '\r') >= 0 || str_find(all, '\0') >= 0) {
        for (size_t i = 0; i < markdown.n; i++)
            if (markdown.p[i] != '\r' && markdown.p[i] != '\0')
                buf_add_c(&clean, markdown.p[i]);
        all = buf_str(&clean);
    }
    struct md_scratch scratch = {0};
    struct blocks b = {.md = m, .scratch = &scratch, .rest = all};
    read_blocks(&b);
    md_scratch_done(&scratch);
    /* An insertion sort.  Entities were added in the order of their ends, so each moves only past
     * the ones inside it.  The cost is the number of entities times the nesting depth. */
    for (size_t i = 1; i < m->n; i++) {
        struct md_entity e = m->entities[i];
        size_t at = i;
        while (at > 0 && is_before(&e, &m->entities[at - 1]))
            at--;
        if (at == i)
            continue;
        memmove(&m->entities[at + 1], &m->entities[at], (i - at) * sizeof e);
        m->entities[at] = e;
    }
}
