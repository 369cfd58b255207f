/* stream_mend.c - completes the Markdown of a text that is still being written.  (stream.h has the
 * contract.)
 *
 * One pass over the text finds an open code fence.  Outside of fences only the last paragraph
 * matters, because emphasis does not cross an empty line: a second pass over it keeps the open
 * marks on a small stack.  What is open at the end is closed in reverse order, behind the cursor.
 * Marks at the very end, which enclose nothing yet, and half of a link or of a table row are left
 * out until more text comes.
 *
 * Where text can only be appended nothing can be closed, so stream_settled() leaves out everything
 * from the first open mark on, but never more than a few lines. */
#include <string.h>
#include "platform/stream.h"

enum {
    MAX_OPEN = 8,
    MAX_FENCE = 16,
    MAX_HELD = 2000, /* bytes that stream_settled() holds back */
};

struct open_mark {
    char c;
    size_t n;  /* how many of @c */
    size_t at; /* where it begins in the paragraph */
};

static size_t run_of(struct str s, size_t at)
{
    size_t n = 0;

    while (at + n < s.n && s.p[at + n] == s.p[at])
        n++;
    return n;
}

/* Finds the fence that is open at the end of @s.  False: none; *@ret_from is then where the last
 * paragraph begins. */
static bool open_fence(struct str s, char *ret_c, size_t *ret_n, size_t *ret_from)
{
    bool open = false;

    *ret_from = 0;
    for (size_t at = 0; at < s.n;) {
        const char *nl = memchr(s.p + at, '\n', s.n - at);
        size_t end = nl != NULL ? (size_t)(nl - s.p) : s.n, i = at;
        while (i < end && s.p[i] == ' ')
            i++;
        size_t n = i < end && (s.p[i] == '`' || s.p[i] == '~') ? run_of(s, i) : 0;
        struct str rest = str_trim(str_make(s.p + i + n, end - i - n));
        if (open && n >= *ret_n && s.p[i] == *ret_c && rest.n == 0) {
            open = false;
            *ret_from = end < s.n ? end + 1 : s.n;
        } else if (!open && n >= 3 && i - at <= 3 && n <= MAX_FENCE &&
                   (s.p[i] != '`' || memchr(rest.p, '`', rest.n) == NULL)) {
            open = true;
            *ret_c = s.p[i];
            *ret_n = n;
        } else if (!open && i == end) {
            *ret_from = end < s.n ? end + 1 : s.n;
        }
        at = end + 1;
    }
    return open;
}

static bool is_word(struct str s, size_t at)
{
    unsigned char c = at < s.n ? (unsigned char)s.p[at] : ' ';

    return c >= 0x80 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_space(struct str s, size_t at)
{
    return at >= s.n || memchr(" \t\r\n", s.p[at], 4) != NULL;
}

/* May the run of @n marks at @at open (@opens) or close emphasis? */
static bool flanks(struct str s, size_t at, size_t n, bool opens)
{
    bool before = at > 0 && !is_space(s, at - 1), after = !is_space(s, at + n);

    if (s.p[at] == '_' && at > 0 && is_word(s, at - 1) && is_word(s, at + n))
        return false;
    return opens ? after : before;
}

/* Notes a run of emphasis marks in @open; returns how many are open now. */
static size_t note_run(struct str s, size_t at, size_t n, struct open_mark *open, size_t n_open)
{
    char c = s.p[at];

    if (flanks(s, at, n, false))
        for (size_t k = n_open; k-- > 0;)
            if (open[k].c == c && open[k].n <= n) {
                n -= open[k].n;
                at += open[k].n;
                n_open = k;
                if (n == 0)
                    return n_open;
            }
    if ((c == '~' || c == '|') && n != 2)
        return n_open;
    if (n > 3 || n_open == MAX_OPEN || (!flanks(s, at, n, true) && at + n < s.n))
        return n_open;
    if (n == 3 && n_open + 2 <= MAX_OPEN) {
        open[n_open++] = (struct open_mark){c, 2, at};
        open[n_open++] = (struct open_mark){c, 1, at + 2};
    } else if (n < 3) {
        open[n_open++] = (struct open_mark){c, n, at};
    }
    return n_open;
}

/* Fills @open with the marks that are open at the end of the paragraph @s. */
static size_t open_marks(struct str s, struct open_mark open[MAX_OPEN])
{
    size_t n_open = 0;

    for (size_t i = 0; i < s.n;) {
        char c = s.p[i];
        if (c == '\\') {
            i += 2;
            continue;
        }
        if (memchr("`*_~|", c, 5) == NULL) {
            i++;
            continue;
        }
        size_t n = run_of(s, i);
        if (n > MAX_FENCE) { /* a line, not a mark */
            i += n;
            continue;
        }
        if (c == '`') { /* a code span: nothing counts up to the same run */
            size_t end = i + n;
            while (end < s.n && (s.p[end] != '`' || run_of(s, end) != n))
                end += s.p[end] == '`' ? run_of(s, end) : 1;
            if (end >= s.n) {
                if (n_open < MAX_OPEN)
                    open[n_open++] = (struct open_mark){'`', n, i};
                return n_open;
            }
            i = end + n;
            continue;
        }
        n_open = note_run(s, i, n, open, n_open);
        i += n;
    }
    return n_open;
}

/* The length of @s without half of a link or of a table row at its end. */
static size_t held_back(struct str s)
{
    const char *nl = s.n > 0 ? memrchr(s.p, '\n', s.n) : NULL;
    size_t line = nl != NULL ? (size_t)(nl - s.p) + 1 : 0;
    struct str last = str_skip(s, line), trimmed = str_trim(last);

    if (trimmed.n > 1 && trimmed.p[0] == '|' && trimmed.p[1] != '|' &&
        trimmed.p[trimmed.n - 1] != '|')
        return line;
    for (size_t i = last.n; i-- > 1;) {
        if (last.p[i] == ')' || last.p[i] == ' ')
            break;
        if (last.p[i] != '(' || last.p[i - 1] != ']')
            continue;
        const char *open = memrchr(last.p, '[', i);
        return open != NULL ? line + (size_t)(open - last.p) : s.n;
    }
    return s.n;
}

static size_t settled(struct str body)
{
    struct open_mark open[MAX_OPEN];
    size_t from, n = 0;
    char c = 0;

    if (open_fence(body, &c, &n, &from)) {
        const char *nl = memrchr(body.p, '\n', body.n);
        size_t line = nl != NULL ? (size_t)(nl - body.p) + 1 : 0;
        struct str last = str_trim(str_skip(body, line));
        bool half =
            nl == NULL || (last.n > 0 && last.p[0] == c); /* of a line that opens or closes */
        return half && body.n - line <= MAX_HELD ? line : body.n;
    }
    struct str last = str_skip(body, from);
    size_t end = from + held_back(last);
    if (open_marks(str_make(last.p, end - from), open) > 0)
        end = from + open[0].at;
    const char *angle = end > from ? memrchr(body.p + from, '<', end - from) : NULL;
    if (angle != NULL && memchr(angle, '>', end - (size_t)(angle - body.p)) == NULL)
        end = (size_t)(angle - body.p); /* half of a mention, or of a link */
    return body.n - end <= MAX_HELD ? end : body.n;
}

/* A platform makes mentions harmless in each piece by itself, so no piece ends in the middle of
 * "<@" or "<!", wherever it is cut. */
size_t stream_settled(struct str text)
{
    struct str body = action_without_cursor(text);
    size_t end = settled(body);

    return end > 0 && body.p[end - 1] == '<' ? end - 1 : end;
}

void stream_mend(struct str text, struct buf *out)
{
    struct str body = action_without_cursor(text), cursor = str_skip(text, body.n);
    struct open_mark open[MAX_OPEN];
    size_t from, n = 0, n_open = 0;
    char c = 0;

    if (open_fence(body, &c, &n, &from)) {
        buf_add_str(out, text);
        if (text.n > 0 && text.p[text.n - 1] != '\n')
            buf_add_str(out, STR("\n"));
        while (n-- > 0)
            buf_add(out, &c, 1);
        return;
    }
    struct str last = str_skip(body, from);
    last.n = held_back(last);
    n_open = open_marks(last, open);
    while (n_open > 0 && open[n_open - 1].at + open[n_open - 1].n >= last.n) {
        last.n = open[n_open - 1].at; /* the mark encloses nothing yet */
        n_open--;
        while (n_open > 0 && open[n_open - 1].at >= last.n)
            n_open--;
    }
    while (last.n > 0 && n_open > 0 && cursor.n == 0 && is_space(last, last.n - 1))
        last.n--; /* a mark behind a space closes nothing */
    buf_add(out, body.p, from);
    buf_add_str(out, last);
    buf_add_str(out, cursor);
    while (n_open-- > 0)
        for (size_t i = 0; i < open[n_open].n; i++)
            buf_add(out, &open[n_open].c, 1);
}
