/* The promises of store/jobs.h, with connections that only count. */
#include "unit.h"
#include <pthread.h>
#include "base/list.h"
#include "base/mem.h"
#include "net/loop.h"
#include "store/jobs.h"
#include "store/engine.h"

struct conn {
    char key[16];
    bool writer, in_tx;
    size_t in_group;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t opened, closed_conns, commits, rollbacks, biggest_group, open_now, most_open;
static char written[4096]; /* keys and numbers of the jobs whose transaction was committed */
static char pending[4096];
static bool fail_open, fail_commit;
static pthread_t loop_thread;

static void *conn_open(void *ctx, struct str key, bool writer, char *ret_why)
{
    if (fail_open) {
        snprintf(ret_why, 256, "no such place");
        return NULL;
    }
    struct conn *c = xcalloc(1, sizeof *c);
    snprintf(c->key, sizeof c->key, "%.*s", STR_FMT(key));
    c->writer = writer;
    pthread_mutex_lock(&lock);
    opened++;
    most_open = ++open_now > most_open ? open_now : most_open;
    pthread_mutex_unlock(&lock);
    return c;
}

static void conn_close(void *conn)
{
    pthread_mutex_lock(&lock);
    closed_conns++;
    open_now--;
    pthread_mutex_unlock(&lock);
    free(conn);
}

static bool conn_begin(void *conn, bool write, char *ret_why)
{
    struct conn *c = conn;

    assert_int_equal(write, c->writer);
    assert_false(c->in_tx);
    c->in_tx = true;
    c->in_group = 0;
    if (write)
        pending[0] = '\0';
    return true;
}

static bool conn_commit(void *conn, char *ret_why)
{
    struct conn *c = conn;

    if (c->writer && fail_commit) {
        snprintf(ret_why, 256, "the disk is full");
        return false;
    }
    c->in_tx = false;
    if (c->writer) {
        pthread_mutex_lock(&lock);
        strcat(written, pending);
        commits++;
        biggest_group = c->in_group > biggest_group ? c->in_group : biggest_group;
        pthread_mutex_unlock(&lock);
    }
    return true;
}

static void conn_rollback(void *conn)
{
    struct conn *c = conn;

    c->in_tx = false;
    rollbacks += c->writer;
}

static const char *conn_problem(void *conn)
{
    return "it broke";
}

static const struct db_jobs_ops ops = {.open = conn_open,
                                       .close = conn_close,
                                       .begin = conn_begin,
                                       .commit = conn_commit,
                                       .rollback = conn_rollback,
                                       .problem = conn_problem};

/* ---- jobs ---- */

struct job {
    struct db_job job;
    int n;
    bool breaks, asks_writer, blocks;
    bool was_writer;
    char why[64];
    enum bh_err err;
};

static int done_calls, dropped, failed_calls;
static char order[4096];
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER; /* jobs that block wait for it */
static bool at_gate;                                     /* one does; atomic */

static enum db_job_end job_run(struct db_job *lj, void *conn)
{
    struct job *j = container_of(lj, struct job, job);
    struct conn *c = conn;
    char text[32];

    assert_true(c->in_tx);
    assert_false(pthread_equal(pthread_self(), loop_thread));
    assert_true(str_eq(str_of(c->key), j->job.key));
    if (j->blocks) {
        __atomic_store_n(&at_gate, true, __ATOMIC_RELEASE);
        pthread_mutex_lock(&gate);
        pthread_mutex_unlock(&gate);
    }
    j->err = BH_OK;
    j->was_writer = c->writer;
    if (j->breaks)
        return DB_JOB_IO;
    if (j->asks_writer && !c->writer)
        return DB_JOB_ASK_WRITER;
    c->in_group++;
    if (c->writer) {
        snprintf(text, sizeof text, "%s%d ", c->key, j->n);
        strcat(pending, text);
    }
    return DB_JOB_OK;
}

static void job_fail(struct db_job *lj, enum bh_err err, const char *why)
{
    struct job *j = container_of(lj, struct job, job);

    j->err = err;
    snprintf(j->why, sizeof j->why, "%s", why);
}

static struct job last;

static void job_done(struct db_job *lj)
{
    struct job *j = container_of(lj, struct job, job);
    char text[16];

    assert_true(pthread_equal(pthread_self(), loop_thread));
    done_calls++;
    failed_calls += j->err != BH_OK;
    snprintf(text, sizeof text, "%d ", j->n);
    strcat(order, text);
    last = *j;
    free(j);
}

static void job_drop(struct db_job *lj)
{
    assert_true(pthread_equal(pthread_self(), loop_thread));
    dropped++;
    free(container_of(lj, struct job, job));
}

static const struct db_job_work work = {.run = job_run,
                                        .fail = job_fail,
                                        .done = job_done,
                                        .drop = job_drop};

struct rig {
    struct loop *loop;
    struct db_jobs *jobs;
    struct db_jobs_config cfg;
};

static void rig_start(struct rig *r)
{
    r->jobs = db_jobs_new(r->loop, &r->cfg);
    assert_non_null(r->jobs);
}

static int setup(void **state)
{
    struct rig *r = xcalloc(1, sizeof *r);

    opened = closed_conns = commits = rollbacks = biggest_group = open_now = most_open = 0;
    done_calls = dropped = failed_calls = 0;
    written[0] = order[0] = '\0';
    fail_open = fail_commit = false;
    loop_thread = pthread_self();
    r->loop = loop_new();
    r->cfg = (struct db_jobs_config){.name = "test",
                                     .ops = &ops,
                                     .writers = 1,
                                     .readers = 2,
                                     .max_open = 2,
                                     .max_waiting = 1000};
    rig_start(r);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;

    if (r->jobs != NULL)
        db_jobs_close(r->jobs);
    assert_int_equal(opened, closed_conns);
    loop_free(r->loop);
    free(r);
    return 0;
}

static struct job *submit(struct rig *r, const char *key, bool write, int n)
{
    struct job *j = xcalloc(1, sizeof *j);

    *j = (struct job){.job = {.work = &work, .key = str_of(key), .write = write}, .n = n};
    db_jobs_submit(r->jobs, &j->job);
    return j;
}

static void wait_for(struct rig *r, int calls)
{
    while (done_calls + dropped < calls)
        loop_turn(r->loop, 1000);
}

/* The gate is ours, and a write of "a" holds the writer there: what is submitted now is taken
 * together. */
static void hold_the_writer(struct rig *r)
{
    struct job *j = xcalloc(1, sizeof *j);

    at_gate = false;
    pthread_mutex_lock(&gate);
    *j = (struct job){.job = {.work = &work, .key = STR("a"), .write = true}, .blocks = true};
    db_jobs_submit(r->jobs, &j->job);
    while (!__atomic_load_n(&at_gate, __ATOMIC_ACQUIRE))
        loop_turn(r->loop, 0);
}

static void submit_for(struct rig *r, uint8_t payer, bool write, bool blocks, int n)
{
    struct job *j = xcalloc(1, sizeof *j);

    *j = (struct job){.job = {.work = &work, .key = STR("a"), .write = write, .payer = payer},
                      .n = n,
                      .blocks = blocks};
    db_jobs_submit(r->jobs, &j->job);
}

static void hold_for(struct rig *r, uint8_t payer, bool write)
{
    at_gate = false;
    pthread_mutex_lock(&gate);
    submit_for(r, payer, write, true, 0);
    while (!__atomic_load_n(&at_gate, __ATOMIC_ACQUIRE))
        loop_turn(r->loop, 0);
}

static void what_one_payer_piles_up_costs_the_others_a_turn(void **state)
{
    struct rig *r = *state;

    db_jobs_close(r->jobs);
    r->cfg.readers = 1;
    rig_start(r);
    for (int write = 0; write < 2; write++) {
        order[0] = '\0';
        hold_for(r, 1, write);
        for (int i = 1; i <= 5; i++)
            submit_for(r, 1, write, false, i);
        submit_for(r, 2, write, false, 98);
        submit_for(r, 2, write, false, 99);
        pthread_mutex_unlock(&gate);
        wait_for(r, (write + 1) * 8);
        assert_string_equal(order, "0 1 98 2 99 3 4 5 ");
    }
}

static void of_what_may_wait_a_payer_has_a_quarter(void **state)
{
    struct rig *r = *state;

    db_jobs_close(r->jobs);
    r->cfg.max_waiting = 20;
    rig_start(r);
    hold_for(r, 1, true);
    for (int i = 1; i <= 6; i++)
        submit_for(r, 1, true, false, i); /* with the one that is held five of them fit */
    for (int i = 7; i <= 10; i++)
        submit_for(r, 2, true, false, i);
    wait_for(r, 2);
    assert_int_equal(failed_calls, 2);
    pthread_mutex_unlock(&gate);
    wait_for(r, 11);
    assert_int_equal(failed_calls, 2);
    submit_for(r, 1, true, false, 11); /* there is room again */
    wait_for(r, 12);
    assert_int_equal(failed_calls, 2);
}

static void writes_of_a_key_run_in_order_and_in_groups(void **state)
{
    struct rig *r = *state;

    hold_the_writer(r);
    for (int i = 1; i < 9; i++)
        submit(r, i % 3 == 0 ? "b" : "a", true, i);
    assert_int_equal(done_calls, 0);
    pthread_mutex_unlock(&gate);
    wait_for(r, 9);
    assert_non_null(strstr(written, "a1 a2 a4 a5 a7 a8 "));
    assert_non_null(strstr(written, "b3 b6 "));
    assert_true(biggest_group >= 2);
    assert_true(commits < 9);
}

static void a_group_of_one_is_kept_apart(void **state)
{
    struct rig *r = *state;

    db_jobs_close(r->jobs);
    r->cfg.max_group = 1;
    rig_start(r);
    for (int i = 0; i < 20; i++)
        submit(r, "a", true, i);
    wait_for(r, 20);
    assert_int_equal(commits, 20);
    assert_int_equal(biggest_group, 1);
    assert_true(str_starts(str_of(written), STR("a0 a1 a2 a3 ")));
}

static void one_that_breaks_takes_no_other_with_it(void **state)
{
    struct rig *r = *state;

    hold_the_writer(r);
    for (int i = 1; i < 6; i++) {
        struct job *j = xcalloc(1, sizeof *j);
        *j = (struct job){.job = {.work = &work, .key = STR("a"), .write = true},
                          .n = i,
                          .breaks = i == 3};
        db_jobs_submit(r->jobs, &j->job);
    }
    pthread_mutex_unlock(&gate);
    wait_for(r, 6);
    assert_int_equal(failed_calls, 1);
    assert_non_null(strstr(written, "a1 a2 a4 a5 "));
    assert_null(strstr(written, "a3"));
    assert_true(rollbacks >= 1);
}

static void a_commit_that_fails_is_told_and_heals(void **state)
{
    struct rig *r = *state;
    struct db_jobs_stats stats;

    fail_commit = true;
    submit(r, "a", true, 1);
    wait_for(r, 1);
    assert_int_equal(last.err, BH_UNAVAILABLE);
    assert_string_equal(last.why, "the disk is full");
    db_jobs_stats(r->jobs, &stats);
    assert_false(stats.healthy);
    assert_string_equal(stats.problem, "the disk is full");
    fail_commit = false;
    submit(r, "a", true, 2);
    wait_for(r, 2);
    assert_int_equal(last.err, BH_OK);
    assert_string_equal(written, "a2 ");
    db_jobs_stats(r->jobs, &stats);
    assert_true(stats.healthy);
    assert_int_equal(stats.waiting, 0);
}

static void a_read_that_breaks_says_why(void **state)
{
    struct rig *r = *state;
    struct job *j = xcalloc(1, sizeof *j);

    *j = (struct job){.job = {.work = &work, .key = STR("a")}, .breaks = true};
    db_jobs_submit(r->jobs, &j->job);
    wait_for(r, 1);
    assert_int_equal(last.err, BH_UNAVAILABLE);
    assert_string_equal(last.why, "it broke");
    fail_open = true;
    submit(r, "other", false, 2);
    submit(r, "other", true, 3);
    wait_for(r, 3);
    assert_int_equal(failed_calls, 3);
    assert_string_equal(last.why, "no such place");
}

static void reads_do_not_wait_behind_writes(void **state)
{
    struct rig *r = *state;

    pthread_mutex_lock(&gate);
    struct job *j = xcalloc(1, sizeof *j);
    *j = (struct job){.job = {.work = &work, .key = STR("a"), .write = true}, .blocks = true};
    db_jobs_submit(r->jobs, &j->job);
    submit(r, "a", false, 7);
    wait_for(r, 1); /* while the write is held */
    assert_string_equal(order, "7 ");
    assert_false(last.was_writer);
    pthread_mutex_unlock(&gate);
    wait_for(r, 2);
}

static void a_read_may_ask_the_writer(void **state)
{
    struct rig *r = *state;
    struct job *j = xcalloc(1, sizeof *j);

    *j = (struct job){.job = {.work = &work, .key = STR("a")}, .asks_writer = true};
    db_jobs_submit(r->jobs, &j->job);
    wait_for(r, 1);
    assert_int_equal(last.err, BH_OK);
    assert_true(last.was_writer);
}

static void a_cancelled_job_is_dropped(void **state)
{
    struct rig *r = *state;

    pthread_mutex_lock(&gate);
    struct job *j = xcalloc(1, sizeof *j);
    *j = (struct job){.job = {.work = &work, .key = STR("a"), .write = true}, .blocks = true};
    db_jobs_submit(r->jobs, &j->job);
    struct job *second = submit(r, "a", true, 2);
    db_job_cancel(&second->job);
    assert_true(db_job_must_stop(&second->job));
    pthread_mutex_unlock(&gate);
    wait_for(r, 2);
    assert_int_equal(dropped, 1);
    assert_null(strstr(written, "a2"));
}

static void a_deadline_passes(void **state)
{
    struct db_job job = {0};

    assert_false(db_job_must_stop(&job));
    job.deadline_us = thread_now_us() + 1000000000;
    assert_false(db_job_is_late(&job));
    job.deadline_us = thread_now_us() - 1;
    assert_true(db_job_is_late(&job) && db_job_must_stop(&job));
}

static void too_many_are_refused_later(void **state)
{
    struct rig *r = *state;

    db_jobs_close(r->jobs);
    r->cfg.max_waiting = 2;
    rig_start(r);
    for (int i = 0; i < 5; i++)
        submit(r, "a", false, i);
    assert_int_equal(done_calls, 0);
    wait_for(r, 5);
    assert_int_equal(failed_calls, 3);
    submit(r, "a", false, 9);
    wait_for(r, 6);
    assert_int_equal(last.err, BH_OK);
}

static void closing_runs_the_writes_and_drops_the_rest(void **state)
{
    struct rig *r = *state;

    for (int i = 0; i < 10; i++) {
        submit(r, "a", true, i);
        submit(r, "b", false, i);
    }
    db_jobs_close(r->jobs);
    r->jobs = NULL;
    assert_int_equal(done_calls, 0);
    assert_int_equal(dropped, 20);
    assert_string_equal(written, "a0 a1 a2 a3 a4 a5 a6 a7 a8 a9 ");
    loop_turn(r->loop, 0); /* a call that was posted finds nothing to do */
    assert_int_equal(done_calls, 0);
}

static void few_connections_serve_many_keys(void **state)
{
    struct rig *r = *state;
    static char keys[30][8];

    for (int i = 0; i < 30; i++) {
        snprintf(keys[i], sizeof keys[i], "k%d", i);
        submit(r, keys[i], true, i);
        submit(r, keys[i], false, i);
    }
    wait_for(r, 60);
    assert_int_equal(failed_calls, 0);
    assert_true(opened >= 60);
    assert_true(most_open <= 2 * 3);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

UNIT(store_test_jobs)
{
    const struct CMUnitTest tests[] = {
        T(what_one_payer_piles_up_costs_the_others_a_turn),
        T(of_what_may_wait_a_payer_has_a_quarter),
        T(writes_of_a_key_run_in_order_and_in_groups),
        T(a_group_of_one_is_kept_apart),
        T(one_that_breaks_takes_no_other_with_it),
        T(a_commit_that_fails_is_told_and_heals),
        T(a_read_that_breaks_says_why),
        T(reads_do_not_wait_behind_writes),
        T(a_read_may_ask_the_writer),
        T(a_cancelled_job_is_dropped),
        T(a_deadline_passes),
        T(too_many_are_refused_later),
        T(closing_runs_the_writes_and_drops_the_rest),
        T(few_connections_serve_many_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
