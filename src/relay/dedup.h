/* dedup.h - events seen before, newest @max of them, for a bounded time.
 *
 * Keys are made by delivery_id_of().  A ring in order of arrival and an index of ring positions
 * over it: 24 bytes per key and 8 of index, allocated as they are needed. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/hash.h"

struct dedup_record;
struct dedup {
    struct dedup_record *ring; /* owned; cap is a power of two */
    uint32_t *index;           /* owned; 2 * cap; position in the ring + 1, 0: free */
    uint32_t cap, head, n;
};

void dedup_init(struct dedup *d);
void dedup_done(struct dedup *d);
bool dedup_has(const struct dedup *d, struct hash128 key);
int64_t dedup_at(const struct dedup *d, struct hash128 key); /* when it came, in ms; 0: never */
/* A key that is there already is left as it is.  The oldest goes when there would be more than
 * @max. */
void dedup_add(struct dedup *d, struct hash128 key, int64_t at_ms, size_t max);
void dedup_remove(struct dedup *d, struct hash128 key); /* as if it had never been seen */
void dedup_expire(struct dedup *d, int64_t before_ms);  /* drop what is older */
