/* handles.h - numbers for things that may be gone when their answer comes.
 *
 * A pointer that crosses a border we cannot cancel (a platform, a worker thread, a remote server)
 * may come back after its owner was freed.  A handle comes back instead, and finds either the same
 * thing or nothing:
 *
 *      struct handle id = handles_add(&h, request);      // hand out id
 *      struct request *r = handles_find(&h, id);         // NULL: gone, or the slot was reused
 *      handles_remove(&h, id);
 *
 * Each slot has a generation that grows whenever the slot is given up.  The first generation is
 * random, so a handle from before a restart finds nothing either.  A zeroed handle finds nothing.
 *
 * The table borrows the things it holds.  Slots are reused and never given back. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct rand;

struct handle {
    uint32_t index, generation; /* generation 0: of nothing */
};

struct handle_slot;
struct handles {
    struct handle_slot *slots; /* owned */
    uint32_t n;                /* slots */
    uint32_t cap;
    uint32_t free;  /* the first free slot, plus one; 0: none */
    uint32_t live;  /* things in the table */
    uint32_t start; /* the generation of a new slot */
};

void handles_init(struct handles *h, struct rand *rand);
void handles_done(struct handles *h); /* a zeroed table is fine */

struct handle handles_add(struct handles *h, void *thing); /* @thing is not NULL */
void *handles_find(const struct handles *h, struct handle id);
/* The thing that was there; NULL: it was gone already. */
void *handles_remove(struct handles *h, struct handle id);
/* A handle of the thing under @id from now on; @id itself finds nothing any more. */
struct handle handles_renew(struct handles *h, struct handle id);
/* Walk the table: begin with *@at = 0; NULL: that was all.  The thing returned last may be removed
 * meanwhile. */
void *handles_next(const struct handles *h, uint32_t *at);
