/* clock.c - design.  (clock.h has the contract.)
 *
 * Timers are in a binary heap ordered by (due time, order of arming).  So timers with equal times
 * fire in the order they were armed, and a run can be replayed.  The heap is 1-based: position 0 in
 * a timer means "not armed".
 *
 * A turn fires only timers that were armed before it began.  A timer armed during the turn has a
 * higher number and sorts after every older due timer, so the first such number ends the turn. */
#include "base/clock.h"
#include <assert.h>
#include <stdlib.h>
#include <time.h>
#include "base/mem.h"

struct entry {
    int64_t due_ms;
    uint64_t order;
    struct timer *timer; /* borrowed */
};
struct deferred {
    defer_cb *fn;
    void *ctx; /* borrowed */
};

struct clock {
    int64_t now_ms, wall_ms;
    struct entry *heap; /* owned; heap[0] is unused */
    size_t n_timers, heap_cap;
    uint64_t armed;         /* timers armed so far: the order of the newest */
    struct deferred *queue; /* owned; first come, first served */
    size_t q_head, q_n, q_cap;
};

int64_t clock_os_us(int id)
{
    struct timespec ts;

    clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

struct clock *clock_new(void)
{
    struct clock *c = xcalloc(1, sizeof *c);

    clock_set(c, clock_os_us(CLOCK_MONOTONIC) / 1000, clock_os_us(CLOCK_REALTIME) / 1000);
    return c;
}

static void run_deferred(struct clock *c)
{
    while (c->q_head < c->q_n) {
        struct deferred d = c->queue[c->q_head++]; /* a copy: the call may grow the queue */
        d.fn(d.ctx);
    }
    c->q_head = c->q_n = 0;
}

void clock_free(struct clock *c)
{
    if (c == NULL)
        return;
    run_deferred(c);
    for (size_t i = 1; i <= c->n_timers; i++)
        c->heap[i].timer->heap_pos = 0;
    free(c->heap);
    free(c->queue);
    free(c);
}

int64_t clock_now_ms(const struct clock *c)
{
    return c->now_ms;
}

int64_t clock_wall_ms(const struct clock *c)
{
    return c->wall_ms;
}

static bool before(const struct entry *a, const struct entry *b)
{
    return a->due_ms != b->due_ms ? a->due_ms < b->due_ms : a->order < b->order;
}

static void place(struct clock *c, size_t pos, struct entry e)
{
    c->heap[pos] = e;
    e.timer->heap_pos = pos;
}

/* Moves @e to its place in the heap, starting at the hole at @pos. */
static void sift(struct clock *c, size_t pos, struct entry e)
{
    while (pos > 1 && before(&e, &c->heap[pos / 2])) {
        place(c, pos, c->heap[pos / 2]);
        pos /= 2;
    }
    for (;;) {
        size_t child = pos * 2;
        if (child > c->n_timers)
            break;
        if (child < c->n_timers && before(&c->heap[child + 1], &c->heap[child]))
            child++;
        if (!before(&c->heap[child], &e))
            break;
        place(c, pos, c->heap[child]);
        pos = child;
    }
    place(c, pos, e);
}

void timer_set(struct clock *c, struct timer *t, int64_t after_ms)
{
    int64_t due_ms;

    assert(t->fire != NULL);
    if (__builtin_add_overflow(c->now_ms, after_ms > 0 ? after_ms : 0, &due_ms))
        due_ms = INT64_MAX;
    struct entry e = {due_ms, ++c->armed, t};
    if (t->heap_pos == 0) {
        c->heap = xgrow(c->heap, c->n_timers + 1, &c->heap_cap, sizeof *c->heap);
        t->heap_pos = ++c->n_timers;
    }
    sift(c, t->heap_pos, e);
}

int64_t timer_due_ms(const struct clock *c, const struct timer *t)
{
    return t->heap_pos != 0 ? c->heap[t->heap_pos].due_ms : 0;
}

void timer_stop(struct clock *c, struct timer *t)
{
    size_t pos = t->heap_pos;

    if (pos == 0)
        return;
    assert(pos <= c->n_timers && c->heap[pos].timer == t);
    struct entry last = c->heap[c->n_timers--];
    t->heap_pos = 0;
    if (last.timer != t)
        sift(c, pos, last);
}

void clock_defer(struct clock *c, defer_cb *fn, void *ctx)
{
    c->queue = xgrow(c->queue, c->q_n, &c->q_cap, sizeof *c->queue);
    c->queue[c->q_n++] = (struct deferred){fn, ctx};
}

void clock_set(struct clock *c, int64_t now_ms, int64_t wall_ms)
{
    c->now_ms = now_ms;
    c->wall_ms = wall_ms;
}

void clock_turn(struct clock *c)
{
    uint64_t newest = c->armed;

    while (c->n_timers > 0 && c->heap[1].due_ms <= c->now_ms && c->heap[1].order <= newest) {
        struct timer *t = c->heap[1].timer;
        timer_stop(c, t);
        t->fire(t); /* may free the timer: nothing of it is touched after this */
    }
    run_deferred(c);
}

int64_t clock_next_ms(const struct clock *c)
{
    if (c->q_head < c->q_n)
        return 0;
    if (c->n_timers == 0)
        return -1;
    int64_t due_ms = c->heap[1].due_ms;
    return due_ms > c->now_ms ? due_ms - c->now_ms : 0;
}
