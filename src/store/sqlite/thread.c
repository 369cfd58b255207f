/* thread.c - the queue in, the thread, and the way back to the loop.
 *
 *      IDLE --first op--> LINGERING --linger over, urgent op or enough ops--> BUSY
 *       ^                                                                      |
 *       '------------------------------- queue empty --------------------------'
 *
 * The thread takes the whole queue at once and cuts it into batches.  It is woken by a submit only
 * when it sleeps and nobody has woken it yet: under load there is no system call per op, and with
 * nothing to do there is no wake-up at all. */
#include "store/sqlite/impl.h"
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <stdio.h>
#include <time.h>

static int64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* ---- the way back ---- */

static void handback_unref(struct handback *h) /* called with the lock held, which it releases */
{
    bool last = --h->refs == 0;
    pthread_mutex_unlock(&h->lock);
    if (last) {
        pthread_mutex_destroy(&h->lock);
        free(h);
    }
}

/* On the loop thread.  A done() may free its op, submit others or close the store. */
static void on_finished(void *ctx)
{
    struct handback *h = ctx;

    pthread_mutex_lock(&h->lock);
    struct store_op *op = h->first;
    h->first = NULL;
    h->end = &h->first;
    h->posted = false; /* what finishes from now on posts its own call */
    pthread_mutex_unlock(&h->lock);

    while (op != NULL && !h->closed) { /* closed is written by this thread only */
        struct store_op *next = op->next;
        if (op->done != NULL)
            op->done(op, (enum bh_err)op->err);
        op = next;
    }
    pthread_mutex_lock(&h->lock);
    handback_unref(h);
}

static void handback_add(struct store_sqlite *st, struct store_op *first, struct store_op *last)
{
    struct handback *h = st->handback;

    pthread_mutex_lock(&h->lock);
    *h->end = first;
    h->end = &last->next;
    bool post = !h->posted;
    h->posted = true;
    h->refs += post;
    pthread_mutex_unlock(&h->lock);
    if (post)
        loop_post(st->loop, on_finished, h);
}

/* ---- the queue ---- */

void queue_init(struct store_sqlite *st)
{
    pthread_condattr_t attr;

    pthread_mutex_init(&st->db_lock, NULL);
    pthread_mutex_init(&st->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&st->wake, &attr);
    pthread_condattr_destroy(&attr);
    st->end = &st->first;
    st->in_end = &st->in_first;
    st->stats.healthy = true;

    st->handback = xcalloc(1, sizeof *st->handback);
    *st->handback = (struct handback){.refs = 1, .st = st};
    st->handback->end = &st->handback->first;
    pthread_mutex_init(&st->handback->lock, NULL);
}

/* Holding the lock.  True: the caller signals after unlocking. */
static bool needs_wake(struct store_sqlite *st, bool now)
{
    bool wake = !st->signalled &&
                (st->thread_state == THREAD_IDLE || (st->thread_state == THREAD_LINGERING && now));
    st->signalled |= wake;
    return wake;
}

/* What this turn submitted, all at once: the thread then finds the company it would have missed by
 * starting with the first of them. */
static void hand_over(struct store_sqlite *st)
{
    if (st->in_first == NULL)
        return;
    pthread_mutex_lock(&st->lock);
    if (st->first == NULL)
        st->first_at_us = now_us();
    *st->end = st->in_first;
    st->end = st->in_end;
    st->stats.queued += st->in_n;
    st->urgent |= st->in_urgent || st->stats.queued >= LINGER_FULL;
    bool wake = needs_wake(st, st->urgent);
    pthread_mutex_unlock(&st->lock);
    if (wake)
        pthread_cond_signal(&st->wake);
    st->in_first = NULL;
    st->in_end = &st->in_first;
    st->in_n = 0;
    st->in_urgent = false;
}

static void on_turn_end(void *ctx)
{
    struct handback *h = ctx;

    if (h->st != NULL)
        hand_over(h->st);
    pthread_mutex_lock(&h->lock);
    handback_unref(h);
}

void queue_submit(struct store *base, struct store_op *op, bool urgent)
{
    struct store_sqlite *st = sqlite_of(base);

    op->next = NULL;
    op->err = BH_OK;
    result_clear(op);
    if (op->kind == STORE_APPEND)
        container_of(op, struct store_append, op)->shrunk = false;
    __atomic_store_n(&op->state, OP_QUEUED, __ATOMIC_RELAXED); /* published by the lock */
    if (st->in_first == NULL) {
        pthread_mutex_lock(&st->handback->lock);
        st->handback->refs++;
        pthread_mutex_unlock(&st->handback->lock);
        clock_defer(loop_clock(st->loop), on_turn_end, st->handback);
    }
    *st->in_end = op;
    st->in_end = &op->next;
    st->in_n++;
    st->in_urgent |= urgent;
}

bool queue_shrink(struct store *base, struct store_append *a)
{
    uint8_t found = OP_QUEUED;
    assert(a->op.kind == STORE_APPEND);
    a->shrunk = __atomic_compare_exchange_n(&a->op.state, &found, OP_SHRUNK, false,
                                            __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) ||
                found == OP_SHRUNK; /* asked before */
    return a->shrunk;
}

void queue_cancel(struct store *base, struct store_op *read)
{
    uint8_t found = OP_QUEUED;
    __atomic_compare_exchange_n(&read->state, &found, OP_CANCELLED, false, __ATOMIC_ACQ_REL,
                                __ATOMIC_ACQUIRE);
}

void queue_forget_keys(struct store *base, int64_t before_ms)
{
    struct store_sqlite *st = sqlite_of(base);

    pthread_mutex_lock(&st->lock);
    if (before_ms > st->forget_before_ms)
        st->forget_before_ms = before_ms;
    bool wake = needs_wake(st, false);
    pthread_mutex_unlock(&st->lock);
    if (wake)
        pthread_cond_signal(&st->wake);
}

static int64_t file_bytes(const char *path, const char *suffix)
{
    char name[4096];
    struct stat s;
    snprintf(name, sizeof name, "%s%s", path, suffix);
    return stat(name, &s) == 0 ? s.st_size : 0;
}

void queue_stats(struct store *base, struct store_stats *ret)
{
    struct store_sqlite *st = sqlite_of(base);

    pthread_mutex_lock(&st->lock);
    *ret = st->stats;
    pthread_mutex_unlock(&st->lock);
    ret->queued += st->in_n;
    ret->bytes_on_disk = file_bytes(st->path, "") + file_bytes(st->path, "-wal");
}

/* ---- the thread ---- */

static bool linger_until(struct store_sqlite *st, int64_t until_us) /* false: work now */
{
    struct timespec until = {.tv_sec = until_us / 1000000, .tv_nsec = (until_us % 1000000) * 1000};
    int late = 0;

    while (!st->urgent && !st->stopping && late == 0) {
        st->signalled = false;
        late = pthread_cond_timedwait(&st->wake, &st->lock, &until);
    }
    return !st->urgent && !st->stopping;
}

/* Holding the lock.  Where the work to be taken ends: what came in the second half of the time
 * stays, for its acks may still come first. */
static struct store_op **linger(struct store_sqlite *st)
{
    int64_t half_us = STORE_LINGER_MS * 500, middle_us = st->first_at_us + half_us;
    struct store_op **cut;

    st->thread_state = THREAD_LINGERING;
    if (!linger_until(st, middle_us))
        return st->end;
    cut = st->end;
    if (!linger_until(st, middle_us + half_us))
        return st->end;
    st->first_at_us = middle_us; /* of what stays; nothing of it is older */
    return cut;
}

/* Holding the lock.  When the thread has something to do although nobody asked: purge settled rows
 * once it has been quiet, look whether writing works again.  0: nothing. */
static int64_t next_chore_us(const struct store_sqlite *st)
{
    int64_t now = now_us(), due = 0;

    if (st->acked.n > 0)
        due = now + PURGE_QUIET_MS * 1000;
    if (due != 0 && due < st->acked.retry_us)
        due = st->acked.retry_us;
    if (!st->stats.healthy && (due == 0 || due > now + PROBE_MS * 1000))
        due = now + PROBE_MS * 1000;
    return due;
}

/* Holding the lock.  Until there is work, or a chore is due. */
static void wait_for_work(struct store_sqlite *st)
{
    int64_t due_us = next_chore_us(st);
    struct timespec due = {.tv_sec = due_us / 1000000, .tv_nsec = (due_us % 1000000) * 1000};
    int late = 0;

    while (st->first == NULL && st->forget_before_ms == 0 && !st->stopping && late == 0) {
        st->thread_state = THREAD_IDLE;
        st->signalled = false;
        if (due_us == 0)
            pthread_cond_wait(&st->wake, &st->lock);
        else
            late = pthread_cond_timedwait(&st->wake, &st->lock, &due);
    }
}

/* Holding the lock, which it lets go.  When many write at once to a slow disk, a transaction that
 * waits a quarter of its length for those who were just answered does the work of two: they write
 * again. */
static void gather(struct store_sqlite *st)
{
    int64_t wait_us = st->commit_us / 4 < GATHER_MAX_US ? st->commit_us / 4 : GATHER_MAX_US;
    struct timespec wait = {.tv_nsec = wait_us * 1000};

    if (st->company < GATHER_ROWS || st->commit_us < GATHER_SLOW_US || st->stopping)
        return;
    pthread_mutex_unlock(&st->lock);
    nanosleep(&wait, NULL);
    pthread_mutex_lock(&st->lock);
}

/* Take all work there is, perhaps none.  False: stopping, and nothing is left. */
static bool take_work(struct store_sqlite *st, struct store_op **ret_first, int64_t *ret_forget_ms)
{
    pthread_mutex_lock(&st->lock);
    wait_for_work(st);
    struct store_op **cut = st->first != NULL ? linger(st) : st->end;
    st->thread_state = THREAD_BUSY;
    if (st->first != NULL && st->urgent) {
        gather(st);
        cut = st->end;
    }
    *ret_first = st->first;
    *ret_forget_ms = st->forget_before_ms;
    bool more = st->first != NULL || !st->stopping;
    st->first = *cut;
    if (st->first == NULL)
        st->end = &st->first;
    *cut = NULL; /* last: with an empty queue it is st->first */
    st->urgent = false;
    st->forget_before_ms = 0;
    pthread_mutex_unlock(&st->lock);
    return more;
}

/* Cut the longest list that one transaction may carry off the front of *@list. */
static struct store_op *cut_batch(struct store_op **list, struct store_op **ret_last)
{
    struct store_op *first = *list, *op = first;
    size_t n = 0, bytes = 0, reads = 0;

    for (;; op = op->next) {
        n++;
        if (op->kind == STORE_APPEND)
            bytes += container_of(op, struct store_append, op)->frame.n;
        else if (op->kind == STORE_FETCH)
            reads += container_of(op, struct store_fetch, op)->n;
        if (op->next == NULL || n >= BATCH_MAX_OPS || bytes >= BATCH_MAX_BYTES ||
            reads >= BATCH_MAX_READS)
            break;
    }
    *list = op->next;
    op->next = NULL;
    *ret_last = op;
    return first;
}

/* Say it once when the store falls ill and once when it is well again.  That it can read proves
 * nothing about writing. */
static void publish_counts(struct store_sqlite *st, const struct store_stats *c)
{
    bool failed = st->batch_problem[0] != '\0';

    pthread_mutex_lock(&st->lock);
    struct store_stats *s = &st->stats;
    bool healthy = !failed && (s->healthy || c->commits > 0), changed = s->healthy != healthy;
    s->healthy = healthy;
    if (failed || healthy)
        memcpy(s->problem, st->batch_problem, sizeof s->problem);
    s->ops += c->ops;
    s->queued -= c->ops;
    s->failed_ops += c->failed_ops;
    s->commits += c->commits;
    s->reads += c->reads;
    s->cancelled += c->cancelled;
    s->shrunk += c->shrunk;
    s->rows_written += c->rows_written;
    s->keys_written += c->keys_written;
    if (c->last_commit_us > 0)
        s->last_commit_us = c->last_commit_us;
    pthread_mutex_unlock(&st->lock);

    if (changed && healthy)
        log_info(&st->log, "writing again");
    else if (changed)
        log_error(&st->log, "cannot write: %s; what is submitted fails until this is mended",
                  st->batch_problem);
}

static void run_list(struct store_sqlite *st, struct store_op *list)
{
    while (list != NULL) {
        struct store_op *last, *first = cut_batch(&list, &last);
        struct store_stats counts = {0};
        int64_t start_us = now_us();

        pthread_mutex_lock(&st->db_lock);
        batch_run(st, first, &counts);
        pthread_mutex_unlock(&st->db_lock);
        if (counts.commits > 0)
            st->commit_us = counts.last_commit_us = now_us() - start_us;
        st->company = counts.rows_written;
        publish_counts(st, &counts);
        handback_add(st, first, last);
    }
}

static void forget_some(struct store_sqlite *st, int64_t before_ms)
{
    pthread_mutex_lock(&st->db_lock);
    bool all = batch_forget(st, before_ms);
    pthread_mutex_unlock(&st->db_lock);
    if (all)
        return;
    pthread_mutex_lock(&st->lock); /* the rest after what was submitted meanwhile */
    if (before_ms > st->forget_before_ms && !st->stopping)
        st->forget_before_ms = before_ms;
    pthread_mutex_unlock(&st->lock);
}

static bool purge_some(struct store_sqlite *st, size_t max_rows)
{
    pthread_mutex_lock(&st->db_lock);
    bool ok = acked_purge(st, max_rows);
    pthread_mutex_unlock(&st->db_lock);
    st->acked.retry_us = ok ? 0 : now_us() + PURGE_RETRY_MS * 1000;
    return ok;
}

static bool has_work(struct store_sqlite *st)
{
    pthread_mutex_lock(&st->lock);
    bool any = st->first != NULL || st->stopping;
    pthread_mutex_unlock(&st->lock);
    return any;
}

/* Delete settled rows: slice by slice while it is quiet, else as many as have to go now. */
static void tend_acked(struct store_sqlite *st, bool quiet)
{
    struct acked *a = &st->acked;
    int64_t now = now_us();

    if (a->n == 0)
        a->since_us = 0;
    else if (a->since_us == 0)
        a->since_us = now;
    if (a->n == 0 || now < a->retry_us)
        return;
    if (quiet) {
        while (a->n > 0 && !has_work(st) && purge_some(st, PURGE_ROWS))
            ;
    } else if (a->n >= PURGE_BACKLOG || now - a->since_us > PURGE_LATE_MS * 1000) {
        if (a->plan == NULL)
            a->since_us = now; /* those that come from now on wait for the next purge */
        purge_some(st, a->n / 16 > PURGE_ROWS ? a->n / 16 : PURGE_ROWS);
    }
}

/* Nobody may submit a write while we are ill: gateways are told to come back later, and so may be
 * platforms, by whoever asks /readyz. */
static void probe(struct store_sqlite *st)
{
    struct store_stats counts = {0};

    if (st->stats.healthy) /* written by this thread only */
        return;
    pthread_mutex_lock(&st->db_lock);
    counts.commits = batch_probe(st);
    pthread_mutex_unlock(&st->db_lock);
    publish_counts(st, &counts);
}

static void *thread_main(void *arg)
{
    struct store_sqlite *st = arg;
    struct store_op *list;
    int64_t forget_ms;

    while (take_work(st, &list, &forget_ms)) {
        run_list(st, list);
        if (forget_ms > 0)
            forget_some(st, forget_ms);
        bool quiet = list == NULL && forget_ms == 0;
        if (quiet)
            probe(st);
        tend_acked(st, quiet);
    }
    return NULL;
}

bool queue_start(struct store_sqlite *st)
{
    sigset_t all, before;

    sigfillset(&all); /* signals belong to the loop thread */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    st->thread_started = pthread_create(&st->thread, NULL, thread_main, st) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (st->thread_started)
        pthread_setname_np(st->thread, "bellhop-store");
    return st->thread_started;
}

void queue_stop(struct store_sqlite *st)
{
    hand_over(st);
    pthread_mutex_lock(&st->lock);
    st->stopping = true;
    pthread_mutex_unlock(&st->lock);
    pthread_cond_signal(&st->wake);
    if (st->thread_started)
        pthread_join(st->thread, NULL);

    pthread_mutex_lock(&st->handback->lock);
    st->handback->closed = true;
    st->handback->st = NULL;
    handback_unref(st->handback);
    pthread_cond_destroy(&st->wake);
    pthread_mutex_destroy(&st->lock);
    pthread_mutex_destroy(&st->db_lock);
}
