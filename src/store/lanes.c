/* lanes.c - design.  (lanes.h has the contract.)
 *
 * Every lane has one mutex and one condition; threads take a whole stretch of the queue at a time,
 * so what arrives while a transaction is being committed is the next group.  A group may hold jobs
 * of several databases: each database's share is one transaction, or several when the work of one
 * would take much longer than its commit, in order of submission.
 *
 * A lane has a queue for each payer, and those with something in them stand in a ring: O(1) a job.
 *
 * An idle thread that finished last is woken first: its connections, and the processor's caches,
 * still have what a query reads. */
#include "store/lanes.h"
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/hash.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "net/loop.h"
#include "store/threads.h"

#define TAKE_MAX 256 /* jobs taken at once: the first answer is not late because of the last */
#define WHY_BYTES 256
enum { WORK_PER_SYNC = 4, GROUP_MIN = 16, PAYERS = 256 };

struct turn {         /* of one payer */
    struct list link; /* lane->turns, while there is something */
    struct lane_job *first, **end;
};

/* ---- the connections of one thread ---- */
/* By key; beyond a bound the least recently used are closed. */

struct lane_conns {
    const struct lanes_config *cfg; /* borrowed */
    bool writer;
    uint64_t *open;     /* borrowed; atomic: how many all threads have */
    struct map by_key;  /* struct lane_conn, private */
    struct list recent; /* the same, least recently used first */
};

struct lane_conn {
    struct list link;
    char *key;  /* owned */
    void *conn; /* owned */
};

static void lane_conns_init(struct lane_conns *c, const struct lanes_config *cfg, bool writer,
                            uint64_t *open)
{
    *c = (struct lane_conns){.cfg = cfg, .writer = writer, .open = open};
    list_init(&c->recent);
}

static void drop_oldest(struct lane_conns *c)
{
    struct lane_conn *old = list_first(&c->recent, struct lane_conn, link);

    map_del(&c->by_key, str_of(old->key));
    list_remove(&old->link);
    c->cfg->ops->close(old->conn);
    free(old->key);
    free(old);
    __atomic_fetch_sub(c->open, 1, __ATOMIC_RELAXED);
}

/* Opened when it is not there; NULL: @ret_why, 256 bytes. */
static void *lane_conns_get(struct lane_conns *c, struct str key, char *ret_why)
{
    struct lane_conn *found = map_get(&c->by_key, key);

    if (found != NULL) {
        list_move(&found->link, &c->recent);
        return found->conn;
    }
    if (map_count(&c->by_key) >= c->cfg->max_open)
        drop_oldest(c);
    void *conn = c->cfg->ops->open(c->cfg->ctx, key, c->writer, ret_why);
    if (conn == NULL)
        return NULL;
    found = xcalloc(1, sizeof *found);
    *found = (struct lane_conn){.key = str_dup(key), .conn = conn};
    list_append(&c->recent, &found->link);
    map_put(&c->by_key, str_of(found->key), found);
    __atomic_fetch_add(c->open, 1, __ATOMIC_RELAXED);
    return conn;
}

static void lane_conns_close(struct lane_conns *c)
{
    while (!list_is_empty(&c->recent))
        drop_oldest(c);
    map_done(&c->by_key);
}

/* ---- lanes and their threads ---- */

struct lane_thread;
struct lane {
    pthread_mutex_t lock;     /* guards all below */
    struct lane_thread *idle; /* borrowed; idle threads, the last to finish first */
    struct list turns;        /* payers with jobs; the next turn is first */
    struct turn of[PAYERS];
    bool stopping;
    bool writes;
};

struct lane_thread {
    struct lanes *lanes; /* borrowed */
    struct lane *lane;   /* borrowed */
    pthread_t id;
    bool started;
    pthread_cond_t wake;           /* with the lock of its lane, as the two below */
    struct lane_thread *idle_next; /* lane->idle */
    bool is_idle;
    struct lane_conns conns;
    size_t group; /* limit of writes in one transaction: learn_group() */
};

struct lanes {
    struct lanes_config cfg;
    struct loop *loop; /* borrowed */
    struct log log;
    struct lane *lanes;          /* owned; writers first, then the one of the readers */
    struct lane_thread *threads; /* owned */
    size_t n_threads;
    struct handback *handback; /* shared with posted calls */
    size_t waiting;            /* of the loop thread: jobs submitted and not finished */
    size_t waiting_of[PAYERS]; /* the same, by who pays for them */
    uint64_t open;             /* connections, of all threads; atomic */

    pthread_mutex_t lock; /* guards @stats */
    struct lanes_stats stats;
};

void lane_job_cancel(struct lane_job *job)
{
    __atomic_store_n(&job->cancelled, true, __ATOMIC_RELAXED);
}

static bool is_cancelled(const struct lane_job *job)
{
    return __atomic_load_n(&job->cancelled, __ATOMIC_RELAXED);
}

bool lane_job_is_late(const struct lane_job *job)
{
    return job->deadline_us != 0 && thread_now_us() >= job->deadline_us;
}

bool lane_job_must_stop(const struct lane_job *job)
{
    return is_cancelled(job) || lane_job_is_late(job);
}

/* ---- finished jobs, back to the loop ---- */

static void *job_next(void *item)
{
    return ((struct lane_job *)item)->next;
}

static void job_link(void *item, void *next)
{
    ((struct lane_job *)item)->next = next;
}

static void job_finish(void *owner, void *item)
{
    struct lanes *l = owner;
    struct lane_job *job = item;

    l->waiting--;
    l->waiting_of[job->payer]--;
    if (is_cancelled(job))
        job->work->drop(job);
    else
        job->work->done(job);
}

static void job_drop(void *item)
{
    struct lane_job *job = item;

    job->work->drop(job);
}

static const struct handback_ops handback_ops = {job_next, job_link, job_finish, job_drop};

static void hand_back(struct lanes *l, struct lane_job *first)
{
    struct lane_job *last = first;

    while (last->next != NULL)
        last = last->next;
    handback_add(l->handback, first, last, 0);
}

/* ---- running jobs ---- */

static void note(struct lanes *l, bool ok, size_t jobs, const char *why)
{
    pthread_mutex_lock(&l->lock);
    struct lanes_stats *s = &l->stats;
    bool changed = s->healthy != ok;
    s->healthy = ok;
    s->commits += ok;
    s->failed += ok ? 0 : jobs;
    snprintf(s->problem, sizeof s->problem, "%s", ok ? "" : why);
    pthread_mutex_unlock(&l->lock);
    if (changed && ok)
        log_info(&l->log, "writing again");
    else if (changed)
        log_error(&l->log, "cannot write: %s; what is asked for fails until this is mended", why);
}

static void fail_all(struct lane_job *list, enum bh_err err, const char *why)
{
    for (struct lane_job *job = list; job != NULL; job = job->next)
        job->work->fail(job, err, why);
}

/* Adapts the size of a transaction: its work may take WORK_PER_SYNC times as long as the commit.  A
 * larger group would save little, and every caller would wait for the work of all others. */
static void learn_group(struct lane_thread *t, size_t jobs, int64_t work_us, int64_t commit_us)
{
    int64_t each_us = work_us / (int64_t)jobs + 1;
    int64_t group = WORK_PER_SYNC * commit_us / each_us;

    group = (3 * (int64_t)t->group + group) / 4; /* smooth out a single slow commit */
    t->group = group < GROUP_MIN ? GROUP_MIN : group > TAKE_MAX ? TAKE_MAX : (size_t)group;
}

/* Runs all of @list in one transaction.  On an error nothing happened; with BH_UNKNOWN the whole
 * transaction may have happened. */
static enum bh_err run_together(struct lane_thread *t, void *conn, struct lane_job *list,
                                char *ret_why)
{
    const struct lanes_ops *ops = t->lanes->cfg.ops;
    int64_t begun_us = thread_now_us();
    enum lane_end end = LANE_OK;
    size_t n = 0;

    if (!ops->begin(conn, true, ret_why))
        return BH_UNAVAILABLE;
    for (struct lane_job *job = list; job != NULL && end != LANE_IO; job = job->next, n++)
        end = is_cancelled(job) ? LANE_OK : job->work->run(job, conn);
    int64_t worked_us = thread_now_us();
    if (end != LANE_IO && ops->commit(conn, ret_why)) {
        learn_group(t, n, worked_us - begun_us, thread_now_us() - worked_us);
        return BH_OK;
    }
    if (end == LANE_IO)
        snprintf(ret_why, WHY_BYTES, "%s", ops->problem(conn));
    bool unknown = end != LANE_IO && ops->in_doubt != NULL && ops->in_doubt(conn);
    ops->rollback(conn);
    return unknown ? BH_UNKNOWN : BH_UNAVAILABLE;
}

/* Runs a group of writes.  After a failure each job runs alone, so that one bad job does not fail
 * the others. */
static void run_writes(struct lane_thread *t, struct lane_job *list)
{
    struct lanes *l = t->lanes;
    char why[WHY_BYTES] = "";
    void *conn = lane_conns_get(&t->conns, list->key, why);

    if (conn == NULL) {
        fail_all(list, BH_UNAVAILABLE, why);
        note(l, false, 1, why);
        return;
    }
    enum bh_err err = run_together(t, conn, list, why);
    if (err == BH_OK) {
        note(l, true, 0, NULL);
        return;
    }
    if (list->next == NULL || err == BH_UNKNOWN) {
        fail_all(list, err, why);
        note(l, false, 1, why);
        return;
    }
    for (struct lane_job *job = list, *rest; job != NULL; job = rest) {
        rest = job->next;
        job->next = NULL;
        err = run_together(t, conn, job, why);
        if (err != BH_OK)
            fail_all(job, err, why);
        note(l, err == BH_OK, 1, why);
        job->next = rest;
    }
}

/* False: the job needs the writer. */
static bool run_read(struct lane_thread *t, struct lane_job *job)
{
    const struct lanes_ops *ops = t->lanes->cfg.ops;
    char why[WHY_BYTES] = "";
    void *conn = is_cancelled(job) ? NULL : lane_conns_get(&t->conns, job->key, why);

    if (is_cancelled(job))
        return true;
    if (conn == NULL || !ops->begin(conn, false, why)) {
        job->work->fail(job, BH_UNAVAILABLE, why);
        return true;
    }
    enum lane_end end = job->work->run(job, conn);
    if (end == LANE_IO)
        job->work->fail(job, BH_UNAVAILABLE, ops->problem(conn));
    if (end == LANE_IO || !ops->commit(conn, why))
        ops->rollback(conn);
    return end != LANE_ASK_WRITER;
}

/* ---- queues and threads ---- */

/* Wakes the idle thread that finished last, whose caches are warm.  Called with the lock held, when
 * a thread is idle. */
static void wake_one(struct lane *lane)
{
    struct lane_thread *t = lane->idle;

    lane->idle = t->idle_next;
    t->is_idle = false;
    pthread_cond_signal(&t->wake);
}

/* Waits until the thread is woken.  Called with the lock held. */
static void be_idle(struct lane *lane, struct lane_thread *t)
{
    t->is_idle = true;
    t->idle_next = lane->idle;
    lane->idle = t;
    while (t->is_idle)
        pthread_cond_wait(&t->wake, &lane->lock);
}

static void lane_add(struct lane *lane, struct lane_job *job)
{
    struct turn *t = &lane->of[job->payer];

    job->next = NULL;
    pthread_mutex_lock(&lane->lock);
    if (t->first == NULL)
        list_append(&lane->turns, &t->link);
    *t->end = job;
    t->end = &job->next;
    if (lane->idle != NULL)
        wake_one(lane);
    pthread_mutex_unlock(&lane->lock);
}

static struct lane *lane_of_writer(struct lanes *l, struct str key)
{
    return &l->lanes[l->cfg.writers > 1 ? map_hash(key) % l->cfg.writers : 0];
}

/* Takes the next job of the payer whose turn it is.  Called with the lock held, a job waits. */
static struct lane_job *take_turn(struct lane *lane)
{
    struct turn *t = list_first(&lane->turns, struct turn, link);
    struct lane_job *job = t->first;

    t->first = job->next;
    if (t->first != NULL) {
        list_move(&t->link, &lane->turns);
        return job;
    }
    t->end = &t->first;
    list_remove(&t->link);
    return job;
}

/* Takes up to @max jobs.  Called with the lock held. */
static struct lane_job *cut(struct lane *lane, size_t max)
{
    struct lane_job *first = NULL, **end = &first;

    for (size_t n = 0; n < max && !list_is_empty(&lane->turns); n++) {
        *end = take_turn(lane);
        end = &(*end)->next;
    }
    *end = NULL;
    return first;
}

/* NULL: the lane stops and its queue is empty. */
static struct lane_job *take(struct lane_thread *t)
{
    struct lane *lane = t->lane;

    pthread_mutex_lock(&lane->lock);
    while (list_is_empty(&lane->turns) && !lane->stopping)
        be_idle(lane, t);
    struct lane_job *list =
        lane->stopping && !lane->writes ? NULL : cut(lane, lane->writes ? TAKE_MAX : 1);
    pthread_mutex_unlock(&lane->lock);
    return list;
}

/* Removes up to @max jobs with the key of the first job from *@list. */
static struct lane_job *cut_key(struct lane_job **list, size_t max)
{
    struct lane_job *first = *list, **mine = &first, **rest = list;
    struct str key = first->key;
    size_t n = 0;

    for (struct lane_job *job = first, *next; job != NULL; job = next) {
        next = job->next;
        struct lane_job ***to = n < max && str_eq(job->key, key) ? &mine : &rest;
        n += to == &mine;
        **to = job;
        *to = &job->next;
    }
    *mine = NULL;
    *rest = NULL;
    return first;
}

static void serve(struct lane_thread *t, struct lane_job *list)
{
    if (!t->lane->writes) {
        if (run_read(t, list))
            hand_back(t->lanes, list);
        else
            lane_add(lane_of_writer(t->lanes, list->key), list);
        return;
    }
    while (list != NULL) {
        size_t max = t->lanes->cfg.max_group;
        struct lane_job *mine = cut_key(&list, max < t->group ? max : t->group);
        run_writes(t, mine);
        hand_back(t->lanes, mine);
    }
}

static void *thread_main(void *arg)
{
    struct lane_thread *t = arg;

    for (struct lane_job *list; (list = take(t)) != NULL;)
        serve(t, list);
    lane_conns_close(&t->conns);
    return NULL;
}

static void log_prefix(const struct log *log, struct buf *out)
{
    const struct lanes *l = container_of(log, struct lanes, log);
    buf_printf(out, "store=%s ", l->cfg.name);
}

struct lanes *lanes_new(struct loop *loop, const struct lanes_config *cfg)
{
    struct lanes *l = xcalloc(1, sizeof *l);
    bool ok = true;
    char name[16];

    assert(cfg->writers > 0 && cfg->readers > 0 && cfg->max_open > 0);
    *l = (struct lanes){.cfg = *cfg, .loop = loop, .log.prefix = log_prefix, .stats.healthy = true};
    if (l->cfg.max_group == 0)
        l->cfg.max_group = TAKE_MAX;
    l->n_threads = cfg->writers + cfg->readers;
    l->lanes = xcalloc(cfg->writers + 1, sizeof *l->lanes);
    l->threads = xcalloc(l->n_threads, sizeof *l->threads);
    l->handback = handback_new(loop, &handback_ops, l);
    pthread_mutex_init(&l->lock, NULL);
    for (size_t i = 0; i <= cfg->writers; i++) {
        struct lane *lane = &l->lanes[i];
        lane->writes = i < cfg->writers;
        list_init(&lane->turns);
        for (size_t k = 0; k < PAYERS; k++) {
            list_init(&lane->of[k].link);
            lane->of[k].end = &lane->of[k].first;
        }
        pthread_mutex_init(&lane->lock, NULL);
    }
    for (size_t i = 0; i < l->n_threads; i++) {
        struct lane_thread *t = &l->threads[i];
        *t = (struct lane_thread){.lanes = l,
                                  .group = TAKE_MAX,
                                  .lane = &l->lanes[i < cfg->writers ? i : cfg->writers]};
        pthread_cond_init(&t->wake, NULL);
        lane_conns_init(&t->conns, &l->cfg, t->lane->writes, &l->open);
        snprintf(name, sizeof name, "%.9s-%s", cfg->name, t->lane->writes ? "write" : "read");
        t->started = ok && thread_start(&t->id, thread_main, t, name);
        ok = t->started;
    }
    if (ok)
        return l;
    lanes_close(l);
    return NULL;
}

static void stop(struct lanes *l, bool writers)
{
    for (size_t i = 0; i <= l->cfg.writers; i++) {
        struct lane *lane = &l->lanes[i];
        if (lane->writes != writers)
            continue;
        pthread_mutex_lock(&lane->lock);
        lane->stopping = true;
        while (lane->idle != NULL)
            wake_one(lane);
        pthread_mutex_unlock(&lane->lock);
    }
    for (size_t i = 0; i < l->n_threads; i++)
        if (l->threads[i].started && l->threads[i].lane->writes == writers)
            pthread_join(l->threads[i].id, NULL);
}

void lanes_close(struct lanes *l)
{
    stop(l, false); /* readers first: they may hand jobs to the writers */
    stop(l, true);
    handback_close(l->handback);
    handback_done(l->handback);
    for (size_t i = 0; i <= l->cfg.writers; i++) {
        for (struct lane_job *job = cut(&l->lanes[i], SIZE_MAX), *next; job != NULL; job = next) {
            next = job->next;
            job->work->drop(job);
        }
        pthread_mutex_destroy(&l->lanes[i].lock);
    }
    for (size_t i = 0; i < l->n_threads; i++)
        pthread_cond_destroy(&l->threads[i].wake);
    pthread_mutex_destroy(&l->lock);
    free(l->threads);
    free(l->lanes);
    free(l);
}

uint8_t lane_payer(struct str tenant)
{
    return (uint8_t)(hash64(hash_process_key(), tenant) % (PAYERS - 1) + 1);
}

void lanes_submit(struct lanes *l, struct lane_job *job)
{
    bool room = l->waiting++ < l->cfg.max_waiting;
    size_t of_payer = l->waiting_of[job->payer]++;

    room = room && (job->payer == 0 || of_payer < (l->cfg.max_waiting + 3) / 4);

    pthread_mutex_lock(&l->lock);
    l->stats.jobs++;
    l->stats.failed += !room;
    pthread_mutex_unlock(&l->lock);
    if (room) {
        lane_add(job->write ? lane_of_writer(l, job->key) : &l->lanes[l->cfg.writers], job);
        return;
    }
    job->next = NULL;
    job->work->fail(job, BH_BUSY, "too many requests are waiting; try again later");
    hand_back(l, job);
}

void lanes_stats(struct lanes *l, struct lanes_stats *ret)
{
    pthread_mutex_lock(&l->lock);
    *ret = l->stats;
    pthread_mutex_unlock(&l->lock);
    ret->waiting = l->waiting;
    ret->open = __atomic_load_n(&l->open, __ATOMIC_RELAXED);
}
