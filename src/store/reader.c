/* reader.c - the thread that reads, beside the one that writes.
 *
 * Rows and records wait in queues of their own, which are served in turn: a backlog being replayed
 * and pages asking for their history do not keep each other waiting.  Answers are handed back
 * several at a time, and while many of them have not been taken nothing more is read. */
#include "base/mem.h"
#include "store/result.h"
#include "store/worker.h"

#define READ_BATCH_BYTES ((size_t)256 << 10)
#define READ_TOTAL_BYTES ((size_t)16 << 20)

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

/* Holding the lock. */
static struct store_op *take_read(struct store_worker *w)
{
    bool rows = is_ready(w, &w->rows), scans = is_ready(w, &w->scans);
    struct op_queue *q = scans && (w->scan_next || !rows) ? &w->scans : &w->rows;
    struct store_op *op = q->first;

    if (!rows && !scans)
        return NULL;
    w->scan_next = q == &w->rows;
    q->first = op->next;
    if (q->first == NULL)
        q->end = &q->first;
    q->n--;
    op->next = NULL;
    w->read_since_us = worker_now_us();
    return op;
}

static struct store_op *wait_for_read(struct store_worker *w)
{
    struct store_op *op;

    pthread_mutex_lock(&w->lock);
    while (!w->stopping && (op = take_read(w)) == NULL) {
        w->read_sleeps = true;
        pthread_cond_wait(&w->read_wake, &w->lock);
        w->read_sleeps = false;
    }
    if (w->stopping)
        op = NULL;
    pthread_mutex_unlock(&w->lock);
    return op;
}

static void run_read(struct store_worker *w, struct store_op *op)
{
    uint8_t found = OP_QUEUED;

    if (__atomic_compare_exchange_n(&op->state, &found, OP_TAKEN, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
        w->ops->read(w->st, op);
    else
        op->err = BH_CANCELLED;
    pthread_mutex_lock(&w->lock);
    w->read_since_us = 0;
    w->stats.ops++;
    w->stats.reads += op->err != BH_CANCELLED;
    w->stats.cancelled += op->err == BH_CANCELLED;
    w->stats.failed_ops += op->err == BH_UNAVAILABLE;
    pthread_mutex_unlock(&w->lock);
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
        run_read(w, op);
        op_queue_push(&done, op);
        bytes += result_bytes(op);
        if (bytes < READ_BATCH_BYTES && has_more(w))
            continue;
        handback_add(w->handback, done.first, op, bytes);
        op_queue_init(&done);
        bytes = 0;
        handback_wait(w->handback, READ_TOTAL_BYTES);
    }
    for (struct store_op *op = done.first; op != NULL; op = op->next)
        result_free(op); /* the store is being closed */
    return NULL;
}
