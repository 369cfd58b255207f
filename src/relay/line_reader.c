#include "relay/line_reader.h"
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

static void keep(struct line_reader **ret_l, struct str rest, size_t max)
{
    if (rest.n == 0)
        return;
    if (*ret_l == NULL)
        *ret_l = xcalloc(1, sizeof **ret_l);
    struct line_reader *l = *ret_l;
    if (l->too_long || l->part.n + rest.n > max) {
        l->too_long = true;
        buf_done(&l->part);
    } else {
        buf_add_str(&l->part, rest);
    }
}

/* @line ends here; what was kept belongs before it. */
static bool finish(struct line_reader **ret_l, struct str line, size_t max, line_cb *cb, void *ctx)
{
    struct line_reader *l = *ret_l;
    bool go_on;

    if (l == NULL)
        return cb(ctx, line, line.n <= max);
    keep(ret_l, line, max);
    *ret_l = NULL;
    go_on = cb(ctx, buf_str(&l->part), !l->too_long);
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
    keep(l, bytes, max);
}
