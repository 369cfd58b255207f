/* names.c - a map from a text to itself. */
#include "base/names.h"
#include <assert.h>
#include <stdlib.h>
#include "base/mem.h"

struct name *names_take(struct names *t, struct str text)
{
    struct name *n = map_get(&t->by_text, text);

    if (n == NULL) {
        assert(text.n <= UINT32_MAX);
        n = xmalloc(sizeof *n + text.n);
        *n = (struct name){.n = (uint32_t)text.n};
        if (text.n != 0)
            memcpy(n->text, text.p, text.n);
        map_put(&t->by_text, name_text(n), n);
    }
    n->holds++;
    return n;
}

void names_drop(struct names *t, struct name *n)
{
    if (n == NULL || --n->holds > 0)
        return;
    map_del(&t->by_text, name_text(n));
    free(n);
}

void names_done(struct names *t)
{
    assert(map_count(&t->by_text) == 0);
    map_done(&t->by_text);
}
