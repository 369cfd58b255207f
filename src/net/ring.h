/* ring.h - batches between two threads, in order: the transport of a trunk inside one process.
 *
 *      producer: ring_push() --a batch--> ring --loop_post()--> consumer's loop: its callback
 *
 * One thread pushes, and the consumer's loop takes everything that was pushed since its last turn.
 * Neither thread waits for the other.  Private to src/net/. */
#pragma once
#include "base/buf.h"

struct loop;

/* One batch, borrowed; in the thread of the loop. */
typedef void ring_cb(void *ctx, struct str batch);

struct ring *ring_new(struct loop *to, ring_cb *cb, void *ctx);
void ring_push(struct ring *r, struct buf *batch); /* takes the bytes over; @batch is empty then */
size_t ring_bytes(const struct ring *r); /* pushed and not taken yet; from either thread */
/* In the consumer's thread, when nobody pushes any more.  NULL is fine. */
void ring_free(struct ring *r);
