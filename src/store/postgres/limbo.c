/* limbo.c - see impl.h.  One transaction at most is in doubt: no other is begun before it is known
 * how that one ended.  This happens when the server cannot be asked for COMMIT_LOOKUP_MS, so there
 * are few keys here, or none. */
#include <stdlib.h>
#include "base/mem.h"
#include "store/postgres/impl.h"

void pg_limbo_done(struct pg_limbo *l)
{
    free(l->keys);
    *l = (struct pg_limbo){0};
}

static bool is_in_doubt(const struct pg_limbo *l)
{
    return l->n_sure < l->n;
}

static void add(struct pg_limbo *l, const struct store_append *a)
{
    if (l->n == l->cap) {
        l->cap = 2 * l->cap + 64;
        l->keys = xrealloc(l->keys, l->cap * sizeof *l->keys);
    }
    l->keys[l->n++] = (struct limbo_key){a->key, a->sequence, a->at_ms};
}

void pg_limbo_add(struct store_postgres *st)
{
    const struct plan *p = &st->plan;

    if (!p->trusting)
        return; /* the table of keys knows them */
    for (size_t i = 0; i < p->n; i++)
        if (p->all[i]->has_key && p->all[i]->once && !p->all[i]->exists)
            add(&st->limbo, p->all[i]);
    st->limbo.mark = st->mark;
}

static int by_key(const void *x, const void *y)
{
    const struct limbo_key *a = x, *b = y;

    if (a->key.hi != b->key.hi)
        return a->key.hi < b->key.hi ? -1 : 1;
    return (a->key.lo > b->key.lo) - (a->key.lo < b->key.lo);
}

bool pg_limbo_settle(struct store_postgres *st)
{
    struct pg_limbo *l = &st->limbo;

    if (!is_in_doubt(l))
        return true;
    enum pg_fate fate = pg_find_fate(st->url, &l->mark, 0);
    if (fate == FATE_UNKNOWN)
        return false;
    if (fate == FATE_UNDONE)
        l->n = l->n_sure;
    else if (l->n > 1)
        qsort(l->keys, l->n, sizeof *l->keys, by_key);
    l->n_sure = l->n;
    return true;
}

const struct limbo_key *pg_limbo_find(const struct pg_limbo *l, struct hash128 key)
{
    const struct limbo_key probe = {.key = key};

    if (l->n_sure == 0)
        return NULL;
    return bsearch(&probe, l->keys, l->n_sure, sizeof probe, by_key);
}

void pg_limbo_forget(struct pg_limbo *l, int64_t before_ms)
{
    size_t n = 0;

    if (is_in_doubt(l))
        return; /* at the next time */
    for (size_t i = 0; i < l->n; i++)
        if (l->keys[i].at_ms >= before_ms)
            l->keys[n++] = l->keys[i];
    l->n = l->n_sure = n;
}
