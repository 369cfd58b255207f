/* request.h - a request to a store beside the main one (skills, data): arguments that are copied,
 * a job of jobs.h that answers them on a thread, and the answer as JSON.
 *
 *      loop:    db_request_init() -> the arguments -> db_jobs_submit()
 *      thread:  ops->run(): adds to @json, or sets @fault; db_request_grown() after each piece
 *      loop:    ops->done(): tells the caller -> ops->free()
 *
 * A long answer goes to a file (base/spill.h) if the caller takes files; else it is refused.  Wrong
 * arguments set @refusal on the loop; such a request passes its thread and does nothing there, so
 * that every answer comes the same way. */
#pragma once
#include "base/arena.h"
#include "base/spill.h"
#include "core/caller.h"
#include "core/fault.h"
#include "store/jobs.h"

struct db_request;
struct db_request_ops {
    const char *store; /* "the skill store", for sentences */
    /* On a thread: forgets an answer, for the request runs again.  May be NULL. */
    void (*reset)(struct db_request *r);
    enum db_job_end (*run)(struct db_request *r, void *conn);
    void (*too_long)(struct db_request *r); /* sets @fault */
    void (*done)(struct db_request *r);     /* on the loop; not for a cancelled request */
    void (*free)(struct db_request *r);     /* what embeds it; calls db_request_done() */
};

struct db_request { /* embedded as the first member */
    struct db_job job;
    const struct db_request_ops *ops;
    struct arena arena; /* the arguments */
    struct fault refusal;
    struct fault fault; /* the answer, or */
    struct buf json;    /* this, or what was spilled */
    struct spill spill;
    const char *spill_dir; /* borrowed; NULL: the answer stays in memory */
    uint64_t max_file_bytes;
};

struct db_request_bounds {
    size_t max_answer_bytes;
    uint64_t max_file_bytes;
    const char *spill_dir; /* borrowed */
};
/* @r is zeroed.  The caller sets job.key. */
void db_request_init(struct db_request *r, const struct db_request_ops *ops,
                     const struct caller *who, const struct db_request_bounds *bounds);
void db_request_done(struct db_request *r);
/* Call after appending to @json.  False: the answer is too long, stop. */
bool db_request_grown(struct db_request *r);
void db_request_reset(struct db_request *r);
