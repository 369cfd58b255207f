/* fifo.c - a ring that doubles.  (fifo.h has the contract.)
 *
 * A small ring is kept when the queue is empty, so that a queue that fills and empties every turn
 * allocates nothing; a large one is freed. */
#include "base/fifo.h"
#include <assert.h>
#include <stdlib.h>
#include "base/mem.h"

enum { FIRST_CAP = 16, KEPT_CAP = 1024 };

static void grow(struct fifo *q)
{
    size_t cap = q->cap != 0 ? q->cap * 2 : FIRST_CAP;
    void **at = xmalloc(cap * sizeof *at);

    for (size_t i = 0; i < q->n; i++)
        at[i] = q->at[(q->head + i) & (q->cap - 1)];
    free(q->at);
    *q = (struct fifo){.at = at, .cap = cap, .n = q->n};
}

void fifo_push(struct fifo *q, void *p)
{
    assert(p != NULL);
    if (q->n == q->cap)
        grow(q);
    q->at[(q->head + q->n++) & (q->cap - 1)] = p;
}

void *fifo_pop(struct fifo *q)
{
    if (q->n == 0) {
        if (q->cap > KEPT_CAP)
            fifo_done(q);
        return NULL;
    }
    void *p = q->at[q->head];
    q->head = (q->head + 1) & (q->cap - 1);
    q->n--;
    return p;
}

void fifo_done(struct fifo *q)
{
    free(q->at);
    *q = (struct fifo){0};
}
