/* fifo.h - a first-in, first-out queue of pointers.
 *
 * For objects that are numerous and rarely queued: they pay with a flag of their own instead of the
 * 16 bytes of a struct list.  The queue does not know who is in it, and nothing can be taken out of
 * its middle; an owner that loses interest clears the object's flag, and the one who pops looks at
 * the flag.
 *
 *      if (!i->is_touched)
 *          fifo_push(&t->changed, i);
 *      i->is_touched = true;
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct fifo {
    void **at; /* owned; a ring */
    size_t cap, head, n;
};

void fifo_push(struct fifo *q, void *p);
void *fifo_pop(struct fifo *q); /* the oldest; NULL: the queue is empty, and its memory is free */
void fifo_done(struct fifo *q);
static inline bool fifo_is_empty(const struct fifo *q)
{
    return q->n == 0;
}
