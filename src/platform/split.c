/* split.c - design.  (split.h has the contract.)
 *
 * One walk over at most `limit` units of the text finds each part.  The walk goes line by line, so
 * that the fence state is known everywhere, and remembers the last possible cut of each kind.  The
 * best kind wins unless its cut lies in the first half of the part, which would make the message
 * too short.  A reopened fence costs its opening line at the start of a part, and an open fence
 * costs its closing line at the end; the walk counts both. */
#include "platform/split.h"
#include <stdlib.h>
#include "base/mem.h"

enum { MAX_MARKER = 12, MAX_LANG = 20 }; /* a longer marker is no fence; a longer language is cut */

struct fence {
    char mark;       /* '`' or '~' */
    size_t n;        /* how many of them; 0: no fence is open */
    struct str lang; /* first word of its info string, borrowed from the text */
};

enum kind { CUT_PARAGRAPH, CUT_LINE, CUT_WORD, CUT_HARD, CUT_KINDS };

struct cut {
    bool set;
    size_t end, next; /* where this part's text ends and the next one's starts */
    size_t used;      /* units up to @end */
    struct fence fence;
};

struct walk {
    struct str text;
    enum split_unit unit;
    size_t start, room; /* of the part being looked for: offset, units */
    struct cut best[CUT_KINDS];
};

/* The bytes of the character at @at; @ret_units: how much it counts. */
static size_t next_char(struct str s, size_t at, enum split_unit unit, size_t *ret_units)
{
    size_t n = utf8_seq_bytes(str_skip(s, at));

    *ret_units = unit == SPLIT_UTF16 && n == 4 ? 2 : 1;
    return n > 0 ? n : 1;
}

size_t split_length(struct str text, enum split_unit unit)
{
    size_t all = 0, units;

    for (size_t at = 0; at < text.n; all += units)
        at += next_char(text, at, unit, &units);
    return all;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* The fence that is open after @line; @open was open before it. */
static struct fence fence_after(struct fence open, struct str line)
{
    struct str s = str_trim(line);
    size_t n = 0;

    if (s.n == 0 || (s.p[0] != '`' && s.p[0] != '~'))
        return open;
    while (n < s.n && s.p[n] == s.p[0])
        n++;
    struct str info = str_trim(str_skip(s, n));
    if (open.n > 0)
        return s.p[0] == open.mark && n >= open.n && info.n == 0 ? (struct fence){0} : open;
    if (n < 3 || n > MAX_MARKER || str_find(info, '`') >= 0)
        return open;
    struct str lang = {info.p, 0};
    while (lang.n < info.n && lang.n < MAX_LANG && info.p[lang.n] > ' ' && info.p[lang.n] < 0x7f)
        lang.n++;
    return (struct fence){s.p[0], n, lang};
}

static size_t closing_units(const struct fence *f)
{
    return f->n > 0 ? f->n + 1 : 0; /* a line break and the marker */
}

static void offer(struct walk *w, enum kind kind, size_t end, size_t next, size_t used,
                  const struct fence *f)
{
    if (end > w->start && used + closing_units(f) <= w->room)
        w->best[kind] = (struct cut){true, end, next, used, *f};
}

/* Walks the characters of one line, from *@used units on; false: the room ends inside the line. */
static bool walk_line(struct walk *w, size_t from, size_t to, const struct fence *f, size_t *used)
{
    for (size_t at = from; at < to;) {
        size_t units, n = next_char(w->text, at, w->unit, &units);

        if (*used + units + closing_units(f) > w->room)
            return false;
        *used += units;
        at += n;
        offer(w, CUT_HARD, at, at, *used, f);
        if (f->n == 0 && at < to && w->text.p[at] == ' ') {
            size_t next = at;
            while (next < to && w->text.p[next] == ' ')
                next++;
            offer(w, CUT_WORD, at, next, *used, f);
        }
    }
    return true;
}

/* Fills w->best.  True: the rest of the text fits, and *@ret_open is the fence it leaves open. */
static bool walk_part(struct walk *w, struct fence f, struct fence *ret_open)
{
    size_t used = 0;

    for (size_t at = w->start; at < w->text.n;) {
        struct str rest = str_skip(w->text, at);
        ptrdiff_t nl = str_find(rest, '\n');
        size_t end = nl >= 0 ? at + (size_t)nl : w->text.n;
        struct str line = str_make(rest.p, end - at);
        struct fence after = fence_after(f, line);

        if (!walk_line(w, at, end, &f, &used))
            return false;
        if (nl >= 0) {
            bool opens = f.n == 0 && after.n > 0; /* a cut here would make an empty fence */
            if (!opens)
                offer(w, after.n == 0 && str_trim(line).n == 0 ? CUT_PARAGRAPH : CUT_LINE, end,
                      end + 1, used, &after);
            used++;
        }
        f = after;
        at = nl >= 0 ? end + 1 : end;
    }
    *ret_open = f;
    return used + closing_units(&f) <= w->room;
}

static void add_part(struct split *s, struct str body, const struct fence *was,
                     const struct fence *open)
{
    size_t start = s->bytes.n;

    if (was->n == 0 && open->n == 0)
        while (body.n > 0 && is_space(body.p[body.n - 1]))
            body.n--;
    if (was->n > 0) {
        for (size_t i = 0; i < was->n; i++)
            buf_add_c(&s->bytes, was->mark);
        buf_add_str(&s->bytes, was->lang);
        buf_add_c(&s->bytes, '\n');
    }
    buf_add_str(&s->bytes, body);
    if (open->n > 0) {
        buf_add_c(&s->bytes, '\n');
        for (size_t i = 0; i < open->n; i++)
            buf_add_c(&s->bytes, open->mark);
    }
    if (str_trim(str_skip(buf_str(&s->bytes), start)).n == 0) {
        s->bytes.n = start;
        return;
    }
    s->ends = xrealloc(s->ends, (s->n + 1) * sizeof *s->ends);
    s->ends[s->n++] = s->bytes.n;
}

/* Outside of fences a part starts with its first line that is not blank. */
static size_t skip_blank_lines(struct str text, size_t at)
{
    for (size_t i = at; i < text.n && is_space(text.p[i]); i++)
        if (text.p[i] == '\n')
            at = i + 1;
    return at;
}

/* For a fence that was cut just before its own closing line: the part before has closed it. */
static size_t skip_closing_line(struct str text, size_t at, struct fence *f)
{
    struct str line = str_skip(text, at);
    ptrdiff_t nl = str_find(line, '\n');

    if (nl >= 0)
        line.n = (size_t)nl;
    if (f->n == 0 || at == 0 || text.p[at - 1] != '\n' || fence_after(*f, line).n > 0)
        return at;
    *f = (struct fence){0};
    return at + line.n;
}

void split_text(struct split *s, struct str text, size_t limit, enum split_unit unit)
{
    struct walk w = {.text = text, .unit = unit};
    struct fence was = {0}, open = {0};

    split_done(s);
    while (text.n > 0 && is_space(text.p[text.n - 1]))
        text.n--;
    w.text = text;
    w.start = skip_blank_lines(text, 0);
    if (limit < SPLIT_MIN_LIMIT)
        limit = SPLIT_MIN_LIMIT;
    if (split_length(str_skip(text, w.start), unit) <= limit) {
        add_part(s, str_skip(text, w.start), &was, &open);
        return;
    }
    while (w.start < text.n) {
        memset(w.best, 0, sizeof w.best);
        w.room = limit - (was.n > 0 ? was.n + was.lang.n + 1 : 0);
        if (walk_part(&w, was, &open)) {
            add_part(s, str_skip(text, w.start), &was, &open);
            return;
        }
        struct cut cut = w.best[CUT_HARD];
        for (int kind = CUT_HARD - 1; kind >= 0; kind--)
            if (w.best[kind].set && w.best[kind].used * 2 >= w.room)
                cut = w.best[kind];
        add_part(s, str_make(text.p + w.start, cut.end - w.start), &was, &cut.fence);
        was = cut.fence;
        w.start = skip_closing_line(text, cut.next, &was);
        if (was.n == 0)
            w.start = skip_blank_lines(text, w.start);
    }
}

struct str split_part(const struct split *s, size_t i)
{
    size_t from = i > 0 ? s->ends[i - 1] : 0;
    return str_make(s->bytes.p + from, s->ends[i] - from);
}

void split_done(struct split *s)
{
    buf_done(&s->bytes);
    free(s->ends);
    *s = SPLIT_INIT;
}

void split_within(struct split *s, struct str text, const struct split_limits *limits)
{
    for (size_t limit = limits->max; limit >= SPLIT_MIN_LIMIT; limit = limit * 3 / 4) {
        split_done(s);
        split_text(s, text, limit, limits->unit);
        bool fits = true;
        for (size_t i = 0; i < s->n && limits->max_bytes != 0; i++)
            fits &= split_part(s, i).n <= limits->max_bytes;
        if (fits)
            return;
    }
}
