/* lru.h - a bounded table by key that drops its least recently used entry, for adapters' caches.
 *
 *      struct chat { struct lru_entry lru; int64_t typed_ms; };
 *
 *      struct chat *c = lru_use(&t->chats, chat_id, sizeof *c);     found, or new and zeroed
 *      struct chat *c = lru_find(&t->chats, chat_id);               NULL: none
 *
 * Adapters call it.  A new entry in a table that has @max entries evicts the least recently used
 * one.  The table owns its entries and their keys. */
#pragma once
#include "base/list.h"
#include "base/map.h"

struct lru_entry {   /* first member of each entry */
    struct list age; /* private */
    struct str key;  /* owned by the entry; NUL-terminated */
};
struct lru { /* zeroed, but for @max and @free, it is empty */
    size_t max;
    /* Frees what the entry owns, not the entry; NULL: it owns nothing. */
    void (*free)(struct lru *l, void *entry);
    struct map map;     /* private */
    struct list by_age; /* struct lru_entry, the longest unused first */
};

static inline void *lru_find(const struct lru *l, struct str key)
{
    return map_get(&l->map, key);
}
/* Finds or adds the entry, which counts as used now.  @size: of the entry's struct. */
void *lru_use(struct lru *l, struct str key, size_t size);
void *lru_oldest(const struct lru *l); /* NULL: the table is empty */
void lru_drop(struct lru *l, void *entry);
void lru_done(struct lru *l); /* drops all entries */
/* Puts the entries into another order, after they were loaded.  @by is of qsort(), and gets
 * pointers to pointers to entries; the first one is the oldest. */
void lru_sort(struct lru *l, int (*by)(const void *a, const void *b));
static inline bool lru_is_full(const struct lru *l)
{
    return map_count(&l->map) >= l->max;
}
