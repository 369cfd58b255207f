/* map.c - design.  (map.h has the contract.)
 *
 * Linear probing over a power of two.  A deleted slot stays as a tombstone so that later entries of
 * its run are still found, unless the run ends right behind it: then it, and the tombstones before
 * it, become free at once.  @used counts live entries and tombstones; the table is rebuilt when
 * three quarters are used, and grows only if live entries are the reason. */
#include "base/map.h"
#include <assert.h>
#include <stdlib.h>
#include "base/hash.h"
#include "base/mem.h"

enum { SLOT_FREE = 0, SLOT_DELETED = 1, FIRST_CAP = 8 };

uint64_t map_hash(struct str key)
{
    uint64_t h = hash64(hash_process_key(), key);

    return h > SLOT_DELETED ? h : h + 2;
}

static struct map_slot *find(const struct map *m, struct str key, uint64_t hash)
{
    if (m->live == 0)
        return NULL;
    for (size_t i = hash & (m->cap - 1);; i = (i + 1) & (m->cap - 1)) {
        struct map_slot *slot = &m->slots[i];
        if (slot->hash == SLOT_FREE)
            return NULL;
        if (slot->hash == hash && str_eq(slot->key, key))
            return slot;
    }
}

/* The key is known to be absent and a free slot to exist. */
static void insert(struct map *m, uint64_t hash, struct str key, void *value)
{
    size_t i = hash & (m->cap - 1);

    while (m->slots[i].hash > SLOT_DELETED)
        i = (i + 1) & (m->cap - 1);
    if (m->slots[i].hash == SLOT_FREE)
        m->used++;
    m->slots[i] = (struct map_slot){hash, key, value};
    m->live++;
}

static void make_room(struct map *m)
{
    if (m->cap != 0 && (m->used + 1) * 4 <= m->cap * 3)
        return;
    struct map old = *m;
    size_t cap = old.cap != 0 ? old.cap : FIRST_CAP;
    if ((old.live + 1) * 2 > cap)
        cap *= 2;
    *m = (struct map){.slots = xcalloc(cap, sizeof *m->slots), .cap = cap};
    for (size_t i = 0; i < old.cap; i++)
        if (old.slots[i].hash > SLOT_DELETED)
            insert(m, old.slots[i].hash, old.slots[i].key, old.slots[i].value);
    free(old.slots);
}

void map_done(struct map *m)
{
    free(m->slots);
    *m = MAP_INIT;
}

void *map_get(const struct map *m, struct str key)
{
    return m->live != 0 ? map_get_hashed(m, key, map_hash(key)) : NULL;
}

void *map_get_hashed(const struct map *m, struct str key, uint64_t hash)
{
    struct map_slot *slot = find(m, key, hash);

    return slot != NULL ? slot->value : NULL;
}

void *map_put(struct map *m, struct str key, void *value)
{
    uint64_t hash = map_hash(key);
    struct map_slot *slot = find(m, key, hash);

    assert(value != NULL);
    if (slot != NULL) {
        void *old = slot->value;
        slot->key = key; /* the old key bytes may die with the old value */
        slot->value = value;
        return old;
    }
    make_room(m);
    insert(m, hash, key, value);
    return NULL;
}

void *map_del(struct map *m, struct str key)
{
    struct map_slot *slot = m->live != 0 ? find(m, key, map_hash(key)) : NULL;

    if (slot == NULL)
        return NULL;
    void *value = slot->value;
    size_t i = (size_t)(slot - m->slots);
    *slot = (struct map_slot){.hash = SLOT_DELETED};
    m->live--;
    if (m->slots[(i + 1) & (m->cap - 1)].hash != SLOT_FREE)
        return value;
    for (; m->slots[i].hash == SLOT_DELETED; i = (i - 1) & (m->cap - 1)) {
        m->slots[i].hash = SLOT_FREE;
        m->used--;
    }
    return value;
}

bool map_next(const struct map *m, size_t *pos, void **ret_value)
{
    for (; *pos < m->cap; ++*pos) {
        if (m->slots[*pos].hash > SLOT_DELETED) {
            *ret_value = m->slots[(*pos)++].value;
            return true;
        }
    }
    return false;
}
