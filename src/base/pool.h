/* pool.h - an allocator for very many records of one size, each with a 32-bit number.
 *
 * A record never moves, so pointers to it stay valid until pool_give().  Records refer to each
 * other by number, at half the size of a pointer.  Records have no header and no padding: a million
 * records of 64 bytes take 64 MB.  Blocks of POOL_BLOCK bytes are allocated as needed and kept
 * until pool_done().
 *
 *      struct pool p = POOL_INIT(sizeof(struct chat));
 *      struct chat *c = pool_take(&p);
 *      c->next = pool_number(&p, other);             // 0 for NULL
 *      struct chat *n = pool_at(&p, c->next);        // NULL for 0
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define POOL_BLOCK ((size_t)32 << 10)

struct pool {
    struct pool_block **blocks; /* owned */
    uint32_t size;              /* of a record */
    uint32_t n_blocks;
    uint32_t free; /* the first free number; 0: none */
    uint32_t live; /* records in use */
};
/* The size must be at least 16, and a multiple of the record's alignment. */
#define POOL_INIT(record_size) ((struct pool){.size = (record_size)})

void *pool_take(struct pool *p);                           /* zeroed */
void pool_give(struct pool *p, void *r);                   /* from pool_take() of this pool */
uint32_t pool_number(const struct pool *p, const void *r); /* of a record; NULL: 0 */
void *pool_at(const struct pool *p, uint32_t number);      /* of a record in use; 0: NULL */
void pool_done(struct pool *p);                            /* with all its records */
