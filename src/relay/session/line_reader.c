#include "relay/session/line_reader.h"
#include <stdlib.h>
#include "base/buf.h"
#include "base/mem.h"

struct line_reader {
    struct buf part;
    bool too_long; /* throwing away until the line ends */
};

void line_reader_free(struct line_reader *l)
{
    if (l == NULL)
        return;
    buf_done(&l->part);
    free(l);
}

size_t line_reader_bytes(const struct line_reader *l)
{
    return l != NULL ? l->part.cap : 0;
}

/* The unfinished line gets longer; too long: told, once. */
static void keep(struct line_reader **ret_l, struct str rest, size_t max, line_cb *cb, void *ctx)
{
    if (rest.n == 0)
        return;
    if (*ret_l == NULL)
        *ret_l = xcalloc(1, sizeof **ret_l);
    struct line_reader *l = *ret_l;
    if (l->too_long)
        return;
    if (l->part.n + rest.n <= max) {
        buf_add_str(&l->part, rest);
        return;
    }
    l->too_long = true;
    buf_done(&l->part);
    cb(ctx, STR_NULL, false); /* the last line of the piece: there is nothing to stop */
}

/* @line ends here; what was kept belongs before it. */
static bool finish(struct line_reader **ret_l, struct str line, size_t max, line_cb *cb, void *ctx)
{
    struct line_reader *l = *ret_l;
    bool go_on = true;

    *ret_l = NULL;
    if (l == NULL) {
        go_on = cb(ctx, line, line.n <= max);
    } else if (!l->too_long) {
        bool fits = l->part.n + line.n <= max;
        if (fits)
            buf_add_str(&l->part, line);
        go_on = cb(ctx, fits ? buf_str(&l->part) : STR_NULL, fits);
    }
    line_reader_free(l);
    return go_on;
}

void line_reader_feed(struct line_reader **l, struct str bytes, size_t max, line_cb *cb, void *ctx)
{
    for (;;) {
        const char *end = bytes.n != 0 ? memchr(bytes.p, '\n', bytes.n) : NULL;
        if (end == NULL)
            break;
        struct str line = str_make(bytes.p, (size_t)(end - bytes.p));
        bytes = str_skip(bytes, line.n + 1);
        if (!finish(l, line, max, cb, ctx))
            return;
    }
    keep(l, bytes, max, cb, ctx);
}
