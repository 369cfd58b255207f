/* clock.h - time, timers and deferred calls, in one object that the loop drives.
 *
 * The loop drives the real clock, the simulator its own, so the relay runs the same on both.
 * Monotonic milliseconds drive every timer; wall milliseconds are only for dates and token
 * expiry.  Timer and deferred callbacks never run inside the call that started them.
 *
 *      timer_init(&s->idle, on_idle);
 *      timer_set(clock, &s->idle, 60000);            // re-arms; 0 or less: at the next turn
 *      timer_stop(clock, &s->idle);                  // harmless when not armed
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct timer;
typedef void timer_cb(struct timer *t); /* container_of() finds the owner */
typedef void defer_cb(void *ctx);

struct timer {
    timer_cb *fire;
    size_t heap_pos; /* 0: not armed */
};

struct clock *clock_new(void);    /* starts at the time of the system */
void clock_free(struct clock *c); /* armed timers are forgotten, deferred calls are run */

int64_t clock_now_ms(const struct clock *c);  /* monotonic, fixed during one turn */
int64_t clock_wall_ms(const struct clock *c); /* unix time, fixed during one turn */

static inline void timer_init(struct timer *t, timer_cb *fire)
{
    *t = (struct timer){.fire = fire};
}
static inline bool timer_is_set(const struct timer *t)
{
    return t->heap_pos != 0;
}
void timer_set(struct clock *c, struct timer *t, int64_t after_ms);
void timer_stop(struct clock *c, struct timer *t);
int64_t timer_due_ms(const struct clock *c, const struct timer *t); /* monotonic; 0: not armed */

/* The pause before the next try after so many failures in a row: @first_ms, doubled with each. */
static inline int64_t clock_backoff_ms(unsigned failures, int64_t first_ms, int64_t most_ms)
{
    int64_t ms = first_ms;

    for (unsigned n = 1; n < failures && ms < most_ms; n++)
        ms *= 2;
    return ms < most_ms ? ms : most_ms;
}

/* Runs fn(ctx) when this turn ends; used for two-phase close, and for callbacks that must not
 * nest. */
void clock_defer(struct clock *c, defer_cb *fn, void *ctx);

/* ---- for the loop and the simulator ---- */
int64_t clock_os_us(int id); /* of the system: CLOCK_MONOTONIC, ...; for code that has no clock */
void clock_set(struct clock *c, int64_t now_ms, int64_t wall_ms);
void clock_turn(struct clock *c);             /* fires due timers, then runs deferred calls */
int64_t clock_next_ms(const struct clock *c); /* ms until the next turn has work; -1: never */
