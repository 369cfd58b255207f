/* dedup.c - design.  (dedup.h has the contract.)
 *
 * The first bits of a key are the index of its bot's ring.  Two bots share a ring with a chance of
 * about one in a thousand.
 *
 * An index slot has a tag of one byte beside it.  The tags of many slots share a cache line, so a
 * key that is new, which is nearly every key, is answered by the tags alone.
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
    uint32_t *index;           /* owned; mask + 1: positions in the ring, then the tags */
    uint8_t *tags;             /* mask + 1: tag_of() the key in that slot; 0: free */
    uint32_t cap, head, n;
    uint32_t mask; /* 2 * cap - 1 */
};

enum { FIRST_CAP = 64, BOT_SHIFT = 64 - DELIVERY_BOT_BITS, BOTS = 1 << DELIVERY_BOT_BITS };

static struct dedup_record record_of(struct hash128 key, int64_t at_ms)
{
    uint32_t hi = (uint32_t)key.hi;

    return (struct dedup_record){.lo = key.lo,
                                 .hi = key.lo != 0 || hi != 0 ? hi : 1,
                                 .at = (uint32_t)(at_ms / DEDUP_TICK_MS)};
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

static uint8_t tag_of(const struct dedup_record *rec)
{
    return (uint8_t)(rec->lo >> 56 | 1); /* other bits than those of the slot */
}

/* The index slot that holds the key of @rec, or the free one where it belongs. */
static uint32_t probe(const struct dedup_ring *d, const struct dedup_record *rec)
{
    uint32_t i = (uint32_t)rec->lo & d->mask;
    uint8_t tag = tag_of(rec);

    for (; d->tags[i] != 0; i = (i + 1) & d->mask) {
        const struct dedup_record *at = d->tags[i] == tag ? &d->ring[d->index[i]] : NULL;
        if (at != NULL && at->lo == rec->lo && at->hi == rec->hi)
            break;
    }
    return i;
}

/* Puts @rec, which is at @at in the ring and in no slot, into its slot. */
static void enter(struct dedup_ring *d, const struct dedup_record *rec, uint32_t at)
{
    uint32_t i = probe(d, rec);

    d->index[i] = at;
    d->tags[i] = tag_of(rec);
}

static void unindex(struct dedup_ring *d, uint32_t hole)
{
    for (uint32_t i = (hole + 1) & d->mask; d->tags[i] != 0; i = (i + 1) & d->mask) {
        uint32_t home = (uint32_t)d->ring[d->index[i]].lo & d->mask;
        if (((i - home) & d->mask) < ((i - hole) & d->mask))
            continue; /* it would leave its own run */
        d->index[hole] = d->index[i];
        d->tags[hole] = d->tags[i];
        hole = i;
    }
    d->tags[hole] = 0;
}

static void drop_oldest(struct dedup_ring *d)
{
    const struct dedup_record *rec = &d->ring[d->head];

    if (!is_removed(rec))
        unindex(d, probe(d, rec));
    d->head = (d->head + 1) & (d->cap - 1);
    d->n--;
}

static void grow(struct dedup_ring *d)
{
    struct dedup_ring old = *d;

    d->cap = old.cap != 0 ? old.cap * 2 : FIRST_CAP;
    d->ring = xmalloc(d->cap * sizeof *d->ring);
    d->mask = d->cap * 2 - 1;
    d->index = xmalloc(((size_t)d->mask + 1) * (sizeof *d->index + sizeof *d->tags));
    d->tags = (uint8_t *)(d->index + d->mask + 1);
    memset(d->tags, 0, (size_t)d->mask + 1);
    d->head = d->n = 0;
    for (uint32_t i = 0; i < old.n; i++) {
        const struct dedup_record *rec = &old.ring[(old.head + i) & (old.cap - 1)];
        if (is_removed(rec))
            continue;
        d->ring[d->n] = *rec;
        enter(d, rec, d->n++);
    }
    free(old.ring);
    free(old.index);
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

/* The ring of the key's bot, and the record with this key; NULL: none. */
static struct dedup_record *find(const struct dedup *d, struct hash128 key,
                                 struct dedup_ring **ret_ring)
{
    struct dedup_ring *r = d->rings != NULL ? d->rings[key.hi >> BOT_SHIFT] : NULL;
    struct dedup_record wanted = record_of(key, 0);
    uint32_t at = r != NULL && r->n != 0 ? probe(r, &wanted) : 0;

    *ret_ring = r;
    return r != NULL && r->n != 0 && r->tags[at] != 0 ? &r->ring[r->index[at]] : NULL;
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
    struct dedup_ring *r;

    return find(d, key, &r) != NULL;
}

int64_t dedup_at(const struct dedup *d, struct hash128 key)
{
    struct dedup_ring *r;
    const struct dedup_record *rec = find(d, key, &r);

    return rec != NULL ? at_of(d, rec) : 0;
}

void dedup_add(struct dedup *d, struct hash128 key, int64_t at_ms, size_t max)
{
    struct dedup_record rec = record_of(key, at_ms);
    struct dedup_ring *r;

    if (max == 0 || find(d, key, &r) != NULL)
        return;
    for (; d->n >= max; d->n--)
        drop_oldest(largest(d));
    if (d->rings == NULL)
        d->rings = xcalloc(BOTS, sizeof(struct dedup_ring *));
    if (r == NULL)
        r = d->rings[key.hi >> BOT_SHIFT] = xcalloc(1, sizeof *r);
    uint32_t before = r->n;
    if (r->n == r->cap)
        grow(r);
    uint32_t at = (r->head + r->n++) & (r->cap - 1);
    r->ring[at] = rec;
    enter(r, &rec, at);
    if (at_ms > d->newest_ms)
        d->newest_ms = at_ms;
    d->n += (size_t)r->n - before; /* one more, and less what was removed before it grew */
}

void dedup_remove(struct dedup *d, struct hash128 key)
{
    struct dedup_ring *r;
    struct dedup_record *rec = find(d, key, &r);

    if (rec == NULL)
        return;
    unindex(r, probe(r, rec));
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
