/* jobs.c - design.  (jobs.h has the contract.)
 *
 * A thread takes many jobs from its queue at a time, so the jobs that arrive during a
 * commit form the next group.  A group may hold jobs of several databases: each database's
 * share is one transaction, or several when the work of one would take much longer than its
 * commit, in order of submission. */
#include "store/jobs.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/hash.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "store/engine.h"

#define TAKE_MAX 256 /* jobs taken at once: the first answer is not late because of the last */
#define WHY_BYTES 256
enum { WORK_PER_SYNC = 4, GROUP_MIN = 16 };

/* ---- jobs and their threads ---- */

struct db_job_conn {
    struct list link;
    char *key;  /* owned */
    void *conn; /* owned */
};

struct db_job_thread {
    struct db_jobs *jobs; /* borrowed */
    bool writes;
    size_t group;       /* limit of writes in one transaction: learn_group() */
    struct map by_key;  /* struct db_job_conn, private; beyond a bound the least recently used go */
    struct list recent; /* the same, least recently used first */
};

struct db_jobs {
    struct db_jobs_config cfg;
    struct log log;
    struct engine *engine;           /* owned */
    struct db_job_thread *threads;   /* owned; by their number */
    size_t waiting;                  /* of the loop thread: jobs submitted and not finished */
    size_t waiting_of[ENGINE_TURNS]; /* the same, by who pays for them */
    uint64_t open;                   /* connections, of all threads; atomic */
    uint64_t jobs;                   /* of the loop thread: submitted, ever */
    uint64_t failed, commits;        /* atomic */
};

/* ---- the connections of one thread ---- */

static void drop_oldest(struct db_job_thread *t)
{
    struct db_job_conn *old = list_first(&t->recent, struct db_job_conn, link);

    map_del(&t->by_key, str_of(old->key));
    list_remove(&old->link);
    t->jobs->cfg.ops->close(old->conn);
    free(old->key);
    free(old);
    __atomic_fetch_sub(&t->jobs->open, 1, __ATOMIC_RELAXED);
}

/* Opened when it is not there; NULL: @ret_why, 256 bytes. */
static void *conn_of(struct db_job_thread *t, struct str key, char *ret_why)
{
    struct db_job_conn *found = map_get(&t->by_key, key);
    const struct db_jobs_config *cfg = &t->jobs->cfg;

    if (found != NULL) {
        list_move(&found->link, &t->recent);
        return found->conn;
    }
    if (map_count(&t->by_key) >= cfg->max_open)
        drop_oldest(t);
    void *conn = cfg->ops->open(cfg->ctx, key, t->writes, ret_why);
    if (conn == NULL)
        return NULL;
    found = xcalloc(1, sizeof *found);
    *found = (struct db_job_conn){.key = str_dup(key), .conn = conn};
    list_append(&t->recent, &found->link);
    map_put(&t->by_key, str_of(found->key), found);
    __atomic_fetch_add(&t->jobs->open, 1, __ATOMIC_RELAXED);
    return conn;
}

static void thread_ends(void *owner, unsigned thread)
{
    struct db_job_thread *t = &((struct db_jobs *)owner)->threads[thread];

    while (!list_is_empty(&t->recent))
        drop_oldest(t);
    map_done(&t->by_key);
}

/* ---- jobs ---- */

static struct db_job *job_of(struct store_op *op)
{
    return op != NULL ? container_of(op, struct db_job, op) : NULL;
}

void db_job_cancel(struct db_job *job)
{
    op_enter(&job->op, OP_CANCELLED);
}

bool db_job_is_late(const struct db_job *job)
{
    return job->deadline_us != 0 && thread_now_us() >= job->deadline_us;
}

bool db_job_must_stop(const struct db_job *job)
{
    return op_is_cancelled(&job->op) || db_job_is_late(job);
}

static void finish(void *owner, struct store_op *op)
{
    struct db_jobs *l = owner;
    struct db_job *job = job_of(op);

    l->waiting--;
    l->waiting_of[job->payer]--;
    if (op_is_cancelled(op))
        job->work->drop(job);
    else
        job->work->done(job);
}

static void drop(struct store_op *op)
{
    job_of(op)->work->drop(job_of(op));
}

/* ---- running jobs ---- */

static void note(struct db_jobs *l, bool ok, const char *why)
{
    __atomic_fetch_add(ok ? &l->commits : &l->failed, 1, __ATOMIC_RELAXED);
    engine_health(l->engine, ok, why);
}

static void fail_all(struct store_op *list, enum bh_err err, const char *why)
{
    for (struct store_op *op = list; op != NULL; op = op->next)
        job_of(op)->work->fail(job_of(op), err, why);
}

/* Adapts the size of a transaction: its work may take WORK_PER_SYNC times as long as the commit.  A
 * larger group would save little, and every caller would wait for the work of all others. */
static void learn_group(struct db_job_thread *t, size_t jobs, int64_t work_us, int64_t commit_us)
{
    int64_t each_us = work_us / (int64_t)jobs + 1;
    int64_t group = WORK_PER_SYNC * commit_us / each_us;

    group = (3 * (int64_t)t->group + group) / 4; /* smooth out a single slow commit */
    t->group = group < GROUP_MIN ? GROUP_MIN : group > TAKE_MAX ? TAKE_MAX : (size_t)group;
}

/* Runs all of @list in one transaction.  On an error nothing happened; with BH_UNKNOWN the whole
 * transaction may have happened. */
static enum bh_err run_together(struct db_job_thread *t, void *conn, struct store_op *list,
                                char *ret_why)
{
    const struct db_jobs_ops *ops = t->jobs->cfg.ops;
    int64_t begun_us = thread_now_us();
    enum db_job_end end = DB_JOB_OK;
    size_t n = 0;

    if (!ops->begin(conn, true, ret_why))
        return BH_UNAVAILABLE;
    for (struct store_op *op = list; op != NULL && end != DB_JOB_IO; op = op->next, n++)
        end = op_is_cancelled(op) ? DB_JOB_OK : job_of(op)->work->run(job_of(op), conn);
    int64_t worked_us = thread_now_us();
    if (end != DB_JOB_IO && ops->commit(conn, ret_why)) {
        learn_group(t, n, worked_us - begun_us, thread_now_us() - worked_us);
        return BH_OK;
    }
    if (end == DB_JOB_IO)
        snprintf(ret_why, WHY_BYTES, "%s", ops->problem(conn));
    bool unknown = end != DB_JOB_IO && ops->in_doubt != NULL && ops->in_doubt(conn);
    ops->rollback(conn);
    return unknown ? BH_UNKNOWN : BH_UNAVAILABLE;
}

/* Runs a group of writes.  After a failure each job runs alone, so that one bad job does not fail
 * the others. */
static void run_writes(struct db_job_thread *t, struct store_op *list)
{
    struct db_jobs *l = t->jobs;
    char why[WHY_BYTES] = "";
    void *conn = conn_of(t, job_of(list)->key, why);
    enum bh_err err = conn != NULL ? run_together(t, conn, list, why) : BH_UNAVAILABLE;

    if (err == BH_OK || conn == NULL || list->next == NULL || err == BH_UNKNOWN) {
        if (err != BH_OK)
            fail_all(list, err, why);
        note(l, err == BH_OK, why);
        return;
    }
    for (struct store_op *op = list, *rest; op != NULL; op = rest) {
        rest = op->next;
        op->next = NULL;
        err = run_together(t, conn, op, why);
        if (err != BH_OK)
            fail_all(op, err, why);
        note(l, err == BH_OK, why);
        op->next = rest;
    }
}

/* Removes up to @max jobs with the key of the first job from *@list. */
static struct store_op *cut_key(struct store_op **list, size_t max, struct store_op **ret_last,
                                size_t *ret_n)
{
    struct store_op *first = *list, **mine = &first, **rest = list;
    struct str key = job_of(first)->key;

    *ret_n = 0;
    for (struct store_op *op = first, *next; op != NULL; op = next) {
        next = op->next;
        bool is_mine = *ret_n < max && str_eq(job_of(op)->key, key);
        struct store_op ***to = is_mine ? &mine : &rest;
        if (is_mine) {
            *ret_last = op;
            ++*ret_n;
        }
        **to = op;
        *to = &op->next;
    }
    *mine = NULL;
    *rest = NULL;
    return first;
}

static void write_list(void *owner, unsigned thread, struct store_op *list)
{
    struct db_jobs *l = owner;
    struct db_job_thread *t = &l->threads[thread];

    while (list != NULL) {
        size_t n, max = l->cfg.max_group < t->group ? l->cfg.max_group : t->group;
        struct store_op *last = NULL, *mine = cut_key(&list, max, &last, &n);
        run_writes(t, mine);
        engine_done(l->engine, thread, mine, last, n, 0);
    }
}

static unsigned writer_of(const struct db_jobs *l, struct str key)
{
    return l->cfg.writers > 1 ? (unsigned)(map_hash(key) % l->cfg.writers) : 0;
}

/* False: the job needs the writer. */
static bool run_read(struct db_job_thread *t, struct db_job *job)
{
    const struct db_jobs_ops *ops = t->jobs->cfg.ops;
    char why[WHY_BYTES] = "";

    if (op_is_cancelled(&job->op))
        return true;
    void *conn = conn_of(t, job->key, why);
    if (conn == NULL || !ops->begin(conn, false, why)) {
        job->work->fail(job, BH_UNAVAILABLE, why);
        return true;
    }
    enum db_job_end end = job->work->run(job, conn);
    if (end == DB_JOB_IO)
        job->work->fail(job, BH_UNAVAILABLE, ops->problem(conn));
    if (end == DB_JOB_IO || !ops->commit(conn, why))
        ops->rollback(conn);
    return end != DB_JOB_ASK_WRITER;
}

static void read_list(void *owner, unsigned thread, struct store_op *op)
{
    struct db_jobs *l = owner;

    if (run_read(&l->threads[thread], job_of(op)))
        engine_done(l->engine, thread, op, op, 1, 0);
    else
        engine_move(l->engine, op, writer_of(l, job_of(op)->key));
}

static const struct engine_ops engine_ops = {
    .write = write_list, .read = read_list, .finish = finish, .drop = drop, .end = thread_ends};

/* ---- start, end ---- */

static void log_prefix(const struct log *log, struct buf *out)
{
    const struct db_jobs *l = container_of(log, struct db_jobs, log);
    buf_printf(out, "store=%s ", l->cfg.name);
}

struct db_jobs *db_jobs_new(struct loop *loop, const struct db_jobs_config *cfg)
{
    struct db_jobs *l = xcalloc(1, sizeof *l);
    unsigned n = cfg->writers + cfg->readers;
    struct engine_config ec = {.name = cfg->name,
                               .ops = &engine_ops,
                               .owner = l,
                               .log = &l->log,
                               .writers = cfg->writers,
                               .readers = cfg->readers,
                               .take = TAKE_MAX};

    assert(cfg->max_open > 0);
    *l = (struct db_jobs){.cfg = *cfg, .log.prefix = log_prefix};
    if (l->cfg.max_group == 0)
        l->cfg.max_group = TAKE_MAX;
    l->threads = xcalloc(n, sizeof *l->threads);
    for (unsigned i = 0; i < n; i++) {
        struct db_job_thread *t = &l->threads[i];
        *t = (struct db_job_thread){.jobs = l, .writes = i < cfg->writers, .group = TAKE_MAX};
        list_init(&t->recent);
    }
    l->engine = engine_new(loop, &ec);
    if (engine_start(l->engine))
        return l;
    db_jobs_close(l);
    return NULL;
}

void db_jobs_close(struct db_jobs *l)
{
    engine_close(l->engine);
    free(l->threads);
    free(l);
}

uint8_t db_job_payer(struct str tenant)
{
    return (uint8_t)(hash64(hash_process_key(), tenant) % (ENGINE_TURNS - 1) + 1);
}

void db_jobs_submit(struct db_jobs *l, struct db_job *job)
{
    bool room = l->waiting++ < l->cfg.max_waiting;
    size_t of_payer = l->waiting_of[job->payer]++;

    l->jobs++;
    if (room && (job->payer == 0 || of_payer < (l->cfg.max_waiting + 3) / 4)) {
        engine_submit(l->engine, &job->op, job->write ? writer_of(l, job->key) : ENGINE_READ,
                      job->payer, 0);
        return;
    }
    __atomic_fetch_add(&l->failed, 1, __ATOMIC_RELAXED);
    job->work->fail(job, BH_BUSY, "too many requests are waiting; try again later");
    engine_refuse(l->engine, &job->op);
}

void db_jobs_stats(struct db_jobs *l, struct db_jobs_stats *ret)
{
    struct engine_state s;

    engine_look(l->engine, &s);
    *ret = (struct db_jobs_stats){.calls = l->jobs,
                                  .failed = __atomic_load_n(&l->failed, __ATOMIC_RELAXED),
                                  .commits = __atomic_load_n(&l->commits, __ATOMIC_RELAXED),
                                  .waiting = l->waiting,
                                  .open = __atomic_load_n(&l->open, __ATOMIC_RELAXED),
                                  .healthy = s.healthy};
    memcpy(ret->problem, s.problem, sizeof ret->problem);
}
