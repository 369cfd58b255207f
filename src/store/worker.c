/* worker.c - the ops of a main store on the threads of engine.h.  (worker.h has the picture.)
 *
 * Rows and records are read in turn: a backlog being replayed and pages asking for their history do
 * not keep each other waiting.  Answers are handed back several at a time, and while many of them
 * have not been taken nothing more is read.  Fetches that wait together and say how much they
 * expect are read together (sqlite/read.c). */
#include "store/worker.h"
#include <assert.h>
#include <stdlib.h>
#include "base/mem.h"
#include "store/result.h"

#define BATCH_MAX_OPS 4096          /* one transaction; later ops wait for the next one, so that */
#define BATCH_MAX_BYTES (16u << 20) /* the first completion is not late because of the last */
#define GATHER_ROWS 16              /* after a transaction of so many rows the next one waits */
#define GATHER_SLOW_US 1000         /* if that one took so long */
#define GATHER_MAX_US 1000          /* at most this long */
#define READ_BATCH_BYTES ((size_t)256 << 10)

/* ---- submitting ---- */

static struct store_worker *worker_of(struct store *st)
{
    return container_of(st, struct store_worker, base);
}

void worker_submit(struct store *st, struct store_op *op, bool urgent)
{
    struct engine *e = worker_of(st)->engine;

    op->err = BH_OK;
    if (op->kind == STORE_APPEND)
        container_of(op, struct store_append, op)->shrunk = false;
    if (op->kind < STORE_FETCH) {
        engine_submit(e, op, 0, 0, urgent ? ENGINE_URGENT : 0);
        return;
    }
    result_clear(op);
    bool scan = op->kind == STORE_SCAN;
    bool loose = scan ? container_of(op, struct store_scan, op)->loose
                      : container_of(op, struct store_fetch, op)->loose;
    engine_submit(e, op, ENGINE_READ, scan, loose ? 0 : ENGINE_AFTER);
}

bool worker_shrink(struct store *st, struct store_append *a)
{
    assert(a->op.kind == STORE_APPEND);
    a->shrunk = op_enter(&a->op, OP_SHRUNK);
    return a->shrunk;
}

void worker_cancel(struct store *st, struct store_op *read)
{
    assert(read->kind >= STORE_FETCH);
    op_enter(read, OP_CANCELLED);
}

bool worker_take_append(struct store_append *a)
{
    return op_enter(&a->op, OP_TAKEN); /* also when the transaction is tried again */
}

void worker_forget_keys(struct store *st, int64_t before_ms)
{
    struct store_worker *w = worker_of(st);

    pthread_mutex_lock(&w->lock);
    if (before_ms > w->forget_before_ms)
        w->forget_before_ms = before_ms;
    pthread_mutex_unlock(&w->lock);
    engine_nudge(w->engine);
}

/* ---- messages that were acked while they lingered ----
 *
 * All that is left of a shrunk append is its key.  The keys of many are one op. */

struct folded {
    struct store_append append; /* shrunk: it has keys only */
    struct store_extra extra;
    struct store_op *first; /* the ops it stands for */
    struct hash128 keys[];  /* of all but the first */
};

static void on_folded(struct store_op *op, enum bh_err err)
{
    assert(!"unfolded before it is finished");
}

static struct folded *folded_of(const struct store_op *op) /* NULL: it is no such op */
{
    return op->done == on_folded ? container_of(op, struct folded, append.op) : NULL;
}

size_t worker_stands_for(const struct store_op *op)
{
    const struct folded *f = folded_of(op);

    return f != NULL ? 1 + f->extra.n_keys : 1;
}

static bool may_fold(const struct store_op *op)
{
    const struct store_append *a = container_of(op, const struct store_append, op);

    return op->kind == STORE_APPEND && a->shrunk && a->has_key && !a->tied && a->replaces == 0 &&
           a->extra == NULL;
}

static struct store_op *fold(struct store_op *first, size_t n)
{
    struct folded *f = xmalloc(sizeof *f + n * sizeof *f->keys);

    *f = (struct folded){
        .append = {.op = {.done = on_folded, .kind = STORE_APPEND, .state = OP_SHRUNK},
                   .shrunk = true,
                   .has_key = true,
                   .extra = &f->extra},
        .extra = {.keys = f->keys, .n_keys = n - 1},
        .first = first};
    size_t at = 0;
    for (struct store_op *op = first; op != NULL; op = op->next, at++) {
        const struct store_append *a = container_of(op, const struct store_append, op);
        *(at == 0 ? &f->append.key : &f->keys[at - 1]) = a->key;
        if (a->at_ms > f->append.at_ms)
            f->append.at_ms = a->at_ms;
        op->at_us = 0;
    }
    assert(at == n);
    return &f->append.op;
}

static struct store_op *unfold(struct store_op *op)
{
    struct folded *f = folded_of(op);
    struct store_op *first = f != NULL ? f->first : NULL;

    for (struct store_op *it = first; it != NULL; it = it->next)
        it->err = op->err;
    free(f);
    return first;
}

static void drop(struct store_op *op)
{
    if (folded_of(op) != NULL)
        free(folded_of(op));
    else
        result_free(op);
}

/* ---- what messages wait for ---- */

static void note_wait(struct store_waits *w, uint32_t us)
{
    size_t i = 0;

    while (i < STORE_WAIT_BOUNDS && us > store_wait_bounds_us[i])
        i++;
    w->rows[i]++;
    w->total_us += us;
}

void worker_checkpointed(struct store_worker *w, int64_t from_us)
{
    w->checkpoint_from_us = from_us;
    w->checkpoint_to_us = thread_now_us();
}

/* Of the transaction from @start_us to @end_us.  Rows that were written keep its end. */
static void note_waits(struct store_worker *w, struct store_op *first, int64_t start_us,
                       int64_t end_us)
{
    pthread_mutex_lock(&w->lock);
    for (struct store_op *op = first; op != NULL; op = op->next) {
        uint32_t waited = (uint32_t)start_us - op->at_us;
        int64_t since_us = start_us - waited;

        bool written = op->kind == STORE_APPEND && op->err == BH_OK &&
                       __atomic_load_n(&op->state, __ATOMIC_RELAXED) == OP_TAKEN;
        op->at_us = written ? (uint32_t)end_us : 0;
        if (!written)
            continue;
        if (since_us < w->checkpoint_from_us)
            since_us = w->checkpoint_from_us;
        uint32_t held =
            since_us < w->checkpoint_to_us ? (uint32_t)(w->checkpoint_to_us - since_us) : 0;
        note_wait(&w->stats.waits[STORE_WAIT_QUEUE], waited - held);
        note_wait(&w->stats.waits[STORE_WAIT_CHECKPOINT], held);
        note_wait(&w->stats.waits[STORE_WAIT_COMMIT], (uint32_t)(end_us - start_us));
    }
    pthread_mutex_unlock(&w->lock);
}

/* A done() may free its op, submit others or close the store. */
static void op_finish(void *owner, struct store_op *op)
{
    struct store_worker *w = owner;

    /* The rows of one transaction come one after the other: the clock is read for the first. */
    if (op->kind == STORE_APPEND && op->at_us != 0 && op->at_us != w->answer_at_us) {
        w->answer_at_us = op->at_us;
        w->answer_us = (uint32_t)thread_now_us() - op->at_us;
    }
    if (op->kind == STORE_APPEND && op->at_us != 0)
        note_wait(&w->answers, w->answer_us);
    if (op->done != NULL)
        op->done(op, (enum bh_err)op->err);
}

/* ---- the write thread ---- */

/* Cut the longest list that one transaction may carry off the front of *@list. */
static struct store_op *cut_batch(struct store_op **list, struct store_op **ret_last,
                                  uint64_t *ret_n)
{
    struct store_op *first = *list, *op = first;
    size_t bytes = 0;

    for (*ret_n = worker_stands_for(op);; op = op->next, *ret_n += worker_stands_for(op)) {
        if (op->kind == STORE_APPEND)
            bytes += container_of(op, struct store_append, op)->frame.n;
        bool full = *ret_n >= BATCH_MAX_OPS || bytes >= BATCH_MAX_BYTES;
        if (op->next == NULL || (full && !op_is_tied(op->next)))
            break;
    }
    *list = op->next;
    op->next = NULL;
    *ret_last = op;
    return first;
}

/* That it can read proves nothing about writing, so only a transaction makes it well again. */
void worker_count(struct store_worker *w, const struct store_stats *c)
{
    pthread_mutex_lock(&w->lock);
    struct store_stats *s = &w->stats;
    s->ops += c->ops;
    s->failed_ops += c->failed_ops;
    s->commits += c->commits;
    s->shrunk += c->shrunk;
    s->rows_written += c->rows_written;
    s->keys_written += c->keys_written;
    if (c->last_commit_us > 0)
        s->last_commit_us = c->last_commit_us;
    pthread_mutex_unlock(&w->lock);
    if (c->problem[0] != '\0' || c->commits > 0)
        engine_health(w->engine, c->problem[0] == '\0', c->problem);
}

static void write_list(void *owner, unsigned thread, struct store_op *list)
{
    struct store_worker *w = owner;

    while (list != NULL) {
        struct store_stats counts = {0};
        struct store_op *last, *first = cut_batch(&list, &last, &counts.ops);
        int64_t start_us = thread_now_us();

        w->ops->batch(&w->base, first, &counts);
        int64_t end_us = thread_now_us();
        if (counts.commits > 0)
            w->commit_us = counts.last_commit_us = end_us - start_us;
        w->last_rows = counts.rows_written;
        note_waits(w, first, start_us, end_us);
        worker_count(w, &counts);
        engine_done(w->engine, thread, first, last, counts.ops, 0);
    }
}

static int64_t gather_us(void *owner)
{
    const struct store_worker *w = owner;

    if (w->last_rows < GATHER_ROWS || w->commit_us < GATHER_SLOW_US)
        return 0;
    return w->commit_us / 4 < GATHER_MAX_US ? w->commit_us / 4 : GATHER_MAX_US;
}

static void maintain(void *owner, bool quiet)
{
    struct store_worker *w = owner;

    pthread_mutex_lock(&w->lock);
    int64_t before_ms = w->forget_before_ms;
    w->forget_before_ms = 0;
    pthread_mutex_unlock(&w->lock);
    if (before_ms > 0 && !w->ops->forget(&w->base, before_ms))
        worker_forget_keys(&w->base, before_ms); /* the rest after what was submitted meanwhile */
    w->ops->maintain(&w->base, quiet);
}

static int64_t maintain_due_us(void *owner)
{
    struct store_worker *w = owner;
    return w->ops->maintain_due_us(&w->base);
}

/* ---- the read thread ---- */

/* How much a fetch will bring, of those that may be read together; 0: alone. */
static size_t fetch_bytes(const struct store_op *op)
{
    return op->kind == STORE_FETCH ? container_of(op, const struct store_fetch, op)->expected_bytes
                                   : 0;
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

void worker_read(struct store_worker *w, bool ok, const char *why)
{
    if (!ok && !w->read_ill)
        log_error(w->log, "cannot read: %s", why);
    else if (ok && w->read_ill)
        log_info(w->log, "reading again");
    w->read_ill = !ok;
}

/* Those of @list that nobody called off, together. */
static void read_list(void *owner, unsigned thread, struct store_op *list)
{
    struct store_worker *w = owner;
    struct store_op *all = NULL, **end = &all, *off = NULL, *last = NULL;
    size_t n = 0, bytes = 0;

    pthread_mutex_lock(&w->lock);
    w->read_since_us = thread_now_us();
    pthread_mutex_unlock(&w->lock);
    for (struct store_op *op = list, *next; op != NULL; op = next) {
        next = op->next;
        if (op_enter(op, OP_TAKEN)) {
            *end = op;
            end = &op->next;
        } else {
            op->err = BH_CANCELLED;
            op->next = off;
            off = op;
        }
    }
    *end = NULL;
    if (all != NULL)
        w->ops->read(&w->base, all);
    *end = off;
    count_reads(w, all);
    for (struct store_op *op = all; op != NULL; last = op, op = op->next, n++)
        bytes += result_bytes(op);
    engine_done(w->engine, thread, all, last, n, bytes);
}

/* ---- start, end ---- */

static const struct engine_ops engine_ops = {.write = write_list,
                                             .read = read_list,
                                             .finish = op_finish,
                                             .drop = drop,
                                             .may_fold = may_fold,
                                             .fold = fold,
                                             .unfold = unfold,
                                             .weight = fetch_bytes,
                                             .gather_us = gather_us,
                                             .maintain = maintain,
                                             .maintain_due_us = maintain_due_us};

bool worker_start(struct store_worker *w, const struct worker_ops *ops, struct loop *loop,
                  const struct log *log)
{
    const struct engine_config cfg = {.name = "bellhop",
                                      .ops = &engine_ops,
                                      .owner = w,
                                      .log = log,
                                      .writers = 1,
                                      .readers = 1,
                                      .linger_us = STORE_LINGER_MS * 1000,
                                      .read_bytes = READ_BATCH_BYTES};

    w->ops = ops;
    w->log = log;
    pthread_mutex_init(&w->lock, NULL);
    w->engine = engine_new(loop, &cfg);
    return engine_start(w->engine);
}

void worker_stop(struct store_worker *w)
{
    engine_close(w->engine);
    pthread_mutex_destroy(&w->lock);
}

void worker_stats(struct store *st, struct store_stats *ret)
{
    struct store_worker *w = worker_of(st);
    struct engine_state s;

    engine_look(w->engine, &s);
    pthread_mutex_lock(&w->lock);
    *ret = w->stats;
    ret->waits[STORE_WAIT_ANSWER] = w->answers;
    ret->read_age_us = w->read_since_us != 0 ? thread_now_us() - w->read_since_us : 0;
    pthread_mutex_unlock(&w->lock);
    ret->queued = s.writes;
    ret->reads_queued = s.reads;
    ret->queue_age_us = s.write_age_us;
    ret->healthy = s.healthy;
    memcpy(ret->problem, s.problem, sizeof ret->problem);
}
