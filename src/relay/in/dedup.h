/* dedup.h - events seen before, newest @max of them, for a bounded time.
 *
 * Keys are made by delivery_id_of(), which says in their first bits which bot brought the event.
 * Each bot has a ring of its own, in order of arrival, with an index over it: 16 bytes per key and
 * 8 of index, allocated as they are needed.  When there are too many in all, the bot with the most
 * loses its oldest, so what strangers pour into one bot pushes nothing out of another's. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/hash.h"

struct dedup_ring;
struct dedup {
    struct dedup_ring **rings; /* owned, and what they point at; one for each bot; NULL: no key */
    size_t n;                  /* keys in all */
    int64_t newest_ms;         /* when the newest of them came */
};

#define DEDUP_TICK_MS 10 /* times are kept in these */

void dedup_init(struct dedup *d);
void dedup_done(struct dedup *d);
bool dedup_has(const struct dedup *d, struct hash128 key);
int64_t dedup_at(const struct dedup *d, struct hash128 key); /* when it came, the tick's first
                                                              * ms; 0: never */
/* A key that is there already is left as it is.  One goes when there would be more than @max. */
void dedup_add(struct dedup *d, struct hash128 key, int64_t at_ms, size_t max);
void dedup_remove(struct dedup *d, struct hash128 key); /* as if it had never been seen */
void dedup_expire(struct dedup *d, int64_t before_ms);  /* drop what is older */
