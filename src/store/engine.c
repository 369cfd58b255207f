/* engine.c - design.  (engine.h has the contract and the picture.)
 *
 * A queue has one mutex.  Turns that have ops stand in a ring, so taking one is O(1).
 *
 * The handback is an object of its own with a reference count, because a call posted to the loop
 * cannot be cancelled and may run after its engine is closed. */
#include "store/engine.h"
#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "base/log.h"
#include "base/clock.h"
#include "base/mem.h"
#include "net/loop.h"

#define LINGER_FULL 1024                    /* with this many ops the queue lingers no longer */
#define SLACK_US 500                        /* the loop's timers know milliseconds */
#define READ_TOTAL_BYTES ((size_t)16 << 20) /* of answers that the loop has not taken */

int64_t thread_now_us(void)
{
    return clock_os_us(CLOCK_MONOTONIC);
}

bool thread_start(pthread_t *ret, void *(*main)(void *arg), void *arg, const char *name)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool ok = pthread_create(ret, NULL, main, arg) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (ok)
        pthread_setname_np(*ret, name);
    return ok;
}

bool op_enter(struct store_op *op, enum op_state to)
{
    uint8_t found = OP_QUEUED;

    return __atomic_compare_exchange_n(&op->state, &found, (uint8_t)to, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE) ||
           found == to;
}

bool op_is_cancelled(const struct store_op *op)
{
    return __atomic_load_n(&op->state, __ATOMIC_ACQUIRE) == OP_CANCELLED;
}

/* ---- the way back to the loop ---- */

struct handback {
    struct loop *loop; /* borrowed */
    const struct engine_ops *ops;
    struct engine *engine; /* borrowed until @closed */
    void *owner;           /* borrowed */
    pthread_mutex_t lock;
    pthread_cond_t room;           /* signalled when @bytes went down */
    struct store_op *first, *last; /* done, in order */
    struct store_op *rest;         /* of the loop thread: those that are still to be finished */
    size_t bytes;                  /* answers with ops that are not finished */
    bool posted;                   /* a call is on its way, or running: it holds one reference */
    bool closed;
    unsigned refs;
};

static void unref_locked(struct handback *h)
{
    bool last = --h->refs == 0;

    pthread_mutex_unlock(&h->lock);
    if (!last)
        return;
    pthread_mutex_destroy(&h->lock);
    pthread_cond_destroy(&h->room);
    free(h);
}

static void on_finished(void *ctx)
{
    struct handback *h = ctx;

    pthread_mutex_lock(&h->lock);
    size_t bytes = h->bytes;
    h->rest = h->first;
    h->first = h->last = NULL;
    h->posted = false; /* what is done from now on posts its own call */
    pthread_mutex_unlock(&h->lock);

    while (h->rest != NULL && !h->closed) { /* both are written by this thread only */
        struct store_op *op = h->rest, *next = op->next;
        struct store_op *all = h->ops->unfold != NULL ? h->ops->unfold(op) : NULL;
        if (all != NULL) {
            h->rest = op = all;
            while (op->next != NULL)
                op = op->next;
            op->next = next;
        } else {
            h->rest = next;
            h->ops->finish(h->owner, op);
        }
    }
    pthread_mutex_lock(&h->lock);
    h->bytes -= bytes;
    pthread_cond_signal(&h->room);
    unref_locked(h);
}

static void hand_back(struct handback *h, struct store_op *first, struct store_op *last,
                      size_t bytes)
{
    pthread_mutex_lock(&h->lock);
    last->next = NULL;
    if (h->last != NULL)
        h->last->next = first;
    else
        h->first = first;
    h->last = last;
    h->bytes += bytes;
    bool post = !h->posted;
    h->posted = true;
    h->refs += post;
    pthread_mutex_unlock(&h->lock);
    if (post)
        loop_post(h->loop, on_finished, h);
}

/* Waits until fewer answers are under way. */
static void wait_for_room(struct handback *h)
{
    pthread_mutex_lock(&h->lock);
    while (h->bytes >= READ_TOTAL_BYTES && !h->closed)
        pthread_cond_wait(&h->room, &h->lock);
    pthread_mutex_unlock(&h->lock);
}

static void drop_list(const struct engine_ops *ops, struct store_op *op)
{
    for (struct store_op *next; op != NULL; op = next) {
        next = op->next;
        ops->drop(op);
    }
}

/* ---- queues ---- */

struct turn {
    struct list link; /* queue->ring, while there is something */
    struct store_op *first, **end;
};

struct op_queue {
    /* of the loop thread: what was submitted and not handed over yet */
    struct store_op *in, **in_end;
    size_t n_in;
    bool in_urgent;
    int64_t in_since_us; /* when the first of them was submitted */

    pthread_mutex_t lock; /* guards all below */
    struct list ring;     /* turns with ops; the next one is first */
    struct turn turns[ENGINE_TURNS];
    size_t n;
    uint64_t settled;           /* of the readers' queue: writes done, ever */
    int64_t first_at_us;        /* when the first of them was submitted */
    int64_t taken_at_us;        /* of those being written; 0: none is */
    struct engine_thread *idle; /* borrowed; the last to finish first */
    bool urgent, nudged, stopping;
};

struct engine_thread {
    struct engine *engine;  /* borrowed */
    struct op_queue *queue; /* borrowed */
    unsigned number;        /* writing threads first */
    bool writes;
    pthread_t id;
    bool started;
    pthread_cond_t wake; /* with the lock of the queue, as the two below */
    struct engine_thread *idle_next;
    bool is_idle;
    struct store_op *done, *done_last; /* of a reading thread: not handed back yet */
    size_t done_bytes;
};

struct engine {
    struct engine_config cfg;
    struct loop *loop; /* borrowed */
    struct handback *handback;
    struct op_queue *queues; /* owned; of the writing threads, then that of the reading ones */
    struct engine_thread *threads; /* owned; in the same order */
    size_t n_threads;
    /* of the loop thread */
    uint64_t submitted;  /* writes, ever */
    bool handing_over;   /* at the end of this turn */
    int64_t turn_us;     /* when the first op of this turn was submitted */
    struct timer linger; /* armed: ops linger */

    pthread_mutex_t lock; /* guards the next two */
    bool healthy;
    char problem[160];
};

static struct op_queue *queue_at(struct engine *e, unsigned queue)
{
    return &e->queues[queue < e->cfg.writers ? queue : e->cfg.writers];
}

static bool is_writer(const struct op_queue *q, const struct engine *e)
{
    return q < &e->queues[e->cfg.writers];
}

static void queue_init(struct op_queue *q)
{
    pthread_mutex_init(&q->lock, NULL);
    q->in_end = &q->in;
    list_init(&q->ring);
    for (size_t i = 0; i < ENGINE_TURNS; i++) {
        list_init(&q->turns[i].link);
        q->turns[i].end = &q->turns[i].first;
    }
}

/* All below: holding the lock. */

static void push(struct op_queue *q, struct store_op *op)
{
    struct turn *t = &q->turns[op->turn];

    op->next = NULL;
    if (t->first == NULL)
        list_append(&q->ring, &t->link);
    *t->end = op;
    t->end = &op->next;
    q->n++;
}

/* An op may run when the writes it must see are done; called off it may run at once. */
static bool is_ready(const struct op_queue *q, const struct store_op *op)
{
    return op->ticket <= q->settled || op_is_cancelled(op);
}

static struct store_op *pop(struct op_queue *q, struct turn *t)
{
    struct store_op *op = t->first;

    t->first = op->next;
    op->next = NULL;
    q->n--;
    if (t->first != NULL) {
        list_move(&t->link, &q->ring);
    } else {
        t->end = &t->first;
        list_remove(&t->link);
    }
    return op;
}

/* The next turn whose first op may run; NULL: there is none. */
static struct turn *ready_turn(struct op_queue *q)
{
    list_each (&q->ring, it, next) {
        struct turn *t = list_entry(it, struct turn, link);
        if (is_ready(q, t->first))
            return t;
    }
    return NULL;
}

/* The first @n ops, one of each turn at a time. */
static struct store_op *take(struct op_queue *q, size_t n)
{
    struct store_op *first = NULL, **end = &first;
    struct turn *only = list_first(&q->ring, struct turn, link);

    if (n >= q->n && q->n > 0 && only->link.next == &q->ring) { /* all of one turn, at once */
        first = only->first;
        only->first = NULL;
        only->end = &only->first;
        list_remove(&only->link);
        q->n = 0;
        return first;
    }
    for (; n > 0 && q->n > 0; n--) {
        *end = pop(q, list_first(&q->ring, struct turn, link));
        end = &(*end)->next;
    }
    return first;
}

/* Wakes idle threads for @n new ops, or ops that have become ready: those that finished last. */
static void wake(struct op_queue *q, size_t n)
{
    for (struct engine_thread *t; n > 0 && (t = q->idle) != NULL; n--) {
        q->idle = t->idle_next;
        t->is_idle = false;
        pthread_cond_signal(&t->wake);
    }
}

static struct timespec timespec_of(int64_t us)
{
    return (struct timespec){.tv_sec = us / 1000000, .tv_nsec = (us % 1000000) * 1000};
}

/* Sleeps until the thread is woken, or until @due_us (0: for ever).  False: it was late. */
static bool be_idle(struct engine_thread *t, int64_t due_us)
{
    struct op_queue *q = t->queue;
    struct timespec due = timespec_of(due_us);
    int late = 0;

    t->is_idle = true;
    t->idle_next = q->idle;
    q->idle = t;
    while (t->is_idle && late == 0)
        late = due_us != 0 ? pthread_cond_timedwait(&t->wake, &q->lock, &due)
                           : pthread_cond_wait(&t->wake, &q->lock);
    if (!t->is_idle)
        return true;
    for (struct engine_thread **at = &q->idle; *at != NULL; at = &(*at)->idle_next)
        if (*at == t) {
            *at = t->idle_next;
            break;
        }
    t->is_idle = false;
    return false;
}

/* ---- submitting ---- */

struct op_list {
    struct store_op *first, **end;
    size_t n;
};

static void op_list_add(struct op_list *l, struct store_op *op)
{
    if (l->n++ == 0)
        l->end = &l->first;
    *l->end = op;
    l->end = &op->next;
    op->next = NULL;
}

/* Sorts what was submitted: what goes to the thread, and what is folded.  The rest stays: with
 * @late what came in the second half of the linger.  Ops keep their order. */
static struct op_list sort_in(struct engine *e, struct op_queue *q, bool late, struct op_list *fold)
{
    const struct engine_ops *ops = e->cfg.ops;
    uint32_t before_us = (uint32_t)(thread_now_us() - e->cfg.linger_us / 2);
    struct op_list go = {0}, stay = {0};

    for (struct store_op *op = q->in, *next; op != NULL; op = next) {
        next = op->next;
        if (ops->fold != NULL && is_writer(q, e) && !op_is_tied(next) && ops->may_fold(op))
            op_list_add(fold, op);
        else if (late && (stay.n > 0 || (int32_t)(op->at_us - before_us) > 0))
            op_list_add(&stay, op);
        else
            op_list_add(&go, op);
    }
    q->in = stay.first;
    q->in_end = stay.n > 0 ? stay.end : &q->in;
    q->n_in = stay.n;
    if (stay.n > 0) /* the stamps are of the last seconds */
        q->in_since_us += (int64_t)(stay.first->at_us - (uint32_t)q->in_since_us);
    return go;
}

static void hand_over_to(struct engine *e, struct op_queue *q, bool late)
{
    struct op_list fold = {0};
    int64_t since_us = q->in_since_us;

    if (q->in == NULL && !q->in_urgent)
        return;
    struct op_list go = sort_in(e, q, late, &fold);
    if (fold.n > 0)
        op_list_add(&go, e->cfg.ops->fold(fold.first, fold.n));
    pthread_mutex_lock(&q->lock);
    if (q->n == 0)
        q->first_at_us = since_us;
    for (struct store_op *op = go.first, *next; op != NULL; op = next) {
        next = op->next;
        push(q, op);
    }
    q->urgent |= q->in_urgent && q->n > 0;
    wake(q, go.n > 0 && ready_turn(q) != NULL ? go.n : 0);
    pthread_mutex_unlock(&q->lock);
    q->in_urgent = false;
}

/* Hands over everything that this turn submitted, at once: a thread that started with the first op
 * would commit it alone. */
static void hand_over(struct engine *e, bool all)
{
    e->handing_over = false;
    for (unsigned i = 0; i <= e->cfg.writers; i++) {
        struct op_queue *q = &e->queues[i];
        bool lingers = e->cfg.linger_us > 0 && is_writer(q, e) && !q->in_urgent &&
                       q->n_in < LINGER_FULL && q->in != NULL;
        if (!lingers || all)
            hand_over_to(e, q, false);
        else if (!timer_is_set(&e->linger))
            timer_set(loop_clock(e->loop), &e->linger, e->cfg.linger_us / 1000);
    }
}

/* The oldest ops have lingered long enough; ops of an earlier hand-over may have been older. */
static void on_lingered(struct timer *t)
{
    struct engine *e = container_of(t, struct engine, linger);
    int64_t now_us = thread_now_us(), due_us = INT64_MAX;

    for (unsigned i = 0; i < e->cfg.writers; i++) {
        struct op_queue *q = &e->queues[i];
        if (q->in != NULL && now_us - q->in_since_us >= e->cfg.linger_us - SLACK_US)
            hand_over_to(e, q, true);
        if (q->in != NULL && q->in_since_us + e->cfg.linger_us < due_us)
            due_us = q->in_since_us + e->cfg.linger_us;
    }
    if (due_us != INT64_MAX)
        timer_set(loop_clock(e->loop), &e->linger, (due_us - now_us + SLACK_US) / 1000);
}

static void on_turn_end(void *ctx)
{
    struct handback *h = ctx;

    if (!h->closed)
        hand_over(h->engine, false);
    pthread_mutex_lock(&h->lock);
    unref_locked(h);
}

void engine_submit(struct engine *e, struct store_op *op, unsigned queue, uint8_t turn,
                   unsigned how)
{
    struct op_queue *q = queue_at(e, queue);

    op->next = NULL;
    op->turn = turn;
    op->ticket = how & ENGINE_AFTER ? e->submitted : 0;
    __atomic_store_n(&op->state, OP_QUEUED, __ATOMIC_RELAXED); /* published by the lock */
    if (!e->handing_over)
        e->turn_us = thread_now_us();
    op->at_us = (uint32_t)e->turn_us;
    if (q->in == NULL)
        q->in_since_us = e->turn_us;
    *q->in_end = op;
    q->in_end = &op->next;
    q->n_in++;
    q->in_urgent |= (how & ENGINE_URGENT) != 0;
    e->submitted += is_writer(q, e);
    if (op->ticket != 0)
        e->queues[0].in_urgent = true; /* a read that waits for writes does not let them linger */
    if (e->handing_over)
        return;
    e->handing_over = true;
    pthread_mutex_lock(&e->handback->lock);
    e->handback->refs++;
    pthread_mutex_unlock(&e->handback->lock);
    clock_defer(loop_clock(e->loop), on_turn_end, e->handback);
}

void engine_refuse(struct engine *e, struct store_op *op)
{
    hand_back(e->handback, op, op, 0);
}

void engine_move(struct engine *e, struct store_op *op, unsigned queue)
{
    struct op_queue *q = queue_at(e, queue);

    pthread_mutex_lock(&q->lock);
    push(q, op);
    wake(q, 1);
    pthread_mutex_unlock(&q->lock);
}

void engine_nudge(struct engine *e)
{
    struct op_queue *q = &e->queues[0];

    pthread_mutex_lock(&q->lock);
    q->nudged = true;
    wake(q, 1);
    pthread_mutex_unlock(&q->lock);
}

/* ---- the writing threads ---- */

/* Holding the lock, which it lets go.  When many write at once to a slow disk, a transaction that
 * waits a little for those who were just answered does the work of two: they write again. */
static void gather(struct engine_thread *t)
{
    const struct engine_config *cfg = &t->engine->cfg;
    int64_t wait_us = cfg->ops->gather_us != NULL ? cfg->ops->gather_us(cfg->owner) : 0;
    struct timespec wait = timespec_of(wait_us);

    if (wait_us == 0 || t->queue->stopping)
        return;
    pthread_mutex_unlock(&t->queue->lock);
    nanosleep(&wait, NULL);
    pthread_mutex_lock(&t->queue->lock);
}

/* Takes the work there is, perhaps none.  False: stopping, and nothing is left. */
static bool take_writes(struct engine_thread *t, struct store_op **ret_list, bool *ret_quiet)
{
    const struct engine_config *cfg = &t->engine->cfg;
    struct op_queue *q = t->queue;
    int64_t due_us = cfg->ops->maintain_due_us != NULL ? cfg->ops->maintain_due_us(cfg->owner) : 0;

    pthread_mutex_lock(&q->lock);
    q->taken_at_us = 0;
    while (q->n == 0 && !q->nudged && !q->stopping)
        if (!be_idle(t, due_us))
            break;
    if (q->n > 0 && q->urgent)
        gather(t);
    size_t n = q->n;
    if (n > 0)
        q->taken_at_us = q->first_at_us;
    *ret_list = take(q, cfg->take != 0 && n > cfg->take ? cfg->take : n);
    *ret_quiet = n == 0 && !q->nudged;
    bool more = n > 0 || !q->stopping;
    q->urgent = q->nudged = false;
    pthread_mutex_unlock(&q->lock);
    return more;
}

static void *writer_main(void *arg)
{
    struct engine_thread *t = arg;
    const struct engine_config *cfg = &t->engine->cfg;
    struct store_op *list;
    bool quiet;

    while (take_writes(t, &list, &quiet)) {
        if (list != NULL)
            cfg->ops->write(cfg->owner, t->number, list);
        if (cfg->ops->maintain != NULL)
            cfg->ops->maintain(cfg->owner, quiet);
    }
    if (cfg->ops->end != NULL)
        cfg->ops->end(cfg->owner, t->number);
    return NULL;
}

/* ---- the reading threads ---- */

static size_t weight(const struct engine *e, const struct store_op *op)
{
    return e->cfg.ops->weight != NULL ? e->cfg.ops->weight(op) : 0;
}

/* Holding the lock.  One read, or those of its turn that are read together. */
static struct store_op *take_reads(struct engine_thread *t)
{
    struct op_queue *q = t->queue;
    struct turn *turn = ready_turn(q);

    if (turn == NULL)
        return NULL;
    struct store_op *first = pop(q, turn), *last = first;
    size_t bytes = weight(t->engine, first);
    while (bytes > 0 && turn->first != NULL && is_ready(q, turn->first) &&
           weight(t->engine, turn->first) > 0 &&
           (bytes += weight(t->engine, turn->first)) <= ENGINE_READ_BYTES) {
        last->next = pop(q, turn);
        last = last->next;
    }
    return first;
}

/* Waits for reads while none are done; NULL: there are none now, or the engine is being closed. */
static struct store_op *wait_for_reads(struct engine_thread *t)
{
    struct op_queue *q = t->queue;
    struct store_op *list = NULL;

    pthread_mutex_lock(&q->lock);
    while (!q->stopping && (list = take_reads(t)) == NULL && t->done == NULL)
        be_idle(t, 0);
    pthread_mutex_unlock(&q->lock);
    return list;
}

static void *reader_main(void *arg)
{
    struct engine_thread *t = arg;
    const struct engine_config *cfg = &t->engine->cfg;
    struct store_op *list;

    while ((list = wait_for_reads(t)) != NULL || t->done != NULL) {
        if (list != NULL)
            cfg->ops->read(cfg->owner, t->number, list);
        if (t->done == NULL || (list != NULL && t->done_bytes < cfg->read_bytes))
            continue;
        hand_back(t->engine->handback, t->done, t->done_last, t->done_bytes);
        t->done = t->done_last = NULL;
        t->done_bytes = 0;
        wait_for_room(t->engine->handback);
    }
    if (cfg->ops->end != NULL)
        cfg->ops->end(cfg->owner, t->number);
    return NULL;
}

/* ---- for those who run ops ---- */

/* Results of writes are on their way before a read that waited for them can start, so finish() of a
 * write runs before that of a read which saw it. */
void engine_done(struct engine *e, unsigned thread, struct store_op *first, struct store_op *last,
                 size_t n, size_t bytes)
{
    struct op_queue *reads = queue_at(e, ENGINE_READ);
    struct engine_thread *t = &e->threads[thread];

    if (!t->writes) {
        last->next = NULL;
        if (t->done_last != NULL)
            t->done_last->next = first;
        else
            t->done = first;
        t->done_last = last;
        t->done_bytes += bytes;
        return;
    }
    hand_back(e->handback, first, last, bytes);
    pthread_mutex_lock(&reads->lock);
    reads->settled += n;
    if (reads->idle != NULL && ready_turn(reads) != NULL)
        wake(reads, 1);
    pthread_mutex_unlock(&reads->lock);
}

bool engine_has_work(struct engine *e)
{
    struct op_queue *q = &e->queues[0];

    pthread_mutex_lock(&q->lock);
    bool any = q->n > 0 || q->stopping;
    pthread_mutex_unlock(&q->lock);
    return any;
}

void engine_health(struct engine *e, bool ok, const char *why)
{
    pthread_mutex_lock(&e->lock);
    bool changed = e->healthy != ok;
    e->healthy = ok;
    snprintf(e->problem, sizeof e->problem, "%s", ok ? "" : why);
    pthread_mutex_unlock(&e->lock);
    if (changed && ok)
        log_info(e->cfg.log, "writing again");
    else if (changed)
        log_error(e->cfg.log, "cannot write: %s; writes fail until this is fixed", why);
}

bool engine_is_healthy(struct engine *e)
{
    pthread_mutex_lock(&e->lock);
    bool healthy = e->healthy;
    pthread_mutex_unlock(&e->lock);
    return healthy;
}

void engine_look(struct engine *e, struct engine_state *ret)
{
    int64_t now = thread_now_us();

    *ret = (struct engine_state){0};
    pthread_mutex_lock(&e->lock);
    ret->healthy = e->healthy;
    memcpy(ret->problem, e->problem, sizeof ret->problem);
    pthread_mutex_unlock(&e->lock);
    for (unsigned i = 0; i <= e->cfg.writers; i++) {
        struct op_queue *q = &e->queues[i];
        pthread_mutex_lock(&q->lock);
        int64_t oldest = q->taken_at_us != 0 ? q->taken_at_us
                         : q->n > 0          ? q->first_at_us
                         : q->in != NULL     ? q->in_since_us
                                             : 0;
        *(is_writer(q, e) ? &ret->writes : &ret->reads) += q->n + q->n_in;
        if (is_writer(q, e) && oldest != 0 && now - oldest > ret->write_age_us)
            ret->write_age_us = now - oldest;
        pthread_mutex_unlock(&q->lock);
    }
}

/* ---- start, end ---- */

struct engine *engine_new(struct loop *loop, const struct engine_config *cfg)
{
    struct engine *e = xcalloc(1, sizeof *e);
    pthread_condattr_t attr;

    assert(cfg->writers > 0 && cfg->readers > 0);
    *e = (struct engine){.cfg = *cfg, .loop = loop, .healthy = true};
    e->n_threads = cfg->writers + cfg->readers;
    timer_init(&e->linger, on_lingered);
    e->queues = xcalloc(cfg->writers + 1, sizeof *e->queues);
    e->threads = xcalloc(e->n_threads, sizeof *e->threads);
    e->handback = xcalloc(1, sizeof *e->handback);
    *e->handback = (struct handback){
        .loop = loop, .ops = cfg->ops, .engine = e, .owner = cfg->owner, .refs = 1};
    pthread_mutex_init(&e->handback->lock, NULL);
    pthread_cond_init(&e->handback->room, NULL);
    pthread_mutex_init(&e->lock, NULL);
    for (unsigned i = 0; i <= cfg->writers; i++)
        queue_init(&e->queues[i]);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    for (unsigned i = 0; i < e->n_threads; i++) {
        e->threads[i] = (struct engine_thread){.engine = e,
                                               .queue = queue_at(e, i),
                                               .number = i,
                                               .writes = i < cfg->writers};
        pthread_cond_init(&e->threads[i].wake, &attr);
    }
    pthread_condattr_destroy(&attr);
    return e;
}

bool engine_start(struct engine *e)
{
    bool ok = true;

    for (unsigned i = 0; ok && i < e->n_threads; i++) {
        struct engine_thread *t = &e->threads[i];
        char name[16];
        snprintf(name, sizeof name, "%.9s-%s", e->cfg.name, t->writes ? "write" : "read");
        ok = t->started = thread_start(&t->id, t->writes ? writer_main : reader_main, t, name);
    }
    return ok;
}

static void stop(struct engine *e, bool writers)
{
    for (unsigned i = 0; i <= e->cfg.writers; i++) {
        struct op_queue *q = &e->queues[i];
        if (is_writer(q, e) != writers)
            continue;
        pthread_mutex_lock(&q->lock);
        q->stopping = q->urgent = true;
        wake(q, SIZE_MAX);
        pthread_mutex_unlock(&q->lock);
    }
    for (size_t i = 0; i < e->n_threads; i++)
        if (e->threads[i].started && e->threads[i].writes == writers)
            pthread_join(e->threads[i].id, NULL);
}

void engine_close(struct engine *e)
{
    struct handback *h = e->handback;

    timer_stop(loop_clock(e->loop), &e->linger);
    hand_over(e, true);
    pthread_mutex_lock(&h->lock);
    h->closed = true;
    pthread_cond_broadcast(&h->room);
    pthread_mutex_unlock(&h->lock);
    stop(e, false); /* readers first: they may hand ops to the writers */
    stop(e, true);
    drop_list(h->ops, h->rest);
    drop_list(h->ops, h->first);
    h->first = h->last = h->rest = NULL;
    pthread_mutex_lock(&h->lock);
    unref_locked(h);
    for (unsigned i = 0; i <= e->cfg.writers; i++) {
        drop_list(e->cfg.ops, take(&e->queues[i], SIZE_MAX));
        pthread_mutex_destroy(&e->queues[i].lock);
    }
    for (size_t i = 0; i < e->n_threads; i++)
        pthread_cond_destroy(&e->threads[i].wake);
    pthread_mutex_destroy(&e->lock);
    free(e->threads);
    free(e->queues);
    free(e);
}
