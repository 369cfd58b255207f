/* names.h - interned strings: equal texts are stored once and counted.
 *
 *      c->bot = names_take(&t, STR("hop"));      // one hold on it
 *      ... name_text(c->bot) ...
 *      names_drop(&t, c->bot);
 *
 * Equal texts have equal pointers while a hold on them exists. */
#pragma once
#include "base/map.h"

struct name {
    uint32_t holds, n;
    char text[]; /* not NUL-terminated */
};

struct names {
    struct map by_text; /* of struct name *, owned by their holders together */
};
#define NAMES_INIT ((struct names){.by_text = MAP_INIT})

struct name *names_take(struct names *t, struct str text); /* copied; UINT32_MAX bytes at most */
void names_drop(struct names *t, struct name *n);          /* NULL is fine */
void names_done(struct names *t);                          /* every name was dropped before */

static inline struct str name_text(const struct name *n) /* NULL: absent */
{
    return n != NULL ? str_make(n->text, n->n) : STR_NULL;
}
