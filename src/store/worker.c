/* worker.c - submitting, the thread that writes and the one that reads.  (worker.h has the
 * picture.)
 *
 * The read thread serves rows and records in turn, from queues of their own: a backlog being
 * replayed and pages asking for their history do not keep each other waiting.  Answers are handed
 * back several at a time, and while many of them have not been taken nothing more is read.  Fetches
 * that wait together and say how much they expect are read together (sqlite/read.c). */
#include "store/worker.h"
#include <assert.h>
#include <time.h>
#include "base/mem.h"
#include "net/loop.h"
#include "store/result.h"

#define BATCH_MAX_OPS 4096          /* one transaction; later ops wait for the next one, so that */
#define BATCH_MAX_BYTES (16u << 20) /* the first completion is not late because of the last */
#define LINGER_FULL 1024            /* this many waiting ops are company enough */
#define GATHER_ROWS 16      /* so many in the last transaction: the next waits for company */
#define GATHER_SLOW_US 1000 /* if that one took so long */
#define GATHER_MAX_US 1000  /* at most this long */

static void *reader_main(void *worker);
static bool reader_is_wanted(const struct store_worker *w); /* holding the lock: wake it */

/* ---- queues ---- */

static void op_queue_init(struct op_queue *q)
{
    *q = (struct op_queue){.end = &q->first};
}

static void op_queue_push(struct op_queue *q, struct store_op *op)
{
    op->next = NULL;
    *q->end = op;
    q->end = &op->next;
    q->n++;
}

static void op_queue_move(struct op_queue *to, struct op_queue *from)
{
    if (from->first == NULL)
        return;
    *to->end = from->first;
    to->end = from->end;
    to->n += from->n;
    op_queue_init(from);
}

/* ---- the way back ---- */

static void *op_next(void *item)
{
    return ((struct store_op *)item)->next;
}

static void op_link(void *item, void *next)
{
    ((struct store_op *)item)->next = next;
}

/* A done() may free its op, submit others or close the store. */
static void op_finish(void *owner, void *item)
{
    struct store_op *op = item;

    (void)owner;
    if (op->done != NULL)
        op->done(op, (enum bh_err)op->err);
}

static void op_drop(void *item)
{
    result_free(item);
}

static const struct handback_ops handback_ops = {op_next, op_link, op_finish, op_drop};

void worker_init(struct store_worker *w, const struct worker_ops *ops, struct store *st,
                 struct loop *loop, const struct log *log)
{
    pthread_condattr_t attr;

    *w = (struct store_worker){.ops = ops, .st = st, .loop = loop, .log = log};
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wake, &attr);
    pthread_cond_init(&w->read_wake, &attr);
    pthread_condattr_destroy(&attr);
    op_queue_init(&w->in);
    op_queue_init(&w->in_rows);
    op_queue_init(&w->in_scans);
    op_queue_init(&w->writes);
    op_queue_init(&w->rows);
    op_queue_init(&w->scans);
    w->stats.healthy = true;
    w->handback = handback_new(loop, &handback_ops, w);
}

/* ---- submitting ---- */

/* Holding the lock.  True: the caller signals after unlocking. */
static bool needs_wake(struct store_worker *w, bool now)
{
    bool wake = !w->signalled &&
                (w->thread_state == THREAD_IDLE || (w->thread_state == THREAD_LINGERING && now));
    w->signalled |= wake;
    return wake;
}

/* What this turn submitted, all at once: the thread then finds the company it would have missed by
 * starting with the first of them. */
static void hand_over(struct store_worker *w)
{
    pthread_mutex_lock(&w->lock);
    if (w->writes.first == NULL)
        w->first_at_us = thread_now_us();
    op_queue_move(&w->writes, &w->in);
    op_queue_move(&w->rows, &w->in_rows);
    op_queue_move(&w->scans, &w->in_scans);
    w->urgent |= (w->in_urgent && w->writes.first != NULL) || w->writes.n >= LINGER_FULL;
    bool wake = w->writes.first != NULL && needs_wake(w, w->urgent);
    bool wake_reader = reader_is_wanted(w);
    pthread_mutex_unlock(&w->lock);
    if (wake)
        pthread_cond_signal(&w->wake);
    if (wake_reader)
        pthread_cond_signal(&w->read_wake);
    w->in_urgent = false;
}

static void on_turn_end(void *ctx)
{
    struct handback *h = ctx;

    if (handback_owner(h) != NULL)
        hand_over(handback_owner(h));
    handback_unref(h);
}

static bool is_loose(const struct store_op *op)
{
    if (op->kind == STORE_FETCH)
        return container_of(op, const struct store_fetch, op)->loose;
    return container_of(op, const struct store_scan, op)->loose;
}

/* A read that waits for the writes before it does not let them linger. */
static void submit_read(struct store_worker *w, struct store_op *op)
{
    op->ticket = is_loose(op) ? 0 : w->submitted;
    w->in_urgent |= op->ticket != 0;
    op_queue_push(op->kind == STORE_SCAN ? &w->in_scans : &w->in_rows, op);
}

void worker_submit(struct store_worker *w, struct store_op *op, bool urgent)
{
    op->err = BH_OK;
    result_clear(op);
    if (op->kind == STORE_APPEND)
        container_of(op, struct store_append, op)->shrunk = false;
    __atomic_store_n(&op->state, OP_QUEUED, __ATOMIC_RELAXED); /* published by the lock */
    if (w->in.first == NULL && w->in_rows.first == NULL && w->in_scans.first == NULL) {
        handback_ref(w->handback);
        clock_defer(loop_clock(w->loop), on_turn_end, w->handback);
    }
    if (op->kind >= STORE_FETCH) {
        submit_read(w, op);
        return;
    }
    w->submitted++;
    op_queue_push(&w->in, op);
    w->in_urgent |= urgent;
}

bool worker_shrink(struct store_append *a)
{
    uint8_t found = OP_QUEUED;
    assert(a->op.kind == STORE_APPEND);
    a->shrunk = __atomic_compare_exchange_n(&a->op.state, &found, OP_SHRUNK, false,
                                            __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) ||
                found == OP_SHRUNK; /* asked before */
    return a->shrunk;
}

bool worker_take_append(struct store_append *a)
{
    uint8_t found = OP_QUEUED;
    return __atomic_compare_exchange_n(&a->op.state, &found, OP_TAKEN, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE) ||
           found == OP_TAKEN; /* the transaction is tried again */
}

void worker_cancel(struct store_op *read)
{
    uint8_t found = OP_QUEUED;
    assert(read->kind >= STORE_FETCH);
    __atomic_compare_exchange_n(&read->state, &found, OP_CANCELLED, false, __ATOMIC_ACQ_REL,
                                __ATOMIC_ACQUIRE);
}

void worker_forget_keys(struct store_worker *w, int64_t before_ms)
{
    pthread_mutex_lock(&w->lock);
    if (before_ms > w->forget_before_ms)
        w->forget_before_ms = before_ms;
    bool wake = needs_wake(w, false);
    pthread_mutex_unlock(&w->lock);
    if (wake)
        pthread_cond_signal(&w->wake);
}

/* ---- the write thread: waiting ---- */

static struct timespec timespec_of(int64_t us)
{
    return (struct timespec){.tv_sec = us / 1000000, .tv_nsec = (us % 1000000) * 1000};
}

static bool linger_until(struct store_worker *w, int64_t until_us) /* false: work now */
{
    struct timespec until = timespec_of(until_us);
    int late = 0;

    while (!w->urgent && !w->stopping && late == 0) {
        w->signalled = false;
        late = pthread_cond_timedwait(&w->wake, &w->lock, &until);
    }
    return !w->urgent && !w->stopping;
}

/* Holding the lock.  How many of the queue are to be taken: what came in the second half of the
 * time stays, for its acks may still come first. */
static size_t linger(struct store_worker *w)
{
    int64_t half_us = STORE_LINGER_MS * 500, middle_us = w->first_at_us + half_us;

    w->thread_state = THREAD_LINGERING;
    if (!linger_until(w, middle_us))
        return w->writes.n;
    size_t n = w->writes.n;
    if (!linger_until(w, middle_us + half_us))
        return w->writes.n;
    return n;
}

/* Holding the lock.  Until there is work, or the store wants to tend to something. */
static void wait_for_work(struct store_worker *w)
{
    int64_t due_us = w->ops->tend_due_us(w->st);
    struct timespec due = timespec_of(due_us);
    int late = 0;

    while (w->writes.first == NULL && w->forget_before_ms == 0 && !w->stopping && late == 0) {
        w->thread_state = THREAD_IDLE;
        w->signalled = false;
        if (due_us == 0)
            pthread_cond_wait(&w->wake, &w->lock);
        else
            late = pthread_cond_timedwait(&w->wake, &w->lock, &due);
    }
}

/* Holding the lock, which it lets go.  When many write at once to a slow disk, a transaction that
 * waits a quarter of its length for those who were just answered does the work of two: they write
 * again. */
static void gather(struct store_worker *w)
{
    int64_t wait_us = w->commit_us / 4 < GATHER_MAX_US ? w->commit_us / 4 : GATHER_MAX_US;
    struct timespec wait = {.tv_nsec = wait_us * 1000};

    if (w->company < GATHER_ROWS || w->commit_us < GATHER_SLOW_US || w->stopping)
        return;
    pthread_mutex_unlock(&w->lock);
    nanosleep(&wait, NULL);
    pthread_mutex_lock(&w->lock);
}

/* Holding the lock.  The first @n of the queue, and what is tied to the last of them. */
static struct store_op *take_front(struct store_worker *w, size_t n)
{
    struct store_op *first = w->writes.first, *last = first;

    if (n == 0)
        return NULL;
    w->taken_at_us = w->first_at_us;
    for (size_t i = 1; i < n && n < w->writes.n; i++)
        last = last->next;
    for (; n < w->writes.n && op_is_tied(last->next); n++)
        last = last->next;
    if (n == w->writes.n) {
        op_queue_init(&w->writes);
        return first;
    }
    w->writes.first = last->next;
    w->writes.n -= n;
    last->next = NULL;
    w->first_at_us += STORE_LINGER_MS * 500; /* of what stays; nothing of it is older */
    return first;
}

/* Take the work there is, perhaps none.  False: stopping, and nothing is left. */
static bool take_work(struct store_worker *w, struct store_op **ret_first, int64_t *ret_forget_ms)
{
    pthread_mutex_lock(&w->lock);
    wait_for_work(w);
    size_t n = w->writes.first != NULL ? linger(w) : 0;
    w->thread_state = THREAD_BUSY;
    if (n > 0 && w->urgent) {
        gather(w);
        n = w->writes.n;
    }
    *ret_first = take_front(w, n);
    *ret_forget_ms = w->forget_before_ms;
    bool more = n > 0 || !w->stopping;
    w->urgent = false;
    w->forget_before_ms = 0;
    pthread_mutex_unlock(&w->lock);
    return more;
}

bool worker_has_work(struct store_worker *w)
{
    pthread_mutex_lock(&w->lock);
    bool any = w->writes.first != NULL || w->stopping;
    pthread_mutex_unlock(&w->lock);
    return any;
}

/* ---- the write thread: working ---- */

/* Cut the longest list that one transaction may carry off the front of *@list. */
static struct store_op *cut_batch(struct store_op **list, struct store_op **ret_last)
{
    struct store_op *first = *list, *op = first;
    size_t n = 0, bytes = 0;

    for (;; op = op->next) {
        n++;
        if (op->kind == STORE_APPEND)
            bytes += container_of(op, struct store_append, op)->frame.n;
        bool full = n >= BATCH_MAX_OPS || bytes >= BATCH_MAX_BYTES;
        if (op->next == NULL || (full && !op_is_tied(op->next)))
            break;
    }
    *list = op->next;
    op->next = NULL;
    *ret_last = op;
    return first;
}

bool worker_is_healthy(const struct store_worker *w)
{
    return w->stats.healthy; /* written by this thread only */
}

/* That it can read proves nothing about writing, so only a transaction makes it well again. */
void worker_count(struct store_worker *w, const struct store_stats *c)
{
    bool failed = c->problem[0] != '\0';

    pthread_mutex_lock(&w->lock);
    struct store_stats *s = &w->stats;
    bool healthy = !failed && (s->healthy || c->commits > 0), changed = s->healthy != healthy;
    s->healthy = healthy;
    if (failed || healthy)
        memcpy(s->problem, c->problem, sizeof s->problem);
    s->ops += c->ops;
    s->failed_ops += c->failed_ops;
    s->commits += c->commits;
    s->shrunk += c->shrunk;
    s->rows_written += c->rows_written;
    s->keys_written += c->keys_written;
    if (c->last_commit_us > 0)
        s->last_commit_us = c->last_commit_us;
    pthread_mutex_unlock(&w->lock);

    if (changed && healthy)
        log_info(w->log, "writing again");
    else if (changed)
        log_error(w->log, "cannot write: %s; what is submitted fails until this is mended",
                  c->problem);
}

/* The results are on their way before a read that waited for them can start, so a done() of a write
 * runs before that of a read which saw it. */
static void settle(struct store_worker *w, struct store_op *first, struct store_op *last,
                   uint64_t n)
{
    handback_add(w->handback, first, last, 0);
    pthread_mutex_lock(&w->lock);
    w->settled += n;
    bool wake = reader_is_wanted(w);
    pthread_mutex_unlock(&w->lock);
    if (wake)
        pthread_cond_signal(&w->read_wake);
}

static void run_list(struct store_worker *w, struct store_op *list)
{
    while (list != NULL) {
        struct store_op *last, *first = cut_batch(&list, &last);
        struct store_stats counts = {0};
        int64_t start_us = thread_now_us();

        for (const struct store_op *op = first; op != NULL; op = op->next)
            counts.ops++;
        w->ops->batch(w->st, first, &counts);
        if (counts.commits > 0)
            w->commit_us = counts.last_commit_us = thread_now_us() - start_us;
        w->company = counts.rows_written;
        worker_count(w, &counts);
        settle(w, first, last, counts.ops);
    }
    pthread_mutex_lock(&w->lock);
    w->taken_at_us = 0;
    pthread_mutex_unlock(&w->lock);
}

static void forget_some(struct store_worker *w, int64_t before_ms)
{
    if (w->ops->forget(w->st, before_ms))
        return;
    pthread_mutex_lock(&w->lock); /* the rest after what was submitted meanwhile */
    if (before_ms > w->forget_before_ms && !w->stopping)
        w->forget_before_ms = before_ms;
    pthread_mutex_unlock(&w->lock);
}

static void *writer_main(void *arg)
{
    struct store_worker *w = arg;
    struct store_op *list;
    int64_t forget_ms;

    while (take_work(w, &list, &forget_ms)) {
        bool quiet = list == NULL && forget_ms == 0;
        if (list != NULL)
            run_list(w, list);
        if (forget_ms > 0)
            forget_some(w, forget_ms);
        w->ops->tend(w->st, quiet);
    }
    return NULL;
}

/* ---- start, end ---- */

bool worker_start(struct store_worker *w)
{
    w->write_started = thread_start(&w->write_thread, writer_main, w, "bellhop-store");
    w->read_started = thread_start(&w->read_thread, reader_main, w, "bellhop-read");
    return w->write_started && w->read_started;
}

void worker_stop(struct store_worker *w)
{
    hand_over(w);
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    pthread_mutex_unlock(&w->lock);
    pthread_cond_signal(&w->wake);
    pthread_cond_signal(&w->read_wake);
    handback_close(w->handback);
    if (w->write_started)
        pthread_join(w->write_thread, NULL);
    if (w->read_started)
        pthread_join(w->read_thread, NULL);
    handback_done(w->handback);
    pthread_cond_destroy(&w->wake);
    pthread_cond_destroy(&w->read_wake);
    pthread_mutex_destroy(&w->lock);
}

void worker_stats(struct store_worker *w, struct store_stats *ret)
{
    pthread_mutex_lock(&w->lock);
    int64_t now = thread_now_us(), oldest = w->taken_at_us;
    *ret = w->stats;
    ret->queued = w->writes.n + w->in.n;
    ret->reads_queued = w->rows.n + w->scans.n + w->in_rows.n + w->in_scans.n;
    if (oldest == 0 && w->writes.first != NULL)
        oldest = w->first_at_us;
    ret->queue_age_us = oldest != 0 ? now - oldest : 0;
    ret->read_age_us = w->read_since_us != 0 ? now - w->read_since_us : 0;
    pthread_mutex_unlock(&w->lock);
}

/* ---- the read thread ---- */

#define READ_BATCH_BYTES ((size_t)256 << 10)
#define READ_TOTAL_BYTES ((size_t)16 << 20)
#define READ_GROUP_BYTES ((size_t)8 << 20) /* of fetches that are read together */

/* The head of @q may run when the writes it must see are done; called off it may run at once. */
static bool is_ready(const struct store_worker *w, const struct op_queue *q)
{
    return q->first != NULL &&
           (q->first->ticket <= w->settled ||
            __atomic_load_n(&q->first->state, __ATOMIC_ACQUIRE) == OP_CANCELLED);
}

static bool reader_is_wanted(const struct store_worker *w)
{
    return w->read_sleeps && (is_ready(w, &w->rows) || is_ready(w, &w->scans));
}

static struct store_op *op_queue_pop(struct op_queue *q)
{
    struct store_op *op = q->first;

    q->first = op->next;
    if (q->first == NULL)
        q->end = &q->first;
    q->n--;
    op->next = NULL;
    return op;
}

/* How much a fetch will bring, of those that may be read together; 0: alone. */
static size_t fetch_bytes(const struct store_op *op)
{
    return op->kind == STORE_FETCH ? container_of(op, const struct store_fetch, op)->expected_bytes
                                   : 0;
}

/* Holding the lock.  One read, or the fetches that wait together. */
static struct store_op *take_reads(struct store_worker *w)
{
    bool rows = is_ready(w, &w->rows), scans = is_ready(w, &w->scans);
    struct op_queue *q = scans && (w->scan_next || !rows) ? &w->scans : &w->rows;

    if (!rows && !scans)
        return NULL;
    w->scan_next = q == &w->rows;
    struct store_op *first = op_queue_pop(q), **end = &first->next;
    size_t bytes = fetch_bytes(first);
    while (bytes > 0 && is_ready(w, q) && fetch_bytes(q->first) > 0 &&
           (bytes += fetch_bytes(q->first)) <= READ_GROUP_BYTES) {
        *end = op_queue_pop(q);
        end = &(*end)->next;
    }
    w->read_since_us = thread_now_us();
    return first;
}

static struct store_op *wait_for_read(struct store_worker *w)
{
    struct store_op *op;

    pthread_mutex_lock(&w->lock);
    while (!w->stopping && (op = take_reads(w)) == NULL) {
        w->read_sleeps = true;
        pthread_cond_wait(&w->read_wake, &w->lock);
        w->read_sleeps = false;
    }
    if (w->stopping)
        op = NULL;
    pthread_mutex_unlock(&w->lock);
    return op;
}

static bool claim_read(struct store_op *op)
{
    uint8_t found = OP_QUEUED;

    return __atomic_compare_exchange_n(&op->state, &found, OP_TAKEN, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
}

static void count_reads(struct store_worker *w, const struct store_op *first)
{
    pthread_mutex_lock(&w->lock);
    w->read_since_us = 0;
    for (const struct store_op *op = first; op != NULL; op = op->next) {
        w->stats.ops++;
        w->stats.reads += op->err != BH_CANCELLED;
        w->stats.cancelled += op->err == BH_CANCELLED;
        w->stats.failed_ops += op->err == BH_UNAVAILABLE;
    }
    pthread_mutex_unlock(&w->lock);
}

/* Those of @list that nobody called off, together; then all of them are at the end of @done. */
static size_t run_reads(struct store_worker *w, struct store_op *list, struct op_queue *done)
{
    struct op_queue all, off;
    size_t bytes = 0;

    op_queue_init(&all);
    op_queue_init(&off);
    for (struct store_op *op = list, *next; op != NULL; op = next) {
        next = op->next;
        bool wanted = claim_read(op);
        if (!wanted)
            op->err = BH_CANCELLED;
        op_queue_push(wanted ? &all : &off, op);
    }
    if (all.first != NULL)
        w->ops->read(w->st, all.first);
    op_queue_move(&all, &off);
    count_reads(w, all.first);
    for (const struct store_op *op = all.first; op != NULL; op = op->next)
        bytes += result_bytes(op);
    op_queue_move(done, &all);
    return bytes;
}

static bool has_more(struct store_worker *w)
{
    pthread_mutex_lock(&w->lock);
    bool any = is_ready(w, &w->rows) || is_ready(w, &w->scans);
    pthread_mutex_unlock(&w->lock);
    return any;
}

static void *reader_main(void *arg)
{
    struct store_worker *w = arg;
    struct op_queue done;
    size_t bytes = 0;

    op_queue_init(&done);
    for (struct store_op *op; (op = wait_for_read(w)) != NULL;) {
        bytes += run_reads(w, op, &done);
        if (bytes < READ_BATCH_BYTES && has_more(w))
            continue;
        handback_add(w->handback, done.first, container_of(done.end, struct store_op, next), bytes);
        op_queue_init(&done);
        bytes = 0;
        handback_wait(w->handback, READ_TOTAL_BYTES);
    }
    for (struct store_op *op = done.first; op != NULL; op = op->next)
        result_free(op); /* the store is being closed */
    return NULL;
}
