/* loop.h - an event loop: libev underneath, a struct clock on top.
 *
 * Everything in bellhop runs inside loop_run() on one thread, except blocking work: the store, the
 * threads of skills and data, and net/work.h have threads.  Each edge that is a thread (edges.h)
 * has a loop of its own.  A turn waits for sockets, handles them, fires timers and deferred calls
 * (clock_turn), and runs the end-of-turn hooks.  In these hooks each socket writes the output of
 * the turn in one system call.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/clock.h"

typedef void loop_fn(void *ctx);

/* NULL, with a sentence in the log: no descriptor is left. */
struct loop *loop_new(void);
void loop_free(struct loop *l);           /* runs posted calls; all other threads have ended */
struct clock *loop_clock(struct loop *l); /* borrowed; driven by the loop */
void loop_run(struct loop *l);            /* until loop_stop() */
void loop_turn(struct loop *l, int64_t max_wait_ms); /* one turn; sleeps at most this long */
void loop_stop(struct loop *l);

/* Run fn(ctx) on the loop thread soon.  The only call here that any thread may make. */
void loop_post(struct loop *l, loop_fn *fn, void *ctx);

/* Run fn(ctx) whenever the process gets @signo. */
void loop_on_signal(struct loop *l, int signo, loop_fn *fn, void *ctx);

/* Call fn(ctx) at the beginning of every turn, after the clock is set and before any socket, posted
 * call or timer is handled.  There is one such hook. */
void loop_on_wake(struct loop *l, loop_fn *fn, void *ctx);

/* Call fn(ctx) at the end of every turn, in order of registration.  Register at start-up only. */
void loop_on_turn_end(struct loop *l, loop_fn *fn, void *ctx);
void loop_off_turn_end(struct loop *l, loop_fn *fn,
                       void *ctx); /* for an owner freed before the loop */

/* A histogram of the loop thread's CPU time per turn; time that the thread waits for a processor
 * does not count.  Turns of less than a millisecond of wall time go to the first bucket without
 * reading the CPU clock. */
enum { LOOP_STALL_BUCKETS = 10 };
extern const int64_t loop_stall_bounds_us[LOOP_STALL_BUCKETS]; /* the last has no bound */
struct loop_stalls {
    uint64_t turns[LOOP_STALL_BUCKETS]; /* turns within that bound and above the previous one */
    uint64_t sum_us;
};
void loop_stalls(const struct loop *l, struct loop_stalls *ret);

/* A watched descriptor, for code in src/net/. */
enum { LOOP_READ = 1, LOOP_WRITE = 2 };
typedef void loop_fd_cb(void *ctx, int events);
struct loop_fd *loop_fd_add(struct loop *l, int fd, int events, loop_fd_cb *cb, void *ctx);
void loop_fd_set(struct loop_fd *w, int events);
void loop_fd_free(struct loop_fd *w); /* safe inside its own callback */

void *loop_ev(struct loop *l); /* the struct ev_loop, for src/net/ only */
