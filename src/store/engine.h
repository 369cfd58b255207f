/* engine.h - group commit: threads that take ops from queues, several at a time, and hand them back
 * to the loop.  Used by worker.c (the main store) and jobs.c (skills, data).
 *
 *      loop: engine_submit --hand-over--> queue --taken together--> thread: ops->write, ops->read
 *      loop: ops->finish(op), one by one  <-----  handback  <-----  thread: engine_done
 *
 *      hand-over: when a turn of the loop ends that submitted an urgent op, or enough ops; else
 *                 when the first op has lingered for linger_us
 *
 * Each writing thread has a queue of its own; the reading threads share one.  In a queue every op
 * has a turn (0 to ENGINE_TURNS - 1).  A thread takes one op of each turn in rotation, so a backlog
 * in one turn delays the others by one op only.  Ops of one turn keep their order.
 *
 * The ops that a turn of the loop submits go to the queues together, when that turn ends or after
 * the linger. A thread is woken only when it sleeps and nobody has woken it yet: under load there
 * is no system call per op.  The thread that finished last is woken first, because its caches are
 * warm.
 *
 * Ops that became small while they lingered are folded into one op, which does the rest of their
 * work.  A hand-over after a linger keeps the other ops of the last linger_us / 2 on the loop,
 * because they may still become small.
 *
 * A read that must see the writes before it carries their number and waits until as many are done.
 */
#pragma once
#include <pthread.h>
#include "store/store.h"

#define ENGINE_TURNS 256

int64_t thread_now_us(void); /* monotonic */
/* Starts a thread that gets no signals.  @name: at most 15 characters.  False: it failed. */
bool thread_start(pthread_t *ret, void *(*main)(void *arg), void *arg, const char *name);

/* Where an op is.  The loop and the threads race for QUEUED with a compare-and-swap, so an append
 * can be shrunk up to the moment it is executed, and no lock is taken per op.
 *
 *      QUEUED --a thread--> TAKEN
 *        |----shrink()----> SHRUNK     (the key is written, the row is not)
 *        '----cancel()----> CANCELLED  (nobody wants it any more)
 */
enum op_state { OP_QUEUED = 1, OP_TAKEN, OP_SHRUNK, OP_CANCELLED };
/* True: it was QUEUED, or is in @to already. */
bool op_enter(struct store_op *op, enum op_state to);
bool op_is_cancelled(const struct store_op *op);

struct engine_ops { /* what the ops of an engine are; all but the first four may be NULL */
    /* On a writing thread, and on a reading one: does all of @list, and calls engine_done() or
     * engine_move() for each.  @thread is its number, writing threads first. */
    void (*write)(void *owner, unsigned thread, struct store_op *list);
    void (*read)(void *owner, unsigned thread, struct store_op *list);
    void (*finish)(void *owner, struct store_op *op); /* on the loop; may close the engine */
    void (*drop)(struct store_op *op);                /* instead, when the engine was closed */
    /* On the loop, at a hand-over.  True: @op is so small that it may be folded. */
    bool (*may_fold)(const struct store_op *op);
    /* One op that does what is left of the @n ops from @first on, which no thread touches.  In the
     * count of engine_done() it stands for them, and is not counted itself. */
    struct store_op *(*fold)(struct store_op *first, size_t n);
    /* On the loop, when an op is done: the ops it stands for, each with its result, to be finished
     * in its place.  NULL: it was not folded. */
    struct store_op *(*unfold)(struct store_op *op);
    /* Reads of one turn that have a weight are taken together, up to ENGINE_READ_BYTES. */
    size_t (*weight)(const struct store_op *op);
    /* How long a writing thread waits for more ops before it takes urgent ones. */
    int64_t (*gather_us)(void *owner);
    /* On a writing thread after every round of work (@quiet: there was none); and when it wants to
     * be called although nobody submits anything: monotonic us, 0: never. */
    void (*maintain)(void *owner, bool quiet);
    int64_t (*maintain_due_us)(void *owner);
    void (*end)(void *owner, unsigned thread); /* the thread ends */
};
#define ENGINE_READ_BYTES ((size_t)8 << 20)

struct engine_config {
    const char *name; /* of the threads, at most 9 characters */
    const struct engine_ops *ops;
    void *owner;
    const struct log *log; /* borrowed */
    unsigned writers, readers;
    size_t take;       /* ops that a writing thread takes at once; 0: all */
    int64_t linger_us; /* how long ops that are not urgent wait for more; 0: not at all */
    size_t read_bytes; /* answers of reads are handed back so many bytes at a time; 0: at once */
};

struct engine *engine_new(struct loop *loop, const struct engine_config *cfg);
bool engine_start(struct engine *e); /* false: a thread failed to start; engine_close() follows */
/* Does the writes that wait, drops all else, ends the threads.  finish() does not run any more. */
void engine_close(struct engine *e);

/* ---- on the loop thread ---- */

enum engine_how { ENGINE_URGENT = 1, ENGINE_AFTER = 2 /* of a read: after the writes before it */ };
#define ENGINE_READ (~0u) /* the queue of the reading threads; the others have their number */
void engine_submit(struct engine *e, struct store_op *op, unsigned queue, uint8_t turn,
                   unsigned how);
void engine_refuse(struct engine *e, struct store_op *op); /* finish() runs, and nothing else */
void engine_nudge(struct engine *e); /* maintain() runs soon, and not as quiet */

struct engine_state {
    size_t writes, reads; /* waiting */
    int64_t write_age_us; /* of the oldest write that is not done; 0: there is none */
    bool healthy;         /* the last transaction succeeded */
    char problem[160];    /* why not */
};
void engine_look(struct engine *e, struct engine_state *ret);

/* ---- on a thread of the engine ---- */

/* The ops from @first to @last, @n of them, are done; @bytes of answers are with them. */
void engine_done(struct engine *e, unsigned thread, struct store_op *first, struct store_op *last,
                 size_t n, size_t bytes);
/* To the queue of another thread instead. */
void engine_move(struct engine *e, struct store_op *op, unsigned queue);
bool engine_has_work(struct engine *e);
/* How the last transaction ended; logs the first failure, and the first success after one. */
void engine_health(struct engine *e, bool ok, const char *why);
bool engine_is_healthy(struct engine *e);
