/* arena.c - design.  (arena.h has the contract.)
 *
 * A chain of blocks, newest first; only the head is filled.  A request too large for a common block
 * gets a block of its own behind the head, so that the rest of the head is not wasted. */
#include "base/arena.h"
#include <assert.h>
#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include "base/mem.h"

struct arena_block {
    struct arena_block *next; /* owned */
    size_t cap;               /* bytes behind this header */
    alignas(max_align_t) char bytes[];
};
#define BLOCK_BYTES ((size_t)8192 - sizeof(struct arena_block))
#define LARGE_BYTES (BLOCK_BYTES / 4)

static struct arena_block *block_new(size_t cap)
{
    struct arena_block *b = xmalloc(sizeof *b + cap);

    b->next = NULL;
    b->cap = cap;
    return b;
}

static void *alloc_large(struct arena *a, size_t n)
{
    struct arena_block *b = block_new(n);

    if (a->head == NULL) {
        a->head = b;
        a->used = n;
    } else {
        b->next = a->head->next;
        a->head->next = b;
    }
    return b->bytes;
}

void *arena_alloc(struct arena *a, size_t n)
{
    assert(n < SIZE_MAX / 2);
    n = (n + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
    if (a->head == NULL || a->head->cap - a->used < n) {
        if (n > LARGE_BYTES)
            return alloc_large(a, n);
        struct arena_block *b = block_new(BLOCK_BYTES);
        b->next = a->head;
        a->head = b;
        a->used = 0;
    }
    void *p = a->head->bytes + a->used;
    a->used += n;
    return p;
}

struct str arena_str(struct arena *a, struct str s)
{
    if (s.p == NULL)
        return STR_NULL;
    char *p = arena_alloc(a, s.n + 1);
    memcpy(p, s.p, s.n);
    p[s.n] = '\0';
    return str_make(p, s.n);
}

/* The kept block has the common size: one huge message must not pin its memory. */
void arena_reset(struct arena *a)
{
    struct arena_block *keep = NULL;

    for (struct arena_block *b = a->head, *next; b != NULL; b = next) {
        next = b->next;
        if (keep == NULL && b->cap == BLOCK_BYTES)
            keep = b;
        else
            free(b);
    }
    if (keep != NULL)
        keep->next = NULL;
    *a = (struct arena){.head = keep};
}

void arena_done(struct arena *a)
{
    for (struct arena_block *b = a->head, *next; b != NULL; b = next) {
        next = b->next;
        free(b);
    }
    *a = ARENA_INIT;
}
