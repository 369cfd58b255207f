/* pool.h - very many records of one size, each known by a number of 32 bits.
 *
 * A record never moves, so pointers to it stay valid until it is given back.  Records refer to each
 * other by number, at half the size of a pointer.  No header per record, no rounding: a million
 * records of 64 bytes are 64 MB.  Blocks of POOL_BLOCK bytes are taken as needed and kept until the
 * pool goes.
 *
 *      struct pool p = POOL_INIT(sizeof(struct chat));
 *      struct chat *c = pool_take(&p);
 *      c->next = pool_number(&p, other);             // 0 is nobody
 *      struct chat *n = pool_at(&p, c->next);        // NULL for 0
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define POOL_BLOCK ((size_t)32 << 10)

struct pool_block;
struct pool {
    struct pool_block **blocks; /* owned */
    uint32_t size;              /* of a record */
    uint32_t n_blocks;
    uint32_t free; /* the first number that is free; 0: none */
    uint32_t live; /* records that are taken */
};
/* @size: 16 at least, and a multiple of the alignment of what is in it. */
#define POOL_INIT(record_size) ((struct pool){.size = (record_size)})

void *pool_take(struct pool *p);                           /* zeroed */
void pool_give(struct pool *p, void *r);                   /* from pool_take() of this pool */
uint32_t pool_number(const struct pool *p, const void *r); /* of a record; NULL: 0 */
void *pool_at(const struct pool *p, uint32_t number);      /* one that is taken; 0: NULL */
void pool_done(struct pool *p);                            /* with all its records */
