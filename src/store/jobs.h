/* jobs.h - runs jobs on database connections, for the stores beside the main one (skills, data).
 *
 *      loop:   db_jobs_submit(j, &r->job)  -->  engine.h  -->  thread: work->run(job, conn)
 *                                                                  |   (again, alone, when the
 *      loop:   work->done(job)  <---------------------------------'    group failed)
 *
 * Each database has one writing thread.  That thread runs the writes of a database in order and
 * commits several in one transaction (group commit).  Reads run on other threads, so a read never
 * waits behind a write.  A thread opens a connection when it first needs one, keeps it by its key,
 * and closes the least recently used connections beyond a limit.
 *
 * A job is embedded in the caller's object and belongs to this module from db_jobs_submit() until
 * done() or drop().  Exactly one of the two runs, on the loop: drop() when the job was cancelled or
 * the threads were stopped.  Both free the object.
 *
 * Fairness: a job has a payer (its tenant).  Payers take turns, one job each, and one payer may
 * have a quarter of the waiting jobs.  Jobs of one payer keep their order.
 *
 * This module knows no SQL: struct db_jobs_ops says what a connection is. */
#pragma once
#include "store/store.h"

struct db_job;

enum db_job_end {
    DB_JOB_OK,
    DB_JOB_IO, /* the connection failed: the group is rolled back, then each job runs alone */
    DB_JOB_ASK_WRITER, /* of a read: only a writer can answer this; it runs again, there */
};

struct db_job_work {
    /* On a thread.  May run twice, so it starts from scratch. */
    enum db_job_end (*run)(struct db_job *job, void *conn);
    /* On a thread: the job failed and changed nothing; @why is a sentence.  BH_UNKNOWN: the job's
     * transaction may have committed. */
    void (*fail)(struct db_job *job, enum bh_err err, const char *why);
    void (*done)(struct db_job *job);
    void (*drop)(struct db_job *job);
};

struct db_job {
    struct store_op op; /* private */
    const struct db_job_work *work;
    struct str key;      /* of the connection; borrowed until done() or drop() */
    bool write;          /* in a transaction of the writer */
    uint8_t payer;       /* db_job_payer(); 0: the house */
    int64_t deadline_us; /* db_job_must_stop() from then on; 0: none.  See thread_now_us() */
};

/* What a connection is; all on a thread.  @ret_why: 256 bytes. */
struct db_jobs_ops {
    void *(*open)(void *ctx, struct str key, bool writer, char *ret_why); /* NULL: failed */
    void (*close)(void *conn);
    bool (*begin)(void *conn, bool write, char *ret_why);
    bool (*commit)(void *conn, char *ret_why); /* false: rollback() follows */
    /* After a failed commit, true: its outcome is unknown, so no job of the group runs again.
     * NULL: the outcome is always known. */
    bool (*in_doubt)(void *conn);
    void (*rollback)(void *conn);
    const char *(*problem)(void *conn); /* of the last failure, for people */
};

struct db_jobs_config {
    const char *name; /* of the threads, at most 9 characters */
    const struct db_jobs_ops *ops;
    void *ctx;
    unsigned writers, readers; /* threads; jobs of one key always meet the same writer */
    size_t max_open;           /* connections per thread */
    size_t max_group;          /* writes in one transaction; 0: 256, 1: what cannot be undone */
    size_t max_waiting;        /* jobs, a quarter of them of one payer; more: BH_BUSY */
};

struct db_jobs_stats {
    uint64_t calls, failed; /* jobs; @failed: ended busy or unavailable */
    uint64_t commits, waiting, open;
    bool healthy;      /* the last write reached the disk */
    char problem[160]; /* why not */
};

/* NULL: a thread could not be started. */
struct db_jobs *db_jobs_new(struct loop *loop, const struct db_jobs_config *cfg);
/* Runs the writes that wait, drops everything else, ends the threads.  No done() runs. */
void db_jobs_close(struct db_jobs *l);

/* A keyed hash of the tenant.  Two tenants may share a payer, but cannot choose to. */
uint8_t db_job_payer(struct str tenant);
void db_jobs_submit(struct db_jobs *l, struct db_job *job);
/* drop() runs instead of done().  The job may be running. */
void db_job_cancel(struct db_job *job);
/* For long runs: cancelled, or past its deadline. */
bool db_job_must_stop(const struct db_job *job);
bool db_job_is_late(const struct db_job *job);
void db_jobs_stats(struct db_jobs *l, struct db_jobs_stats *ret);
