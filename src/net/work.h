/* work.h - a small thread pool for calls that block: reading, writing and syncing files.
 *
 *      loop:    work_start(pool, &r->work)  -->  queue  -->  thread: work->run(work)
 *      loop:    work->done(work)  <---------------------------------'
 *
 * A struct work is embedded in the caller's object and belongs to the pool from work_start() until
 * done(), which runs exactly once, on the loop, never inside work_start().  Jobs start in order;
 * with more than one thread they end in any order.  A running job cannot be cancelled: its owner
 * frees it in done().  The pool starts threads when they are first needed. */
#pragma once
#include <stdbool.h>
#include "base/err.h"
#include "base/list.h"

struct loop;
struct work;
typedef void work_fn(struct work *w); /* container_of() finds the owner */

struct work {
    work_fn *run;  /* on a thread; NULL is nothing to do */
    work_fn *done; /* on the loop */
    bool dropped;  /* in done(): run() was never called, the pool is being freed */
    struct list link;
    struct work_pool *pool;
};

struct work_pool *work_pool_new(struct loop *loop, unsigned threads); /* touches no thread yet */
/* Waits for running jobs and drops queued ones; every done() has run when it returns. */
void work_pool_free(struct work_pool *p); /* NULL is fine */

/* BH_BUSY: no thread can be made now, or a thousand jobs wait: done() will not run. */
enum bh_err work_start(struct work_pool *p, struct work *w) BH_MUST_USE;
