/* lanes.h - jobs on connections, for stores that live beside the main one (skills, data).
 *
 *      loop:   lanes_submit(l, &c->job)  -->  engine.h  -->  thread: work->run(job, conn)
 *                                                                |   (again, alone, when the
 *      loop:   work->done(job)  <-------------------------------'    group failed)
 *
 * Writes go to the thread their database belongs to, in order, several in one transaction (a group
 * commit); reads go to other threads, so they never wait behind writes.  Connections are opened by
 * key when they are first needed, one per thread, and the least recently used are closed beyond a
 * bound.
 *
 * A job is embedded in the caller's object and belongs to the lanes from lanes_submit() until
 * done() or drop(), one of which runs exactly once, on the loop: drop() when the job was cancelled
 * or the lanes were closed.  Either one frees the object.
 *
 * Those who pay for jobs (tenants) take turns, one job each; of what may wait, one of them may have
 * a quarter.  Jobs of one payer keep their order.
 *
 * Knows nothing of SQL: the ops say what a connection is. */
#pragma once
#include "store/store.h"

struct lane_job;

enum lane_end {
    LANE_OK,
    LANE_IO,         /* the connection failed: the group is rolled back, then each job runs alone */
    LANE_ASK_WRITER, /* of a read: only a writer can answer this; it runs again, there */
};

struct lane_work {
    /* On a thread.  May run a second time: it starts from scratch. */
    enum lane_end (*run)(struct lane_job *job, void *conn);
    /* On a thread: it could not be done, nothing was changed; @why is for people.  With BH_UNKNOWN
     * it may have happened. */
    void (*fail)(struct lane_job *job, enum bh_err err, const char *why);
    void (*done)(struct lane_job *job);
    void (*drop)(struct lane_job *job);
};

struct lane_job {
    struct store_op op; /* private */
    const struct lane_work *work;
    struct str key;      /* of the connection; borrowed until done() or drop() */
    bool write;          /* in a transaction of the writer */
    uint8_t payer;       /* lane_payer(); 0: the house */
    int64_t deadline_us; /* lane_job_must_stop() from then on; 0: none.  See thread_now_us() */
};

/* What a connection is; all on a thread.  @ret_why: 256 bytes. */
struct lanes_ops {
    void *(*open)(void *ctx, struct str key, bool writer, char *ret_why); /* NULL: failed */
    void (*close)(void *conn);
    bool (*begin)(void *conn, bool write, char *ret_why);
    bool (*commit)(void *conn, char *ret_why); /* false: rollback() follows */
    /* After a commit that failed: nobody can say whether it happened.  Then nothing runs again.
     * NULL: one can always say. */
    bool (*in_doubt)(void *conn);
    void (*rollback)(void *conn);
    const char *(*problem)(void *conn); /* of the last failure, for people */
};

struct lanes_config {
    const char *name; /* of the threads, at most 9 characters */
    const struct lanes_ops *ops;
    void *ctx;
    unsigned writers, readers; /* threads; jobs of one key always meet the same writer */
    size_t max_open;           /* connections per thread */
    size_t max_group;          /* writes in one transaction; 0: 256, 1: what cannot be undone */
    size_t max_waiting;        /* jobs, a quarter of them of one payer; more: BH_BUSY */
};

struct lanes_stats {
    uint64_t calls, failed; /* jobs; @failed: ended busy or unavailable */
    uint64_t commits, waiting, open;
    bool healthy;      /* the last write reached the disk */
    char problem[160]; /* why not */
};

/* NULL: a thread could not be started. */
struct lanes *lanes_new(struct loop *loop, const struct lanes_config *cfg);
/* Runs the writes that wait, drops everything else, ends the threads.  No done() runs. */
void lanes_close(struct lanes *l);

/* By a keyed hash: two of them may share one, which is chance and nobody's choice. */
uint8_t lane_payer(struct str tenant);
void lanes_submit(struct lanes *l, struct lane_job *job);
/* done() will not run; drop() will.  It is fine when the job is being run right now. */
void lane_job_cancel(struct lane_job *job);
/* For long runs: cancelled, or past its deadline. */
bool lane_job_must_stop(const struct lane_job *job);
bool lane_job_is_late(const struct lane_job *job);
void lanes_stats(struct lanes *l, struct lanes_stats *ret);
