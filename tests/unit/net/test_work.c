/* Promises of net/work.h. */
#include "net/net_test.h"

#include <pthread.h>

#include "net/work.h"

struct job {
    struct work work;
    pthread_t ran_on;
    int *runs, *done; /* shared by the jobs of a test; runs is counted under the lock */
    int order, *next_order;
    bool was_dropped, again;
    struct gate *gate;
};

struct gate { /* holds a job until it is opened */
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool open, reached;
};
#define GATE \
    { \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false \
    }

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void run(struct work *w)
{
    struct job *j = container_of(w, struct job, work);

    if (j->gate != NULL) {
        pthread_mutex_lock(&j->gate->mutex);
        j->gate->reached = true;
        pthread_cond_broadcast(&j->gate->cond);
        while (!j->gate->open)
            pthread_cond_wait(&j->gate->cond, &j->gate->mutex);
        pthread_mutex_unlock(&j->gate->mutex);
    }
    pthread_mutex_lock(&lock);
    ++*j->runs;
    if (j->next_order != NULL)
        j->order = (*j->next_order)++;
    pthread_mutex_unlock(&lock);
    j->ran_on = pthread_self();
}

static void done(struct work *w)
{
    struct job *j = container_of(w, struct job, work);

    j->was_dropped = w->dropped;
    if (j->again) {
        j->again = false;
        assert_int_equal(work_start(w->pool, w), BH_OK);
        return;
    }
    ++*j->done;
}

static void gate_open(struct gate *g)
{
    pthread_mutex_lock(&g->mutex);
    g->open = true;
    pthread_cond_broadcast(&g->cond);
    pthread_mutex_unlock(&g->mutex);
}

static void gate_wait_reached(struct gate *g)
{
    pthread_mutex_lock(&g->mutex);
    while (!g->reached)
        pthread_cond_wait(&g->cond, &g->mutex);
    pthread_mutex_unlock(&g->mutex);
}

static bool turn_until(struct loop *l, const int *count, int want)
{
    int64_t until = test_now_ms() + 5000;

    while (*count < want && test_now_ms() < until)
        loop_turn(l, 2);
    return *count == want;
}

static void jobs_run_elsewhere_in_order_and_are_told_on_the_loop(void **state)
{
    struct loop *loop = loop_new();
    struct work_pool *p = work_pool_new(loop, 1);
    struct job jobs[50] = {0};
    int runs = 0, n_done = 0, order = 0;

    for (int i = 0; i < 50; i++) {
        jobs[i] = (struct job){.work = {.run = run, .done = done},
                               .runs = &runs,
                               .done = &n_done,
                               .next_order = &order};
        assert_int_equal(work_start(p, &jobs[i].work), BH_OK);
        assert_int_equal(n_done, 0); /* never inside the call */
    }
    assert_true(turn_until(loop, &n_done, 50));
    assert_int_equal(runs, 50);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(jobs[i].order, i);
        assert_false(pthread_equal(jobs[i].ran_on, pthread_self()));
        assert_false(jobs[i].was_dropped);
    }
    work_pool_free(p);
    loop_free(loop);
}

static void done_may_start_the_same_job_again(void **state)
{
    struct loop *loop = loop_new();
    struct work_pool *p = work_pool_new(loop, 2);
    int runs = 0, n_done = 0;
    struct job j = {.work = {.run = run, .done = done},
                    .runs = &runs,
                    .done = &n_done,
                    .again = true};

    assert_int_equal(work_start(p, &j.work), BH_OK);
    assert_true(turn_until(loop, &n_done, 1));
    assert_int_equal(runs, 2);
    work_pool_free(p);
    loop_free(loop);
}

static void several_threads_work_at_once(void **state)
{
    struct loop *loop = loop_new();
    struct work_pool *p = work_pool_new(loop, 2);
    int runs = 0, n_done = 0;
    struct gate g1 = GATE, g2 = GATE;
    struct job a = {.work = {.run = run, .done = done},
                    .runs = &runs,
                    .done = &n_done,
                    .gate = &g1};
    struct job b = a;

    b.gate = &g2;
    assert_int_equal(work_start(p, &a.work), BH_OK);
    assert_int_equal(work_start(p, &b.work), BH_OK);
    gate_wait_reached(&g1);
    gate_wait_reached(&g2); /* while the first still runs */
    gate_open(&g2);
    assert_true(turn_until(loop, &n_done, 1));
    gate_open(&g1);
    assert_true(turn_until(loop, &n_done, 2));
    work_pool_free(p);
    loop_free(loop);
}

static void freeing_finishes_what_runs_and_drops_what_waits(void **state)
{
    struct loop *loop = loop_new();
    struct work_pool *p = work_pool_new(loop, 1);
    int runs = 0, n_done = 0;
    struct gate g = GATE;
    struct job a = {.work = {.run = run, .done = done}, .runs = &runs, .done = &n_done, .gate = &g};
    struct job b = {.work = {.run = run, .done = done}, .runs = &runs, .done = &n_done};
    struct job first = b;

    assert_int_equal(work_start(p, &first.work), BH_OK);
    assert_int_equal(work_start(p, &a.work), BH_OK);
    assert_int_equal(work_start(p, &b.work), BH_OK);
    gate_wait_reached(&g); /* the first has been posted to the loop, which has not turned */
    gate_open(&g);
    work_pool_free(p);
    assert_int_equal(n_done, 3);
    assert_false(first.was_dropped || a.was_dropped);
    assert_int_equal(runs, b.was_dropped ? 2 : 3);
    loop_turns(loop, 3); /* what was posted finds nothing to do */
    loop_free(loop);
}

static void more_than_a_thousand_do_not_wait(void **state)
{
    struct loop *loop = loop_new();
    struct work_pool *p = work_pool_new(loop, 1);
    int runs = 0, n_done = 0, taken = 0;
    struct gate g = GATE;
    struct job *jobs = xcalloc(1200, sizeof *jobs);

    for (int i = 0; i < 1200; i++) {
        jobs[i] = (struct job){.work = {.run = run, .done = done},
                               .runs = &runs,
                               .done = &n_done,
                               .gate = i == 0 ? &g : NULL};
        taken += work_start(p, &jobs[i].work) == BH_OK;
        if (i == 0)
            gate_wait_reached(&g);
    }
    assert_int_equal(taken, 1001);
    gate_open(&g);
    assert_true(turn_until(loop, &n_done, taken));
    work_pool_free(p);
    loop_free(loop);
    free(jobs);
}

UNIT(net_test_work)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_run_elsewhere_in_order_and_are_told_on_the_loop),
        cmocka_unit_test(done_may_start_the_same_job_again),
        cmocka_unit_test(several_threads_work_at_once),
        cmocka_unit_test(freeing_finishes_what_runs_and_drops_what_waits),
        cmocka_unit_test(more_than_a_thousand_do_not_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
