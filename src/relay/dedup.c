/* dedup.c - design.  (dedup.h has the contract.)
 *
 * Open addressing with linear probing; a removal closes its gap by moving later entries of the run
 * back, so there are no tombstones to clean.  A removed key's ring record is only marked: it leaves
 * when it becomes the oldest.  The keys are already keyed hashes, so their low bits are the slot.
 */
#include "relay/dedup.h"
#include <stdlib.h>
#include "base/mem.h"

struct dedup_record {
    struct hash128 key;
    uint32_t at_s;
    bool removed;
};

enum { FIRST_CAP = 64 };

void dedup_init(struct dedup *d)
{
    *d = (struct dedup){0};
}

void dedup_done(struct dedup *d)
{
    free(d->ring);
    free(d->index);
    dedup_init(d);
}

static uint32_t mask(const struct dedup *d)
{
    return d->cap * 2 - 1;
}

/* The index slot that holds @key, or the free one where it belongs. */
static uint32_t probe(const struct dedup *d, struct hash128 key)
{
    uint32_t i = (uint32_t)key.lo & mask(d);

    for (; d->index[i] != 0; i = (i + 1) & mask(d)) {
        const struct dedup_record *rec = &d->ring[d->index[i] - 1];
        if (rec->key.lo == key.lo && rec->key.hi == key.hi)
            break;
    }
    return i;
}

bool dedup_has(const struct dedup *d, struct hash128 key)
{
    return d->n != 0 && d->index[probe(d, key)] != 0;
}

int64_t dedup_at(const struct dedup *d, struct hash128 key)
{
    uint32_t at = d->n != 0 ? d->index[probe(d, key)] : 0;

    return at != 0 ? (int64_t)d->ring[at - 1].at_s * 1000 : 0;
}

static void unindex(struct dedup *d, uint32_t hole)
{
    for (uint32_t i = (hole + 1) & mask(d); d->index[i] != 0; i = (i + 1) & mask(d)) {
        uint32_t home = (uint32_t)d->ring[d->index[i] - 1].key.lo & mask(d);
        if (((i - home) & mask(d)) < ((i - hole) & mask(d)))
            continue; /* it would leave its own run */
        d->index[hole] = d->index[i];
        hole = i;
    }
    d->index[hole] = 0;
}

static void drop_oldest(struct dedup *d)
{
    const struct dedup_record *rec = &d->ring[d->head];

    if (!rec->removed)
        unindex(d, probe(d, rec->key));
    d->head = (d->head + 1) & (d->cap - 1);
    d->n--;
}

static void grow(struct dedup *d)
{
    struct dedup old = *d;

    d->cap = old.cap != 0 ? old.cap * 2 : FIRST_CAP;
    d->ring = xmalloc(d->cap * sizeof *d->ring);
    d->index = xcalloc((size_t)d->cap * 2, sizeof *d->index);
    d->head = d->n = 0;
    for (uint32_t i = 0; i < old.n; i++) {
        const struct dedup_record *rec = &old.ring[(old.head + i) & (old.cap - 1)];
        if (rec->removed)
            continue;
        d->ring[d->n] = *rec;
        d->index[probe(d, rec->key)] = ++d->n;
    }
    free(old.ring);
    free(old.index);
}

void dedup_add(struct dedup *d, struct hash128 key, int64_t at_ms, size_t max)
{
    if (max == 0 || dedup_has(d, key))
        return;
    while (d->n >= max)
        drop_oldest(d);
    if (d->n == d->cap)
        grow(d);
    uint32_t at = (d->head + d->n++) & (d->cap - 1);
    d->ring[at] = (struct dedup_record){.key = key, .at_s = (uint32_t)(at_ms / 1000)};
    d->index[probe(d, key)] = at + 1;
}

void dedup_remove(struct dedup *d, struct hash128 key)
{
    uint32_t i = d->n != 0 ? probe(d, key) : 0;

    if (d->n == 0 || d->index[i] == 0)
        return;
    d->ring[d->index[i] - 1].removed = true;
    unindex(d, i);
}

void dedup_expire(struct dedup *d, int64_t before_ms)
{
    while (d->n > 0 && (int64_t)d->ring[d->head].at_s * 1000 < before_ms)
        drop_oldest(d);
    if (d->n == 0)
        dedup_done(d);
}
