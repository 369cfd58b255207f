#include "relay/lines.h"
#include <stdlib.h>
#include "base/buf.h"
#include "base/mem.h"

struct lines {
    struct buf part;
    bool too_long; /* throwing away until the line ends */
};

void lines_free(struct lines *l)
{
    if (l == NULL)
        return;
    buf_done(&l->part);
    free(l);
}

static void keep(struct lines **ret_l, struct str rest, size_t max)
{
    if (rest.n == 0)
        return;
    if (*ret_l == NULL)
        *ret_l = xcalloc(1, sizeof **ret_l);
    struct lines *l = *ret_l;
    if (l->too_long || l->part.n + rest.n > max) {
        l->too_long = true;
        buf_done(&l->part);
    } else {
        buf_add_str(&l->part, rest);
    }
}

/* @line ends here; what was kept belongs before it. */
static bool finish(struct lines **ret_l, struct str line, size_t max, lines_cb *cb, void *ctx)
{
    struct lines *l = *ret_l;
    bool go_on;

    if (l == NULL)
        return cb(ctx, line, line.n <= max);
    keep(ret_l, line, max);
    *ret_l = NULL;
    go_on = cb(ctx, buf_str(&l->part), !l->too_long);
    lines_free(l);
    return go_on;
}

void lines_feed(struct lines **l, struct str bytes, size_t max, lines_cb *cb, void *ctx)
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
