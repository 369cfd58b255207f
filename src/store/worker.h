/* worker.h - the two threads of a store that keeps its data elsewhere: one writes in groups, one
 * reads beside it.  For stores only; a store gives it a struct worker_ops and embeds it.
 *
 *      loop thread               write thread                        read thread
 *      submit ──> queue ──swap──> batch(): one transaction
 *             '─> read queues ────────── settled ──────────────────> read(): an op, or fetches
 *      done() <── handback <───── results <─────────────────────────── results
 *
 *      write thread:  IDLE --first op--> LINGERING --linger over | urgent op | enough ops--> BUSY
 *                       ^------------------------- queue empty ---------------------------'
 *
 * The write thread takes the whole queue at once and cuts it into batches.  It is woken by a submit
 * only when it sleeps and nobody has woken it yet: under load there is no system call per op, and
 * with nothing to do there is no wake-up at all.
 *
 * A read that must see the writes before it carries their number and waits until as many are done.
 */
#pragma once
#include <pthread.h>
#include "base/log.h"
#include "store/store.h"
#include "store/threads.h"

/* Where an op is.  The loop and the write thread race for QUEUED with a compare-and-swap, so an
 * append can be shrunk up to the moment it is executed, and no lock is taken per op.
 *
 *      QUEUED --write thread--> TAKEN
 *        |-----shrink()-------> SHRUNK     (the key is written, the row is not)
 *        '-----cancel()-------> CANCELLED  (a read that nobody wants any more)
 */
enum op_state { OP_QUEUED = 1, OP_TAKEN, OP_SHRUNK, OP_CANCELLED };

/* What a store does on the threads.  @counts->problem: why the transaction failed. */
struct worker_ops {
    /* One transaction on the write thread: sets every op's err. */
    void (*batch)(struct store *st, struct store_op *first, struct store_stats *counts);
    /* One read on the read thread, or several fetches linked by next: sets every op's err. */
    void (*read)(struct store *st, struct store_op *first);
    /* Drop some of the older deduplication keys; false: there are more. */
    bool (*forget)(struct store *st, int64_t before_ms);
    /* After every round of work (@quiet: there was none): what has to be done beside it. */
    void (*tend)(struct store *st, bool quiet);
    /* When tend() wants to be called although nobody submits anything: monotonic us; 0: never. */
    int64_t (*tend_due_us)(struct store *st);
};

enum thread_state { THREAD_BUSY, THREAD_LINGERING, THREAD_IDLE };

struct op_queue {
    struct store_op *first, **end; /* linked through next */
    size_t n;
};

struct store_worker {
    const struct worker_ops *ops;
    struct store *st;          /* borrowed: the store it belongs to */
    struct loop *loop;         /* borrowed */
    const struct log *log;     /* borrowed */
    struct handback *handback; /* shared with posted calls */
    pthread_t write_thread, read_thread;
    bool write_started, read_started;

    /* of the write thread */
    uint64_t company;  /* rows of the last transaction */
    int64_t commit_us; /* how long it took */

    /* of the loop thread: what this turn submitted; it goes to the queues when the turn ends */
    struct op_queue in, in_rows, in_scans;
    bool in_urgent;
    uint64_t submitted; /* writes, ever */

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t wake;  /* of the write thread */
    struct op_queue writes;
    int64_t first_at_us; /* when the first of them was submitted */
    int64_t taken_at_us; /* of those being written; 0: none is */
    enum thread_state thread_state;
    bool signalled; /* a wake is under way: another is pointless */
    bool urgent, stopping;
    int64_t forget_before_ms; /* 0: nothing to forget */

    pthread_cond_t read_wake;
    struct op_queue rows, scans; /* reads; taken in turn, so that neither keeps the other waiting */
    bool scan_next;
    bool read_sleeps;
    uint64_t settled;      /* writes done, ever */
    int64_t read_since_us; /* the read under way; 0: none is */
    struct store_stats stats;
};

void worker_init(struct store_worker *w, const struct worker_ops *ops, struct store *st,
                 struct loop *loop, const struct log *log);
bool worker_start(struct store_worker *w); /* false: no thread to be had; worker_stop() follows */
/* What is queued is written, reads are dropped, no done() runs from here on.  Then tear down. */
void worker_stop(struct store_worker *w);

void worker_submit(struct store_worker *w, struct store_op *op, bool urgent);
bool worker_shrink(struct store_append *a);
void worker_cancel(struct store_op *read);
void worker_forget_keys(struct store_worker *w, int64_t before_ms);
void worker_stats(struct store_worker *w, struct store_stats *ret);

/* ---- for the store, on the write thread ---- */
bool worker_has_work(struct store_worker *w);
bool worker_is_healthy(const struct store_worker *w);
/* Count what was done outside a batch; say it when the store fell ill or is well again. */
void worker_count(struct store_worker *w, const struct store_stats *counts);
/* Claim an append: false, it was shrunk. */
bool worker_take_append(struct store_append *a);
