/* resp.c - (resp.h has the contract.) */
#include "net/resp.h"

enum { MORE = 0, BAD = -1, MAX_LINE = 4096 };

/* The line at @at, without its end; answers with the place behind it. */
static ptrdiff_t read_line(struct str in, size_t at, struct str *ret_line)
{
    struct str rest = str_skip(in, at);
    const char *end = rest.n > 1 ? memmem(rest.p, rest.n, "\r\n", 2) : NULL;

    if (end == NULL)
        return rest.n > MAX_LINE ? BAD : MORE;
    *ret_line = str_make(rest.p, (size_t)(end - rest.p));
    return ret_line->n <= MAX_LINE ? (ptrdiff_t)(at + ret_line->n + 2) : BAD;
}

/* A bulk whose head said @length; -1 is null. */
static ptrdiff_t read_bulk(struct str in, size_t at, struct str length, struct str *ret_text)
{
    int64_t n;

    if (!str_to_i64(length, &n) || n < -1 || n > RESP_MAX_BULK)
        return BAD;
    *ret_text = STR_NULL;
    if (n < 0)
        return (ptrdiff_t)at;
    if (in.n - at < (size_t)n + 2)
        return MORE;
    if (memcmp(in.p + at + n, "\r\n", 2) != 0)
        return BAD;
    *ret_text = str_make(in.p + at, (size_t)n);
    return (ptrdiff_t)(at + (size_t)n + 2);
}

/* Anything but an array. */
static ptrdiff_t read_plain(struct str in, size_t at, enum resp_kind *ret_kind,
                            struct str *ret_text)
{
    struct str line;
    ptrdiff_t next = read_line(in, at, &line);
    int64_t number;

    if (next <= 0)
        return next;
    if (line.n == 0)
        return BAD;
    *ret_text = str_skip(line, 1);
    switch (*line.p) {
    case '+':
        *ret_kind = RESP_WORD;
        return next;
    case '-':
        *ret_kind = RESP_ERROR;
        return next;
    case ':':
        *ret_kind = RESP_NUMBER;
        return str_to_i64(*ret_text, &number) ? next : BAD;
    case '$':
        *ret_kind = RESP_BULK;
        return read_bulk(in, (size_t)next, *ret_text, ret_text);
    default:
        return BAD;
    }
}

/* The head of an array: how many items follow; none if it is null. */
static ptrdiff_t read_count(struct str in, size_t at, size_t *ret_n)
{
    struct str line;
    ptrdiff_t next = read_line(in, at, &line);
    int64_t n;

    if (next <= 0)
        return next;
    if (!str_to_i64(str_skip(line, 1), &n) || n < -1 || n > RESP_MAX_ITEMS)
        return BAD;
    *ret_n = n > 0 ? (size_t)n : 0;
    return next;
}

/* One item of an array; *@ret_text is its text, or the bytes of an array. */
static ptrdiff_t read_item(struct str in, size_t at, unsigned depth, struct str *ret_text)
{
    enum resp_kind kind;
    struct str unused;
    ptrdiff_t next;
    size_t n;

    if (at < in.n && in.p[at] != '*')
        return read_plain(in, at, &kind, ret_text);
    if (depth == RESP_MAX_DEPTH)
        return BAD;
    next = read_count(in, at, &n);
    for (; next > 0 && n > 0; n--)
        next = read_item(in, (size_t)next, depth + 1, &unused);
    if (next > 0)
        *ret_text = str_make(in.p + at, (size_t)next - at);
    return next;
}

static ptrdiff_t read_reply(struct str in, struct resp *ret)
{
    ptrdiff_t at;
    size_t n = 0;

    *ret = (struct resp){0};
    if (in.n == 0)
        return MORE;
    if (*in.p != '*')
        return read_plain(in, 0, &ret->kind, &ret->text);
    at = read_count(in, 0, &n);
    for (size_t k = 0; at > 0 && k < n; k++)
        at = read_item(in, (size_t)at, 1, &ret->items[k]);
    ret->kind = RESP_ARRAY;
    ret->n_items = n;
    return at;
}

ptrdiff_t resp_read(struct str in, struct resp *ret)
{
    ptrdiff_t n = read_reply(in, ret);

    return n == MORE && in.n > RESP_MAX_REPLY ? BAD : n;
}
