/* map.c - design.  (map.h has the contract.)
 *
 * Linear probing.  A deleted slot becomes a tombstone, so that later entries of its run are still
 * found.  If the run ends right after it, the slot and the tombstones before it become free at
 * once.  @used counts live entries and tombstones.  The table is rebuilt when three quarters are
 * used, and grows only if live entries are the reason: a small table doubles, a large one grows by
 * a quarter.  So in a map of a million an entry takes 32 to 40 bytes and never 64.  The home slot
 * of a hash is hash * cap / 2^32, so any capacity works.
 *
 * Rebuilding a large table at once would block the loop.  So the old table stays beside the new
 * one, and every put moves a few of its slots.  Until the old table is empty, a lookup that misses
 * in the new table searches the old one.  The new table has room for many more puts than the move
 * takes.  Both are walked from end to end, because home slots keep their order. */
#include "base/map.h"
#include <assert.h>
#include <stdlib.h>
#include "base/hash.h"
#include "base/mem.h"

enum { SLOT_FREE = 0, SLOT_DELETED = 1, FIRST_CAP = 8, GRADUAL_CAP = 1024, MOVES = 32 };

struct table {            /* what map.slots points into */
    struct map_slot *old; /* owned with its table; NULL: nothing is left to be moved */
    uint32_t old_cap, moved;
    struct map_slot slots[];
};

static struct table *table_of(const struct map_slot *slots)
{
    return container_of(slots, struct table, slots);
}

uint32_t map_hash(struct str key)
{
    uint32_t h = (uint32_t)hash64_brief(hash_process_key(), key);

    return h > SLOT_DELETED ? h : h + 2;
}

static uint32_t after(uint32_t cap, uint32_t i)
{
    return i + 1 < cap ? i + 1 : 0;
}

static struct map_slot *find_in(struct map_slot *slots, uint32_t cap, struct str key, uint32_t hash)
{
    for (uint32_t i = map_home(cap, hash);; i = after(cap, i)) {
        struct map_slot *slot = &slots[i];
        if (slot->hash == SLOT_FREE)
            return NULL;
        if (slot->hash == hash && str_eq(str_make(slot->key, slot->key_n), key))
            return slot;
    }
}

static struct map_slot *find(const struct map *m, struct str key, uint32_t hash)
{
    if (m->live == 0)
        return NULL;
    struct map_slot *slot = find_in(m->slots, m->cap, key, hash);
    const struct table *t = table_of(m->slots);
    return slot != NULL || t->old == NULL ? slot : find_in(t->old, t->old_cap, key, hash);
}

/* The key is known to be absent and a free slot to exist. */
static void insert(struct map *m, const struct map_slot *what)
{
    uint32_t i = map_home(m->cap, what->hash);

    while (m->slots[i].hash > SLOT_DELETED)
        i = after(m->cap, i);
    if (m->slots[i].hash == SLOT_FREE)
        m->used++;
    m->slots[i] = *what;
}

/* Of the old table, @n slots more. */
static void move_some(struct map *m, uint32_t n)
{
    struct table *t = table_of(m->slots);

    if (t->old == NULL)
        return;
    for (; n > 0 && t->moved < t->old_cap; n--) {
        struct map_slot *slot = &t->old[t->moved++];
        if (slot->hash <= SLOT_DELETED)
            continue;
        insert(m, slot);
        slot->hash = SLOT_DELETED;
    }
    if (t->moved < t->old_cap)
        return;
    free(table_of(t->old));
    t->old = NULL;
}

static bool has_room(const struct map *m)
{
    return m->cap != 0 && ((uint64_t)m->used + 1) * 4 <= (uint64_t)m->cap * 3;
}

/* Nothing is left in an older table. */
static void rebuild(struct map *m, uint32_t cap)
{
    struct table *t = xcalloc(1, sizeof *t + cap * sizeof t->slots[0]);

    t->old = m->slots;
    t->old_cap = m->cap;
    *m = (struct map){.slots = t->slots, .cap = cap, .live = m->live};
    if (t->old_cap < GRADUAL_CAP)
        move_some(m, UINT32_MAX);
}

static void make_room(struct map *m)
{
    if (!has_room(m) && m->cap != 0)
        move_some(m, UINT32_MAX);
    if (has_room(m))
        return;
    uint32_t cap = m->cap != 0 ? m->cap : FIRST_CAP;
    if ((m->live + 1) * 2ull > cap)
        cap += cap < GRADUAL_CAP ? cap : cap / 4;
    assert(cap >= m->cap);
    rebuild(m, cap);
}

/* Seven tenths of it are used in the end, as on the average of those that grew. */
void map_reserve(struct map *m, size_t n)
{
    uint64_t cap = ((uint64_t)m->live + n) * 10 / 7 + FIRST_CAP;

    assert(cap <= UINT32_MAX);
    if (n == 0 || cap <= m->cap)
        return;
    if (m->cap != 0)
        move_some(m, UINT32_MAX);
    rebuild(m, (uint32_t)cap);
    move_some(m, UINT32_MAX);
}

void map_done(struct map *m)
{
    if (m->slots != NULL) {
        struct table *t = table_of(m->slots);
        if (t->old != NULL)
            free(table_of(t->old));
        free(t);
    }
    *m = MAP_INIT;
}

void map_done_all(struct map *m)
{
    void *value;

    for (size_t i = 0; map_next(m, &i, &value);)
        free(value);
    map_done(m);
}

void *map_get(const struct map *m, struct str key)
{
    return m->live != 0 ? map_get_hashed(m, key, map_hash(key)) : NULL;
}

void *map_get_hashed(const struct map *m, struct str key, uint32_t hash)
{
    struct map_slot *slot = find(m, key, hash);

    return slot != NULL ? slot->value : NULL;
}

void *map_put(struct map *m, struct str key, void *value)
{
    uint32_t hash = map_hash(key);
    struct map_slot *slot = find(m, key, hash);

    assert(value != NULL && key.n <= UINT32_MAX);
    if (slot != NULL) {
        void *old = slot->value;
        slot->key = key.p; /* the old key bytes may die with the old value */
        slot->value = value;
        return old;
    }
    make_room(m);
    move_some(m, MOVES);
    insert(m, &(struct map_slot){key.p, value, (uint32_t)key.n, hash});
    m->live++;
    return NULL;
}

/* A tombstone at the end of its run, and those before it, are not needed any more. */
static void clear_run(struct map *m, uint32_t i)
{
    if (m->slots[after(m->cap, i)].hash != SLOT_FREE)
        return;
    for (; m->slots[i].hash == SLOT_DELETED; i = i > 0 ? i - 1 : m->cap - 1) {
        m->slots[i].hash = SLOT_FREE;
        m->used--;
    }
}

void *map_del(struct map *m, struct str key)
{
    struct map_slot *slot = m->live != 0 ? find(m, key, map_hash(key)) : NULL;

    if (slot == NULL)
        return NULL;
    void *value = slot->value;
    *slot = (struct map_slot){.hash = SLOT_DELETED};
    m->live--;
    if (slot >= m->slots && slot < m->slots + m->cap)
        clear_run(m, (uint32_t)(slot - m->slots));
    return value;
}

bool map_next(const struct map *m, size_t *pos, void **ret_value)
{
    if (m->slots == NULL)
        return false;
    const struct table *t = table_of(m->slots);
    size_t old_cap = t->old != NULL ? t->old_cap : 0;

    for (; *pos < m->cap + old_cap; ++*pos) {
        const struct map_slot *slot = *pos < m->cap ? &m->slots[*pos] : &t->old[*pos - m->cap];
        if (slot->hash > SLOT_DELETED) {
            ++*pos;
            *ret_value = slot->value;
            return true;
        }
    }
    return false;
}
