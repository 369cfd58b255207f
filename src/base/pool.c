/* pool.c - design.  (pool.h has the contract.)
 *
 * A block is aligned to its size, so the address of a record gives its block and its number.  The
 * block's header takes the place of its first record, which is why no record has the number 0.  A
 * little space at the end of a block is left to malloc, so that blocks lie side by side.  A free
 * record holds the number of the next free one. */
#include "base/pool.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"

enum { ALLOCATORS = 64 };

struct pool_block {
    uint32_t index;
};

static uint32_t places(const struct pool *p) /* of a block, its own one included */
{
    return (uint32_t)(POOL_BLOCK - ALLOCATORS) / p->size;
}

uint32_t pool_number(const struct pool *p, const void *r)
{
    size_t at = (uintptr_t)r & (POOL_BLOCK - 1);

    if (r == NULL)
        return 0;
    const struct pool_block *b = (const void *)((const char *)r - at);
    return b->index * places(p) + (uint32_t)(at / p->size);
}

void *pool_at(const struct pool *p, uint32_t number)
{
    if (number == 0)
        return NULL;
    return (char *)p->blocks[number / places(p)] + (size_t)(number % places(p)) * p->size;
}

static void add_block(struct pool *p)
{
    uint32_t n = places(p), first = p->n_blocks * n;
    void *b;

    assert(p->size >= 16 && (uint64_t)first + n < UINT32_MAX);
    if (posix_memalign(&b, POOL_BLOCK, POOL_BLOCK - ALLOCATORS) != 0)
        abort(); /* as mem.h does */
    if ((p->n_blocks & (p->n_blocks - 1)) == 0)
        p->blocks = xrealloc(p->blocks, (p->n_blocks * 2u + 1) * sizeof(struct pool_block *));
    *(struct pool_block *)b = (struct pool_block){p->n_blocks};
    p->blocks[p->n_blocks++] = b;
    for (uint32_t k = n - 1; k > 0; k--) {
        memcpy(pool_at(p, first + k), &p->free, sizeof p->free);
        p->free = first + k;
    }
}

void *pool_take(struct pool *p)
{
    if (p->free == 0)
        add_block(p);
    void *r = pool_at(p, p->free);
    memcpy(&p->free, r, sizeof p->free);
    memset(r, 0, p->size);
    p->live++;
    return r;
}

void pool_give(struct pool *p, void *r)
{
    uint32_t number = pool_number(p, r);

    memcpy(r, &p->free, sizeof p->free);
    p->free = number;
    p->live--;
}

void pool_done(struct pool *p)
{
    for (uint32_t i = 0; i < p->n_blocks; i++)
        free(p->blocks[i]);
    free(p->blocks);
    *p = POOL_INIT(p->size);
}
