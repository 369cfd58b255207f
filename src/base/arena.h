/* arena.h - an arena: many small allocations that are freed together.
 *
 * Parsing uses one arena per message or call.  No pointer into an arena may outlive it. */
#pragma once
#include <stddef.h>
#include "base/str.h"

struct arena {
    struct arena_block *head; /* owned */
    size_t used;              /* in the head block */
};
#define ARENA_INIT ((struct arena){0})

void *arena_alloc(struct arena *a, size_t n);        /* aligned for anything, not zeroed */
struct str arena_str(struct arena *a, struct str s); /* a copy with a NUL after its end */
void arena_reset(struct arena *a);                   /* keeps one block for reuse */
void arena_done(struct arena *a);
