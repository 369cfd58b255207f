/* map.h - a hash table from bytes to pointers.
 *
 * The key bytes are borrowed: they must live as long as the entry, usually inside the value.  The
 * table uses open addressing: a lookup touches one or two cache lines, and an empty map allocates
 * nothing.  A large map is rebuilt incrementally, so no single call takes long.
 *
 *      struct map by_id = MAP_INIT;
 *      map_put(&by_id, str_of(gw->id), gw);
 *      struct gateway *gw = map_get(&by_id, id);
 *      for (size_t i = 0; map_next(&by_id, &i, (void **)&gw);) ...
 */
#pragma once
#include "base/str.h"

struct map_slot {
    const char *key;
    void *value;
    uint32_t key_n;
    uint32_t hash; /* 0: free, 1: deleted */
};
struct map {
    struct map_slot *slots;   /* owned */
    uint32_t cap, used, live; /* @used: of @cap, deleted ones too */
};
#define MAP_INIT ((struct map){0})

void map_done(struct map *m);     /* frees the table, not the values */
void map_done_all(struct map *m); /* frees the values too, each with free() */
/* Reserves room for @n more entries, so that the map does not grow while they are added. */
void map_reserve(struct map *m, size_t n);
void *map_get(const struct map *m, struct str key);        /* NULL: absent */
void *map_put(struct map *m, struct str key, void *value); /* the value it replaced, or NULL */
void *map_del(struct map *m, struct str key);              /* the value removed, or NULL */
static inline size_t map_count(const struct map *m)
{
    return m->live;
}
/* map_get() in steps, for lookups in several maps at once: hash the keys, prefetch, then look up
 * with map_get_hashed(). */
uint32_t map_hash(struct str key);
static inline uint32_t map_home(uint32_t cap, uint32_t hash) /* the slot where a search begins */
{
    return (uint32_t)((uint64_t)hash * cap >> 32);
}
static inline void map_prefetch(const struct map *m, uint32_t hash)
{
    if (m->cap != 0)
        __builtin_prefetch(&m->slots[map_home(m->cap, hash)]);
}
void *map_get_hashed(const struct map *m, struct str key, uint32_t hash);

/* Start with *@pos = 0.  Deleting the entry just returned is allowed, adding is not. */
bool map_next(const struct map *m, size_t *pos, void **ret_value);
