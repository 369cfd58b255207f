/* reader.c - the thread that reads, beside the one that writes.
 *
 * Rows and records wait in queues of their own, which are served in turn: a backlog being replayed
 * and pages asking for their history do not keep each other waiting.  Answers are handed back
 * several at a time, and while many of them have not been taken nothing more is read.  Fetches that
 * wait together and say how much they expect are read together: see sqlite/fetch.c. */
#include "base/mem.h"
#include "store/result.h"
#include "store/worker.h"

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

bool reader_is_wanted(const struct store_worker *w)
{
    return w->read_sleeps && (is_ready(w, &w->rows) || is_ready(w, &w->scans));
}

static struct store_op *pop(struct op_queue *q)
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
    struct store_op *first = pop(q), **end = &first->next;
    size_t bytes = fetch_bytes(first);
    while (bytes > 0 && is_ready(w, q) && fetch_bytes(q->first) > 0 &&
           (bytes += fetch_bytes(q->first)) <= READ_GROUP_BYTES) {
        *end = pop(q);
        end = &(*end)->next;
    }
    w->read_since_us = worker_now_us();
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

static bool claim(struct store_op *op)
{
    uint8_t found = OP_QUEUED;

    return __atomic_compare_exchange_n(&op->state, &found, OP_TAKEN, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
}

static void count(struct store_worker *w, const struct store_op *first)
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
        bool wanted = claim(op);
        if (!wanted)
            op->err = BH_CANCELLED;
        op_queue_push(wanted ? &all : &off, op);
    }
    if (all.first != NULL)
        w->ops->read(w->st, all.first);
    op_queue_move(&all, &off);
    count(w, all.first);
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

void *reader_main(void *arg)
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
