/* threads.h - what the threads of every store share: starting them, their time, and the way of
 * finished work back to the loop.  Used by worker.c (the main store) and lanes.c (skills, data).
 *
 *      thread: handback_add(first, last)  -->  list  -->  loop: ops->finish(item), one by one
 *
 * A handback is an object of its own with a reference count: a posted call cannot be called off and
 * may find its owner closed. */
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct handback;
struct loop;

int64_t thread_now_us(void); /* monotonic */
/* Signals stay with the loop thread.  @name: at most 15 characters.  False: none to be had. */
bool thread_start(pthread_t *ret, void *(*main)(void *arg), void *arg, const char *name);

struct handback_ops { /* what an item of finished work is */
    void *(*next)(void *item);
    void (*link)(void *item, void *next);
    void (*finish)(void *owner, void *item); /* on the loop; may free it, or close the owner */
    void (*drop)(void *item);                /* instead, when the owner was closed first */
};

struct handback *handback_new(struct loop *loop, const struct handback_ops *ops, void *owner);
void *handback_owner(const struct handback *h); /* on the loop; NULL once closed */
/* From any thread.  The items from @first to @last, linked; @bytes of answers are with them. */
void handback_add(struct handback *h, void *first, void *last, size_t bytes);
/* Wait until fewer than @bytes of answers are under way.  handback_close() ends the wait. */
void handback_wait(struct handback *h, size_t bytes);
void handback_ref(struct handback *h);
void handback_unref(struct handback *h);
/* On the loop thread, with the threads still running: nothing is finished any more. */
void handback_close(struct handback *h);
/* After the threads have ended: drops what was not finished, and lets go of @h. */
void handback_done(struct handback *h);
