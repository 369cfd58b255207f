/* loop.c - design.  (loop.h has the contract.)
 *
 * One turn is one ev_run(EVRUN_ONCE): libev waits at most until the clock has work, an ev_check of
 * the highest priority sets the clock before any socket callback sees it, then the sockets run.
 * One libev timer serves for that wake-up.  All other timers live in the clock, which a simulator
 * can drive.
 *
 * Turn-end hooks and signals are registered in ones and twos, so plain lists do. */
#include "net/loop.h"

#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "base/list.h"
#include "base/log.h"

struct loop_call {
    loop_fn *fn;
    void *ctx;
};

struct loop_calls {
    struct loop_call *v; /* owned */
    size_t n, cap;
};

struct signal_watch {
    ev_signal ev;
    struct loop_call call;
    struct list link;
};

struct loop {
    struct ev_loop *ev;       /* owned */
    struct clock *clock;      /* owned */
    ev_check woke;            /* sets the clock */
    struct loop_call on_wake; /* fn NULL: no hook */
    ev_timer alarm;           /* wakes us when the clock has work */
    ev_async posted;
    bool stop;
    int64_t woke_us;             /* when this turn began */
    int64_t cpu_us, cpu_read_us; /* the thread's CPU time shortly before, and when it was read */
    struct loop_stalls stalls;
    struct list signals;
    struct loop_calls hooks;   /* turn-end; a removed one has fn == NULL */
    pthread_mutex_t mutex;     /* guards @mail */
    struct loop_calls mail;    /* posted by other threads */
    struct loop_calls reading; /* the mail being delivered */
};

struct loop_fd {
    ev_io ev;
    struct ev_loop *loop; /* borrowed */
    loop_fd_cb *cb;
    void *ctx;
};

static void calls_add(struct loop_calls *c, loop_fn *fn, void *ctx)
{
    if (c->n == c->cap) {
        c->cap = c->cap != 0 ? c->cap * 2 : 8;
        c->v = xrealloc(c->v, c->cap * sizeof *c->v);
    }
    c->v[c->n++] = (struct loop_call){fn, ctx};
}

static void set_clock(struct loop *l)
{
    l->woke_us = clock_os_us(CLOCK_MONOTONIC);
    clock_set(l->clock, l->woke_us / 1000, clock_os_us(CLOCK_REALTIME) / 1000);
}

/* ---- stalls ----
 *
 * The CPU time of a thread is a system call, the wall clock is not.  So it is read at most every
 * CPU_READ_US before a turn, and after one only if that was long: short turns pay one look at the
 * wall clock, and a long one is told up to CPU_READ_US too long. */

enum { CPU_READ_US = 250, LONG_TURN_US = 1000 };

const int64_t loop_stall_bounds_us[LOOP_STALL_BUCKETS] = {1000,    2500,     5000,   10000,
                                                          25000,   50000,    100000, 250000,
                                                          1000000, INT64_MAX};

static void on_woke(struct ev_loop *ev, ev_check *w, int events)
{
    struct loop *l = container_of(w, struct loop, woke);

    set_clock(l);
    if (l->woke_us - l->cpu_read_us >= CPU_READ_US) {
        l->cpu_us = clock_os_us(CLOCK_THREAD_CPUTIME_ID);
        l->cpu_read_us = l->woke_us;
    }
    if (l->on_wake.fn != NULL)
        l->on_wake.fn(l->on_wake.ctx);
}

static void count_turn(struct loop *l)
{
    int64_t us = clock_os_us(CLOCK_MONOTONIC) - l->woke_us;
    int bucket = 0;

    if (us >= LONG_TURN_US) {
        int64_t cpu = clock_os_us(CLOCK_THREAD_CPUTIME_ID) - l->cpu_us;
        us = cpu < us ? cpu : us;
    }
    while (us > loop_stall_bounds_us[bucket])
        bucket++;
    l->stalls.turns[bucket]++;
    l->stalls.sum_us += (uint64_t)us;
}

void loop_stalls(const struct loop *l, struct loop_stalls *ret)
{
    *ret = l->stalls;
}

static void on_alarm(struct ev_loop *ev, ev_timer *w, int events)
{
    (void)ev, (void)w, (void)events; /* only wakes the loop */
}

static void on_posted(struct ev_loop *ev, ev_async *w, int events)
{
    struct loop *l = container_of(w, struct loop, posted);
    struct loop_calls empty = l->reading;

    pthread_mutex_lock(&l->mutex);
    l->reading = l->mail;
    l->mail = empty;
    pthread_mutex_unlock(&l->mutex);
    for (size_t i = 0; i < l->reading.n; i++)
        l->reading.v[i].fn(l->reading.v[i].ctx);
    l->reading.n = 0;
}

/* libev asks for descriptors only when a loop is made, and cannot tell that there are none. */
static bool has_descriptors(void)
{
    int epoll = epoll_create1(EPOLL_CLOEXEC), pipes[2] = {-1, -1};
    bool ok = epoll >= 0 && pipe2(pipes, O_CLOEXEC) == 0;

    if (!ok)
        log_error(NULL, "cannot make an event loop: %s (raise the limit of open files)",
                  strerror(errno));
    if (epoll >= 0)
        close(epoll);
    if (pipes[0] >= 0) {
        close(pipes[0]);
        close(pipes[1]);
    }
    return ok;
}

/* What is left: a descriptor that went between the look and the use, or a mistake of ours. */
static void on_libev_failure(const char *what) EV_NOEXCEPT
{
    log_error(NULL, "%s: %s", what, strerror(errno));
    exit(EXIT_FAILURE);
}

struct loop *loop_new(void)
{
    struct loop *l;

    signal(SIGPIPE, SIG_IGN); /* a write to a closed socket returns EPIPE instead */
    ev_set_syserr_cb(on_libev_failure);
    if (!has_descriptors())
        return NULL;
    l = xcalloc(1, sizeof *l);
    l->ev = ev_loop_new(EVBACKEND_EPOLL | EVFLAG_NOENV);
    if (l->ev == NULL) {
        log_error(NULL, "cannot make an event loop: %s", strerror(errno));
        free(l);
        return NULL;
    }
    l->clock = clock_new();
    list_init(&l->signals);
    pthread_mutex_init(&l->mutex, NULL);
    ev_check_init(&l->woke, on_woke);
    ev_set_priority(&l->woke, EV_MAXPRI);
    ev_check_start(l->ev, &l->woke);
    ev_async_init(&l->posted, on_posted);
    ev_async_start(l->ev, &l->posted);
    ev_timer_init(&l->alarm, on_alarm, 0, 0);
    set_clock(l);
    return l;
}

void loop_free(struct loop *l)
{
    if (l == NULL)
        return;
    while (l->mail.n > 0) /* a posted call may own memory, so it must run */
        on_posted(l->ev, &l->posted, 0);
    clock_free(l->clock);
    list_each (&l->signals, it, next) {
        struct signal_watch *w = list_entry(it, struct signal_watch, link);
        ev_signal_stop(l->ev, &w->ev);
        free(w);
    }
    ev_timer_stop(l->ev, &l->alarm);
    ev_async_stop(l->ev, &l->posted);
    ev_check_stop(l->ev, &l->woke);
    ev_loop_destroy(l->ev);
    pthread_mutex_destroy(&l->mutex);
    free(l->mail.v);
    free(l->reading.v);
    free(l->hooks.v);
    free(l);
}

struct clock *loop_clock(struct loop *l)
{
    return l->clock;
}

void *loop_ev(struct loop *l)
{
    return l->ev;
}

void loop_turn(struct loop *l, int64_t max_wait_ms)
{
    int64_t wait = clock_next_ms(l->clock);

    if (wait < 0 || wait > max_wait_ms)
        wait = max_wait_ms;
    if (wait > 0) {
        ev_now_update(l->ev);
        ev_timer_set(&l->alarm, (double)wait / 1000.0, 0.0);
        ev_timer_start(l->ev, &l->alarm);
    }
    ev_run(l->ev, wait > 0 ? EVRUN_ONCE : EVRUN_NOWAIT);
    ev_timer_stop(l->ev, &l->alarm);
    clock_turn(l->clock);
    for (size_t i = 0; i < l->hooks.n; i++)
        if (l->hooks.v[i].fn != NULL)
            l->hooks.v[i].fn(l->hooks.v[i].ctx);
    count_turn(l);
}

void loop_run(struct loop *l)
{
    l->stop = false;
    while (!l->stop)
        loop_turn(l, 60000);
}

static void wake(void *ctx)
{
}

void loop_stop(struct loop *l)
{
    l->stop = true;
    loop_post(l, wake, NULL); /* the turn after this one must not sleep */
}

void loop_post(struct loop *l, loop_fn *fn, void *ctx)
{
    pthread_mutex_lock(&l->mutex);
    calls_add(&l->mail, fn, ctx);
    pthread_mutex_unlock(&l->mutex);
    ev_async_send(l->ev, &l->posted);
}

static void on_signal(struct ev_loop *ev, ev_signal *w, int events)
{
    struct signal_watch *s = container_of(w, struct signal_watch, ev);
    s->call.fn(s->call.ctx);
}

void loop_on_signal(struct loop *l, int signo, loop_fn *fn, void *ctx)
{
    struct signal_watch *w = xcalloc(1, sizeof *w);
    w->call = (struct loop_call){fn, ctx};
    list_append(&l->signals, &w->link);
    ev_signal_init(&w->ev, on_signal, signo);
    ev_signal_start(l->ev, &w->ev);
}

void loop_on_wake(struct loop *l, loop_fn *fn, void *ctx)
{
    l->on_wake = (struct loop_call){fn, ctx};
}

void loop_on_turn_end(struct loop *l, loop_fn *fn, void *ctx)
{
    calls_add(&l->hooks, fn, ctx);
}

void loop_off_turn_end(struct loop *l, loop_fn *fn, void *ctx)
{
    for (size_t i = 0; i < l->hooks.n; i++) {
        if (l->hooks.v[i].fn == fn && l->hooks.v[i].ctx == ctx)
            l->hooks.v[i].fn = NULL;
    }
}

static int to_ev(int events)
{
    return (events & LOOP_READ ? EV_READ : 0) | (events & LOOP_WRITE ? EV_WRITE : 0);
}

static void on_fd(struct ev_loop *ev, ev_io *w, int events)
{
    struct loop_fd *f = container_of(w, struct loop_fd, ev);
    f->cb(f->ctx, (events & EV_READ ? LOOP_READ : 0) | (events & EV_WRITE ? LOOP_WRITE : 0));
}

struct loop_fd *loop_fd_add(struct loop *l, int fd, int events, loop_fd_cb *cb, void *ctx)
{
    struct loop_fd *f = xcalloc(1, sizeof *f);
    f->loop = l->ev;
    f->cb = cb;
    f->ctx = ctx;
    ev_io_init(&f->ev, on_fd, fd, to_ev(events));
    if (events != 0)
        ev_io_start(l->ev, &f->ev);
    return f;
}

void loop_fd_set(struct loop_fd *f, int events)
{
    ev_io_stop(f->loop, &f->ev);
    ev_io_set(&f->ev, f->ev.fd, to_ev(events));
    if (events != 0)
        ev_io_start(f->loop, &f->ev);
}

void loop_fd_free(struct loop_fd *f)
{
    if (f == NULL)
        return;
    ev_io_stop(f->loop, &f->ev);
    free(f);
}
