/* dedup.h - the deduplication keys of recent deliveries, bounded in number and age.
 *
 * delivery_id_of() makes the keys; their first bits identify the bot of the event.  Each bot has a
 * ring of its own, in order of arrival, with an index: 16 bytes per key and 10 of index, allocated
 * on demand.  At the limit, the bot with the most keys loses its oldest.  So a flood of events on
 * one bot evicts no keys of another bot. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/hash.h"

struct dedup {
    struct dedup_ring **rings; /* owned, with the rings; one for each bot; NULL: no key */
    size_t n;                  /* keys in all */
    int64_t newest_ms;         /* time of the newest key */
};

#define DEDUP_TICK_MS 10 /* resolution of the times */

void dedup_init(struct dedup *d);
void dedup_done(struct dedup *d);
bool dedup_has(const struct dedup *d, struct hash128 key);
/* The time of the key, rounded down to a tick; 0: unknown key. */
int64_t dedup_at(const struct dedup *d, struct hash128 key);
/* Adds a key; an existing key keeps its time.  Evicts a key if there would be more than @max. */
void dedup_add(struct dedup *d, struct hash128 key, int64_t at_ms, size_t max);
void dedup_remove(struct dedup *d, struct hash128 key); /* for a delivery that was given up */
void dedup_expire(struct dedup *d, int64_t before_ms);  /* removes older keys */
