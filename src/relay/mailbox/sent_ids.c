/* sent_ids.c - design.  (sent_ids.h has the contract.)
 *
 * Open addressing, probing upwards; taking an entry closes its gap, so there are no tombstones.
 * What was settled without an ack stays until the table is full and is swept then. */
#include "relay/mailbox/sent_ids.h"
#include <stdlib.h>
#include "base/mem.h"
#include "relay/mailbox/mailbox.h"

enum { FIRST_CAP = 16 };

static void put(struct sent_ids *t, struct sent_id e)
{
    uint32_t mask = t->cap - 1, at = (uint32_t)e.tag & mask;

    while (t->at[at].tag != 0) {
        if (t->at[at].tag == e.tag && t->at[at].id == e.id)
            return; /* it goes down another socket */
        at = (at + 1) & mask;
    }
    t->at[at] = e;
    t->n++;
}

/* Keep the unsettled ones, with room for as many again. */
static void sweep(struct sent_ids *t, struct mailbox *mb)
{
    struct sent_ids was = *t;
    uint32_t alive = 0;

    for (uint32_t i = 0; i < was.cap; i++) {
        if (was.at[i].tag != 0 && mailbox_find(mb, was.at[i].id) == NULL)
            was.at[i].tag = 0;
        alive += was.at[i].tag != 0;
    }
    *t = (struct sent_ids){.cap = FIRST_CAP};
    while (t->cap < alive * 4)
        t->cap *= 2;
    t->at = xcalloc(t->cap, sizeof t->at[0]);
    for (uint32_t i = 0; i < was.cap; i++)
        if (was.at[i].tag != 0)
            put(t, was.at[i]);
    free(was.at);
}

void sent_ids_add(struct sent_ids *t, struct mailbox *mb, uint64_t tag, uint64_t id)
{
    if (t->n * 2 >= t->cap)
        sweep(t, mb);
    put(t, (struct sent_id){tag != 0 ? tag : 1, id});
}

/* Moves later entries of the same run into the gap at @gap. */
static void close_gap(struct sent_ids *t, uint32_t gap)
{
    uint32_t mask = t->cap - 1;

    for (uint32_t at = (gap + 1) & mask; t->at[at].tag != 0; at = (at + 1) & mask) {
        uint32_t home = (uint32_t)t->at[at].tag & mask;
        if (((at - home) & mask) >= ((at - gap) & mask)) {
            t->at[gap] = t->at[at];
            gap = at;
        }
    }
    t->at[gap].tag = 0;
}

uint64_t sent_ids_take(struct sent_ids *t, uint64_t tag)
{
    uint32_t mask = t->cap - 1;

    if (tag == 0)
        tag = 1;
    if (t->n == 0)
        return 0;
    for (uint32_t at = (uint32_t)tag & mask; t->at[at].tag != 0; at = (at + 1) & mask)
        if (t->at[at].tag == tag) {
            uint64_t id = t->at[at].id;
            close_gap(t, at);
            t->n--;
            return id;
        }
    return 0;
}

void sent_ids_done(struct sent_ids *t)
{
    free(t->at);
    *t = (struct sent_ids){0};
}
