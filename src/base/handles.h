/* handles.h - generation-checked handles for objects that may be freed before an answer arrives.
 *
 * A pointer passed to work that cannot be cancelled (a platform, a worker thread, a remote server)
 * may come back after its object was freed.  A handle instead finds either the same object or
 * nothing:
 *
 *      struct handle id = handles_add(&h, request);      // hand out id
 *      struct request *r = handles_find(&h, id);         // NULL: gone, or the slot was reused
 *      handles_remove(&h, id);
 *
 * Each slot has a generation that grows whenever the slot is released.  The first generation is
 * random, so a handle from before a restart finds nothing.  A zeroed handle finds nothing.
 *
 * The table borrows the objects.  Slots are reused; their memory is kept until handles_done(). */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct rand;

struct handle {
    uint32_t index, generation; /* generation 0: refers to nothing */
};

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
/* Returns the removed object; NULL: it was gone already. */
void *handles_remove(struct handles *h, struct handle id);
/* Returns a new handle for the object of @id; @id itself finds nothing from now on. */
struct handle handles_renew(struct handles *h, struct handle id);
/* Iterates over the table: start with *@at = 0; NULL: the end.  The object returned last may be
 * removed during the iteration. */
void *handles_next(const struct handles *h, uint32_t *at);
