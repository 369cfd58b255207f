/* lru.c - tables of entries in the order of their use.  (lru.h has the contract.) */
#include "platform/lru.h"
#include <stdlib.h>
#include "base/mem.h"

void *lru_oldest(const struct lru *l)
{
    return l->by_age.next != NULL && !list_is_empty(&l->by_age)
               ? list_first(&l->by_age, struct lru_entry, age)
               : NULL;
}

void lru_drop(struct lru *l, void *entry)
{
    struct lru_entry *e = entry;

    map_del(&l->map, e->key);
    list_remove(&e->age);
    if (l->free != NULL)
        l->free(l, entry);
    free(entry);
}

void *lru_use(struct lru *l, struct str key, size_t size)
{
    struct lru_entry *e = map_get(&l->map, key);

    if (l->by_age.next == NULL)
        list_init(&l->by_age);
    if (e == NULL) {
        if (lru_is_full(l))
            lru_drop(l, lru_oldest(l));
        e = xcalloc(1, size + key.n + 1);
        char *own = (char *)e + size;
        memcpy(own, key.p, key.n);
        e->key = str_make(own, key.n);
        list_init(&e->age);
        map_put(&l->map, e->key, e);
    }
    list_move(&e->age, &l->by_age);
    return e;
}

void lru_sort(struct lru *l, int (*by)(const void *a, const void *b))
{
    struct lru_entry **all = xcalloc(map_count(&l->map) + 1, sizeof *all);
    size_t n = 0;
    void *e;

    for (size_t i = 0; map_next(&l->map, &i, &e);)
        all[n++] = e;
    qsort(all, n, sizeof *all, by);
    for (size_t i = 0; i < n; i++)
        list_move(&all[i]->age, &l->by_age);
    free(all);
}

void lru_done(struct lru *l)
{
    for (void *e; (e = lru_oldest(l)) != NULL;)
        lru_drop(l, e);
    map_done(&l->map);
}
