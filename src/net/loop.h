/* loop.h - the one loop thread: libev underneath, a struct clock on top.
 *
 * Everything in bellhop but the store thread runs inside loop_run().  Each turn: wait for sockets,
 * handle them, fire timers and deferred calls (clock_turn), then run the end-of-turn hooks, where
 * sockets write what the turn produced in one system call each.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/clock.h"

struct loop;
typedef void loop_fn(void *ctx);

/* NULL, with a sentence in the log: no descriptor is left. */
struct loop *loop_new(void);
void loop_free(struct loop *l);           /* runs what was posted; every other thread has ended */
struct clock *loop_clock(struct loop *l); /* borrowed; turned by the loop */
void loop_run(struct loop *l);            /* until loop_stop() */
void loop_turn(struct loop *l, int64_t max_wait_ms); /* one turn; sleeps at most this long */
void loop_stop(struct loop *l);

/* Run fn(ctx) on the loop thread soon.  The only call here that any thread may make. */
void loop_post(struct loop *l, loop_fn *fn, void *ctx);

/* Run fn(ctx) whenever the process gets @signo. */
void loop_on_signal(struct loop *l, int signo, loop_fn *fn, void *ctx);

/* Call fn(ctx) at the beginning of every turn: the clock is set, and no socket, thread or timer was
 * heard yet.  One of them. */
void loop_on_wake(struct loop *l, loop_fn *fn, void *ctx);

/* Call fn(ctx) at the end of every turn, in order of registration.  Register at start-up only. */
void loop_on_turn_end(struct loop *l, loop_fn *fn, void *ctx);
void loop_off_turn_end(struct loop *l, loop_fn *fn, void *ctx); /* the owner goes before the loop */

/* How long turns kept the processor: a histogram of the thread's CPU time per turn, so that waiting
 * for a busy machine does not count.  Turns of less than a millisecond by the wall clock are not
 * looked at closer: they are in the first bucket. */
enum { LOOP_STALL_BUCKETS = 10 };
extern const int64_t loop_stall_bounds_us[LOOP_STALL_BUCKETS]; /* the last is "everything" */
struct loop_stalls {
    uint64_t turns[LOOP_STALL_BUCKETS]; /* how many took at most that bound, and more than the one
                                         * before */
    uint64_t sum_us;
};
void loop_stalls(const struct loop *l, struct loop_stalls *ret);

/* A watched descriptor, for code in src/net/. */
struct loop_fd;
enum { LOOP_READ = 1, LOOP_WRITE = 2 };
typedef void loop_fd_cb(void *ctx, int events);
struct loop_fd *loop_fd_add(struct loop *l, int fd, int events, loop_fd_cb *cb, void *ctx);
void loop_fd_set(struct loop_fd *w, int events);
void loop_fd_free(struct loop_fd *w); /* safe inside its own callback */

void *loop_ev(struct loop *l); /* the struct ev_loop, for src/net/ only */
