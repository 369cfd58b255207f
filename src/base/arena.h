/* arena.h - many small allocations that die together: one per message being handled. */
#pragma once
#include <stddef.h>
#include "base/str.h"

struct arena_block;
struct arena {
    struct arena_block *head; /* owned */
    size_t used;              /* in the head block */
};
#define ARENA_INIT ((struct arena){0})

void *arena_alloc(struct arena *a, size_t n);        /* aligned for anything, not zeroed */
struct str arena_str(struct arena *a, struct str s); /* a copy, NUL-terminated behind its end */
void arena_reset(struct arena *a);                   /* keeps one block for reuse */
void arena_done(struct arena *a);
