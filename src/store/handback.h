/* handback.h - finished ops on their way from the threads of a store to the loop.  For stores only.
 *
 * An object of its own: a posted call cannot be called off and may find the store closed. */
#pragma once
#include <pthread.h>
#include "store/store.h"

struct loop;

struct op_handback {
    struct loop *loop; /* borrowed */
    pthread_mutex_t lock;
    pthread_cond_t room;           /* signalled when @bytes went down */
    struct store_op *first, **end; /* finished, in order */
    struct store_op *rest;         /* of the loop thread: those whose done() is still to be run */
    size_t bytes;                  /* answers of reads whose done() has not run */
    bool posted;                   /* a call is on its way, or running: it holds one reference */
    bool closed;                   /* no done() from now on */
    unsigned refs;
    void *owner; /* of the loop thread; borrowed; NULL once closed */
};

struct op_handback *handback_new(struct loop *loop);
/* From any thread.  The ops from @first to @last, linked; @bytes of answers are with them. */
void handback_add(struct op_handback *h, struct store_op *first, struct store_op *last,
                  size_t bytes);
/* Wait until fewer than @bytes of answers are under way.  handback_close() ends the wait. */
void handback_wait(struct op_handback *h, size_t bytes);
void handback_ref(struct op_handback *h);
void handback_unref(struct op_handback *h);
/* On the loop thread, with the threads still running: no done() runs any more. */
void handback_close(struct op_handback *h);
/* After the threads have ended: frees the answers nobody took, and lets go of @h. */
void handback_done(struct op_handback *h);
