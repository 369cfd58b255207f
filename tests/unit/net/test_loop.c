/* Promises of net/loop.h. */
#include "net/net_test.h"

#include <pthread.h>
#include <signal.h>

struct fixture {
    struct loop *loop;
    int posted, fired, hooked, signalled, deferred;
    char order[16];
    int n;
    struct timer timer;
    struct loop_fd *watch;
    int pipe[2];
};

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    f->loop = loop_new();
    assert_int_equal(pipe(f->pipe), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    loop_fd_free(f->watch);
    loop_free(f->loop);
    close(f->pipe[0]);
    close(f->pipe[1]);
    free(f);
    return 0;
}

static void note(struct fixture *f, char what)
{
    if (f->n < 15)
        f->order[f->n++] = what;
}

static void on_post(void *ctx)
{
    struct fixture *f = ctx;
    f->posted++;
    note(f, 'p');
}

static void *post_many(void *ctx)
{
    struct fixture *f = ctx;
    for (int i = 0; i < 1000; i++)
        loop_post(f->loop, on_post, f);
    return NULL;
}

static void posts_from_other_threads_all_arrive(void **state)
{
    struct fixture *f = *state;
    pthread_t threads[4];

    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, post_many, f);
    for (int64_t until = test_now_ms() + 5000; f->posted < 4000 && test_now_ms() < until;)
        loop_turn(f->loop, 20);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    loop_turns(f->loop, 2);
    assert_int_equal(f->posted, 4000);
}

static void on_hook(void *ctx)
{
    struct fixture *f = ctx;
    f->hooked++;
    note(f, 'h');
}

static void on_wake(void *ctx)
{
    note(ctx, 'w');
}

static void on_deferred(void *ctx)
{
    note(ctx, 'd');
}

static void on_timer(struct timer *t)
{
    struct fixture *f = container_of(t, struct fixture, timer);
    f->fired++;
    note(f, 't');
}

static void on_readable(void *ctx, int events)
{
    struct fixture *f = ctx;
    char c;

    assert_int_equal(events, LOOP_READ);
    assert_int_equal(read(f->pipe[0], &c, 1), 1);
    note(f, 'r');
    clock_defer(loop_clock(f->loop), on_deferred, f);
    loop_fd_free(f->watch); /* inside its own callback */
    f->watch = NULL;
}

static void a_turn_runs_sockets_then_timers_then_deferred_calls_then_hooks(void **state)
{
    struct fixture *f = *state;

    loop_on_wake(f->loop, on_wake, f);
    loop_on_turn_end(f->loop, on_hook, f);
    f->watch = loop_fd_add(f->loop, f->pipe[0], LOOP_READ, on_readable, f);
    timer_init(&f->timer, on_timer);
    timer_set(loop_clock(f->loop), &f->timer, 0);
    assert_int_equal(write(f->pipe[1], "x", 1), 1);
    loop_turn(f->loop, 100);
    assert_string_equal(f->order, "wrtdh");
    loop_off_turn_end(f->loop, on_hook, f);
    loop_turn(f->loop, 0);
    assert_int_equal(f->hooked, 1);
}

static void the_clock_stands_still_within_a_turn_and_timers_wake_the_loop(void **state)
{
    struct fixture *f = *state;
    int64_t start = test_now_ms(), before = clock_now_ms(loop_clock(f->loop));

    timer_init(&f->timer, on_timer);
    timer_set(loop_clock(f->loop), &f->timer, 50);
    usleep(2000);
    assert_int_equal(clock_now_ms(loop_clock(f->loop)), before);
    assert_true(loop_until(f->loop, &f->fired));
    assert_in_range(test_now_ms() - start, 45, 1000);
    assert_true(clock_now_ms(loop_clock(f->loop)) > before);
}

static void stop_from(void *ctx)
{
    struct fixture *f = ctx;
    f->signalled++;
    loop_stop(f->loop);
}

static void a_signal_stops_the_loop(void **state)
{
    struct fixture *f = *state;

    loop_on_signal(f->loop, SIGUSR1, stop_from, f);
    raise(SIGUSR1);
    loop_run(f->loop);
    assert_int_equal(f->signalled, 1);
}

static void on_writable(void *ctx, int events)
{
    struct fixture *f = ctx;
    assert_int_equal(events, LOOP_WRITE);
    f->fired++;
    loop_fd_set(f->watch, 0);
}

static void a_watch_can_be_changed(void **state)
{
    struct fixture *f = *state;

    f->watch = loop_fd_add(f->loop, f->pipe[1], 0, on_writable, f);
    loop_turns(f->loop, 3);
    assert_int_equal(f->fired, 0);
    loop_fd_set(f->watch, LOOP_WRITE);
    loop_turns(f->loop, 3);
    assert_int_equal(f->fired, 1);
}

static void burn(void *ctx)
{
    struct fixture *f = ctx;
    struct timespec ts;
    int64_t start_ns = -1, now_ns;

    do {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
        now_ns = (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
        start_ns = start_ns < 0 ? now_ns : start_ns;
    } while (now_ns - start_ns < 30000000);
    f->fired++;
}

static void doze(void *ctx)
{
    struct fixture *f = ctx;

    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    f->fired++;
}

static uint64_t turns_over(const struct loop_stalls *s, int64_t us)
{
    uint64_t n = 0;

    for (int i = 1; i < LOOP_STALL_BUCKETS; i++)
        n += loop_stall_bounds_us[i - 1] >= us ? s->turns[i] : 0;
    return n;
}

static void a_turn_that_kept_the_processor_is_counted_and_one_that_waited_is_not(void **state)
{
    struct fixture *f = *state;
    struct loop_stalls before, after;

    loop_turns(f->loop, 20);
    loop_stalls(f->loop, &before);
    assert_int_equal(turns_over(&before, 10000), 0);
    assert_true(before.turns[0] >= 15);
    loop_post(f->loop, doze, f);
    assert_true(loop_until(f->loop, &f->fired));
    loop_stalls(f->loop, &after);
    assert_int_equal(turns_over(&after, 10000), 0);
    f->fired = 0;
    loop_post(f->loop, burn, f);
    assert_true(loop_until(f->loop, &f->fired));
    loop_stalls(f->loop, &after);
    assert_int_equal(turns_over(&after, 25000), 1);
    assert_true(after.sum_us - before.sum_us >= 30000);
}

static void without_a_descriptor_there_is_no_loop(void **state)
{
    struct rlimit was;

    test_no_descriptors(&was);
    assert_null(loop_new());
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

UNIT(net_test_loop)
{
    const struct CMUnitTest tests[] = {
        T(posts_from_other_threads_all_arrive),
        T(a_turn_runs_sockets_then_timers_then_deferred_calls_then_hooks),
        T(the_clock_stands_still_within_a_turn_and_timers_wake_the_loop),
        T(a_signal_stops_the_loop),
        T(a_watch_can_be_changed),
        T(a_turn_that_kept_the_processor_is_counted_and_one_that_waited_is_not),
        T(without_a_descriptor_there_is_no_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
