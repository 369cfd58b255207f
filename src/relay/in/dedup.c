/* dedup.c - design.  (dedup.h has the contract.)
 *
 * The first bits of a key are the index of its bot's ring.  Two bots share a ring with a chance of
 * about one in a thousand.  Keys of older databases lack these bits and spread over all rings.
 *
 * Open addressing with linear probing; a removal closes its gap by moving later entries of the run
 * back, so there are no tombstones to clean.  A removed key's ring record is only marked: it leaves
 * when it becomes the oldest.  The keys are already keyed hashes, so their low bits are the slot.
 */
#include "relay/in/dedup.h"
#include <stdlib.h>
#include "base/mem.h"
#include "core/event.h"

/* 96 bits of the key, enough to avoid collisions within a ring.  Both fields 0: removed. */
struct dedup_record {
    uint64_t lo;
    uint32_t hi;
    uint32_t at; /* ticks, modulo 2^32: see at_of() */
};

struct dedup_ring {
    struct dedup_record *ring; /* owned; cap is a power of two */
    uint32_t *index;           /* owned; 2 * cap; position in the ring + 1, 0: free */
    uint32_t cap, head, n;
};

enum { FIRST_CAP = 64, BOT_SHIFT = 64 - DELIVERY_BOT_BITS, BOTS = 1 << DELIVERY_BOT_BITS };

static struct dedup_record record_of(struct hash128 key, int64_t at_ms)
{
    uint32_t hi = (uint32_t)key.hi;

    return (struct dedup_record){.lo = key.lo,
                                 .hi = key.lo != 0 || hi != 0 ? hi : 1,
                                 .at = (uint32_t)(at_ms / DEDUP_TICK_MS)};
}

static bool same_key(const struct dedup_record *a, const struct dedup_record *b)
{
    return a->lo == b->lo && a->hi == b->hi;
}

static bool is_removed(const struct dedup_record *rec)
{
    return rec->lo == 0 && rec->hi == 0;
}

/* Ticks wrap after 497 days; every kept key is within half of that of the newest. */
static int64_t at_of(const struct dedup *d, const struct dedup_record *rec)
{
    int64_t newest = d->newest_ms / DEDUP_TICK_MS;

    return (newest + (int32_t)(rec->at - (uint32_t)newest)) * DEDUP_TICK_MS;
}

static uint32_t mask(const struct dedup_ring *d)
{
    return d->cap * 2 - 1;
}

/* The index slot that holds the key, or the free one where it belongs. */
static uint32_t probe_record(const struct dedup_ring *d, const struct dedup_record *wanted)
{
    uint32_t i = (uint32_t)wanted->lo & mask(d);

    while (d->index[i] != 0 && !same_key(&d->ring[d->index[i] - 1], wanted))
        i = (i + 1) & mask(d);
    return i;
}

static uint32_t probe(const struct dedup_ring *d, struct hash128 key)
{
    struct dedup_record wanted = record_of(key, 0);

    return probe_record(d, &wanted);
}

static void unindex(struct dedup_ring *d, uint32_t hole)
{
    for (uint32_t i = (hole + 1) & mask(d); d->index[i] != 0; i = (i + 1) & mask(d)) {
        uint32_t home = (uint32_t)d->ring[d->index[i] - 1].lo & mask(d);
        if (((i - home) & mask(d)) < ((i - hole) & mask(d)))
            continue; /* it would leave its own run */
        d->index[hole] = d->index[i];
        hole = i;
    }
    d->index[hole] = 0;
}

static void drop_oldest(struct dedup_ring *d)
{
    const struct dedup_record *rec = &d->ring[d->head];

    if (!is_removed(rec))
        unindex(d, probe_record(d, rec));
    d->head = (d->head + 1) & (d->cap - 1);
    d->n--;
}

static void grow(struct dedup_ring *d)
{
    struct dedup_ring old = *d;

    d->cap = old.cap != 0 ? old.cap * 2 : FIRST_CAP;
    d->ring = xmalloc(d->cap * sizeof *d->ring);
    d->index = xcalloc((size_t)d->cap * 2, sizeof *d->index);
    d->head = d->n = 0;
    for (uint32_t i = 0; i < old.n; i++) {
        const struct dedup_record *rec = &old.ring[(old.head + i) & (old.cap - 1)];
        if (is_removed(rec))
            continue;
        d->ring[d->n] = *rec;
        d->index[probe_record(d, rec)] = ++d->n;
    }
    free(old.ring);
    free(old.index);
}

static bool ring_has(const struct dedup_ring *d, struct hash128 key)
{
    return d->n != 0 && d->index[probe(d, key)] != 0;
}

static void ring_add(struct dedup_ring *d, struct hash128 key, int64_t at_ms)
{
    if (d->n == d->cap)
        grow(d);
    uint32_t at = (d->head + d->n++) & (d->cap - 1);
    d->ring[at] = record_of(key, at_ms);
    d->index[probe(d, key)] = at + 1;
}

/* ---- the rings of all bots ---- */

void dedup_init(struct dedup *d)
{
    *d = (struct dedup){0};
}

static void ring_free(struct dedup_ring *r)
{
    free(r->ring);
    free(r->index);
    free(r);
}

void dedup_done(struct dedup *d)
{
    for (size_t i = 0; d->rings != NULL && i < BOTS; i++)
        if (d->rings[i] != NULL)
            ring_free(d->rings[i]);
    free(d->rings);
    dedup_init(d);
}

static struct dedup_ring *find(const struct dedup *d, struct hash128 key)
{
    return d->rings != NULL ? d->rings[key.hi >> BOT_SHIFT] : NULL;
}

static struct dedup_ring *get(struct dedup *d, struct hash128 key)
{
    if (d->rings == NULL)
        d->rings = xcalloc(BOTS, sizeof(struct dedup_ring *));
    struct dedup_ring **at = &d->rings[key.hi >> BOT_SHIFT];
    if (*at == NULL)
        *at = xcalloc(1, sizeof **at);
    return *at;
}

static struct dedup_ring *largest(const struct dedup *d)
{
    struct dedup_ring *most = NULL;

    for (size_t i = 0; i < BOTS; i++)
        if (d->rings[i] != NULL && (most == NULL || d->rings[i]->n > most->n))
            most = d->rings[i];
    return most;
}

bool dedup_has(const struct dedup *d, struct hash128 key)
{
    const struct dedup_ring *r = find(d, key);

    return r != NULL && ring_has(r, key);
}

int64_t dedup_at(const struct dedup *d, struct hash128 key)
{
    const struct dedup_ring *r = find(d, key);
    uint32_t at = r != NULL && r->n != 0 ? r->index[probe(r, key)] : 0;

    return at != 0 ? at_of(d, &r->ring[at - 1]) : 0;
}

void dedup_add(struct dedup *d, struct hash128 key, int64_t at_ms, size_t max)
{
    if (max == 0 || dedup_has(d, key))
        return;
    for (; d->n >= max; d->n--)
        drop_oldest(largest(d));
    struct dedup_ring *r = get(d, key);
    uint32_t before = r->n;
    ring_add(r, key, at_ms);
    if (at_ms > d->newest_ms)
        d->newest_ms = at_ms;
    d->n += (size_t)r->n - before; /* one more, and less what was removed before it grew */
}

void dedup_remove(struct dedup *d, struct hash128 key)
{
    struct dedup_ring *r = find(d, key);
    uint32_t i = r != NULL && r->n != 0 ? probe(r, key) : 0;

    if (r == NULL || r->n == 0 || r->index[i] == 0)
        return;
    struct dedup_record *rec = &r->ring[r->index[i] - 1];
    unindex(r, i);
    rec->lo = rec->hi = 0;
}

void dedup_expire(struct dedup *d, int64_t before_ms)
{
    for (size_t i = 0; d->rings != NULL && i < BOTS; i++) {
        struct dedup_ring *r = d->rings[i];
        for (; r != NULL && r->n > 0 && at_of(d, &r->ring[r->head]) < before_ms; d->n--)
            drop_oldest(r);
        if (r == NULL || r->n > 0)
            continue;
        ring_free(r);
        d->rings[i] = NULL;
    }
    if (d->n == 0)
        dedup_done(d);
}
