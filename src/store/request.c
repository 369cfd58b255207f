/* request.c - requests on their threads.  (request.h has the contract.) */
#include "store/request.h"
#include <assert.h>
#include "base/mem.h"

static struct db_request *request_of(struct db_job *job)
{
    return container_of(job, struct db_request, job);
}

void db_request_reset(struct db_request *r)
{
    fault_done(&r->fault);
    buf_reset(&r->json);
    spill_done(&r->spill);
    if (r->ops->reset != NULL)
        r->ops->reset(r);
}

bool db_request_grown(struct db_request *r)
{
    if (r->spill_dir == NULL || r->json.n < SPILL_BYTES || buf_failed(&r->json))
        return !buf_failed(&r->json);
    if (spill_add(&r->spill, r->spill_dir, r->max_file_bytes, &r->json))
        return true;
    r->json.failed = true; /* as too long as one that does not fit into memory */
    return false;
}

static enum db_job_end on_thread(struct db_job *job, void *conn)
{
    struct db_request *r = request_of(job);

    db_request_reset(r);
    if (r->refusal.cls != FAULT_NONE) {
        fault_copy(&r->fault, &r->refusal);
        return DB_JOB_OK;
    }
    enum db_job_end end = r->ops->run(r, conn);
    if (end == DB_JOB_OK && !db_request_grown(r)) {
        db_request_reset(r);
        r->ops->too_long(r);
    } else if (end == DB_JOB_OK && r->spill.fd >= 0 && r->json.n > 0 &&
               !spill_add(&r->spill, r->spill_dir, UINT64_MAX, &r->json)) {
        return DB_JOB_IO;
    }
    return end;
}

static void on_failed(struct db_job *job, enum bh_err err, const char *why)
{
    struct db_request *r = request_of(job);
    const char *store = r->ops->store;

    db_request_reset(r);
    if (err == BH_BUSY)
        fault_set(&r->fault, FAULT_BUSY, "%s: %s", store, why);
    else if (err == BH_UNKNOWN)
        fault_set(&r->fault, FAULT_UNAVAILABLE,
                  "%s was lost while it wrote, and this may have happened: look before you do it "
                  "again (%s)",
                  store, why);
    else
        fault_set(&r->fault, FAULT_UNAVAILABLE, "%s cannot do this now: %s", store, why);
}

static void on_dropped(struct db_job *job)
{
    request_of(job)->ops->free(request_of(job));
}

static void on_finished(struct db_job *job)
{
    request_of(job)->ops->done(request_of(job));
    on_dropped(job);
}

void db_request_init(struct db_request *r, const struct db_request_ops *ops,
                     const struct caller *who, const struct db_request_bounds *bounds)
{
    static const struct db_job_work work = {.run = on_thread,
                                            .fail = on_failed,
                                            .done = on_finished,
                                            .drop = on_dropped};

    assert(who->tenant.n > 0);
    r->ops = ops;
    r->job.work = &work;
    r->job.payer = db_job_payer(who->tenant);
    r->json.limit = bounds->max_answer_bytes;
    r->spill = (struct spill)SPILL_INIT;
    r->spill_dir = who->takes_files ? bounds->spill_dir : NULL;
    r->max_file_bytes = bounds->max_file_bytes;
    if (who->ns.n > 0 && !caller_ns_valid(who->ns))
        fault_set(&r->refusal, FAULT_INVALID, "a namespace is 1 to 64 of A-Z a-z 0-9 _ . -");
}

void db_request_done(struct db_request *r)
{
    fault_done(&r->fault);
    fault_done(&r->refusal);
    buf_done(&r->json);
    spill_done(&r->spill);
    arena_done(&r->arena);
}
