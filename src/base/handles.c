/* handles.c - the table of handles.  (handles.h has the contract.) */
#include "base/handles.h"
#include <assert.h>
#include <stdlib.h>
#include "base/mem.h"
#include "base/rand.h"

struct handle_slot {
    void *thing; /* borrowed; NULL: free */
    uint32_t generation;
    uint32_t next_free; /* plus one; 0: the last */
};

void handles_init(struct handles *h, struct rand *rand)
{
    *h = (struct handles){.start = (uint32_t)rand_u64(rand) | 1};
}

void handles_done(struct handles *h)
{
    free(h->slots);
    *h = (struct handles){0};
}

static struct handle_slot *slot_of(const struct handles *h, struct handle id)
{
    struct handle_slot *s = id.index < h->n ? &h->slots[id.index] : NULL;

    return s != NULL && s->thing != NULL && s->generation == id.generation ? s : NULL;
}

/* 0 is no generation. */
static void grow_older(struct handle_slot *s)
{
    if (++s->generation == 0)
        s->generation = 1;
}

struct handle handles_add(struct handles *h, void *thing)
{
    uint32_t at = h->free - 1;

    assert(thing != NULL && h->start != 0);
    if (h->free != 0) {
        h->free = h->slots[at].next_free;
    } else {
        if (h->n == h->cap) {
            h->cap = h->cap != 0 ? 2 * h->cap : 16;
            h->slots = xrealloc(h->slots, h->cap * sizeof *h->slots);
        }
        at = h->n++;
        h->slots[at] = (struct handle_slot){.generation = h->start};
    }
    h->slots[at].thing = thing;
    h->live++;
    return (struct handle){at, h->slots[at].generation};
}

void *handles_find(const struct handles *h, struct handle id)
{
    const struct handle_slot *s = slot_of(h, id);

    return s != NULL ? s->thing : NULL;
}

void *handles_remove(struct handles *h, struct handle id)
{
    struct handle_slot *s = slot_of(h, id);

    if (s == NULL)
        return NULL;
    void *thing = s->thing;
    grow_older(s);
    s->thing = NULL;
    s->next_free = h->free;
    h->free = id.index + 1;
    h->live--;
    return thing;
}

struct handle handles_renew(struct handles *h, struct handle id)
{
    struct handle_slot *s = slot_of(h, id);

    if (s == NULL)
        return (struct handle){0};
    grow_older(s);
    return (struct handle){id.index, s->generation};
}

void *handles_next(const struct handles *h, uint32_t *at)
{
    while (*at < h->n) {
        void *thing = h->slots[(*at)++].thing;
        if (thing != NULL)
            return thing;
    }
    return NULL;
}
