/* worker.h - the two threads of a main store: one commits writes in groups, the other reads.  Each
 * implementation of store.h embeds a store_worker as its first member and provides worker_ops.
 *
 *      loop thread               write thread                        read thread
 *      submit ──> queue ────────> batch(): one transaction
 *             '─> read queue ─────────── done ─────────────────────> read(): an op, or fetches
 *      done() <── handback <───── results <─────────────────────────── results
 *
 * The queues and threads are those of engine.h.  The write thread takes the whole queue at once and
 * cuts it into batches. */
#pragma once
#include <pthread.h>
#include "base/log.h"
#include "store/engine.h"

/* What a store does on the threads.  @counts->problem: why the transaction failed. */
struct worker_ops {
    /* One transaction on the write thread: sets every op's err. */
    void (*batch)(struct store *st, struct store_op *first, struct store_stats *counts);
    /* One read on the read thread, or several fetches linked by next: sets every op's err. */
    void (*read)(struct store *st, struct store_op *first);
    /* Drop some of the older deduplication keys; false: there are more. */
    bool (*forget)(struct store *st, int64_t before_ms);
    /* Upkeep, after every round of work; @quiet: the round had no work. */
    void (*maintain)(struct store *st, bool quiet);
    /* When to call maintain() although no op arrives: monotonic us; 0: never. */
    int64_t (*maintain_due_us)(struct store *st);
};

struct store_worker {
    struct store base;
    const struct worker_ops *ops;
    struct engine *engine; /* owned; NULL until worker_start() */
    const struct log *log; /* borrowed */

    /* of the loop thread */
    struct store_waits answers; /* STORE_WAIT_ANSWER */
    uint32_t answer_at_us;      /* of the last transaction that was answered: when it ended, */
    uint32_t answer_us;         /* and how long ago that was */

    /* of the write thread */
    uint64_t last_rows;                           /* rows of the last transaction */
    int64_t commit_us;                            /* how long it took */
    int64_t checkpoint_from_us, checkpoint_to_us; /* the last time that writes waited for one */

    pthread_mutex_t lock;     /* guards all below */
    int64_t forget_before_ms; /* 0: nothing to forget */
    int64_t read_since_us;    /* the read under way; 0: none is */
    bool read_ill;            /* of the read thread: the last read failed */
    struct store_stats stats;
};

/* False: a thread failed to start; worker_stop() follows. */
bool worker_start(struct store_worker *w, const struct worker_ops *ops, struct loop *loop,
                  const struct log *log);
/* Commits queued writes, drops reads and ends the threads.  No done() runs afterwards. */
void worker_stop(struct store_worker *w);

/* ---- for the table of the store's ops ---- */
void worker_submit(struct store *st, struct store_op *op, bool urgent);
bool worker_shrink(struct store *st, struct store_append *a);
void worker_cancel(struct store *st, struct store_op *read);
void worker_forget_keys(struct store *st, int64_t before_ms);
void worker_stats(struct store *st, struct store_stats *ret);

/* ---- for the store, on the write thread ---- */
/* Adds the counts of work outside a batch; logs when writing begins to fail or works again. */
void worker_count(struct store_worker *w, const struct store_stats *counts);
/* On the read thread, how a read ended: logs the first failure, and the first success after one. */
void worker_read(struct store_worker *w, bool ok, const char *why);
/* The write thread wrote the log back since @from_us, and writes may have waited for that. */
void worker_checkpointed(struct store_worker *w, int64_t from_us);
/* Claim an append: false, it was shrunk. */
bool worker_take_append(struct store_append *a);
/* How many submitted ops @op stands for: more than one when it has the keys of shrunk appends. */
size_t worker_stands_for(const struct store_op *op);
