/* run.h - one request of the skill store in flight.
 *
 * skills.c fills it on the loop, run.c answers it on a thread.  Private to this folder. */
#pragma once
#include "skills/backend.h"
#include "store/request.h"

typedef enum db_job_end skills_run_f(struct skills_request *c, void *conn);

struct skills_request {
    struct db_request req; /* first */
    const struct skill_backend_ops *ops;
    const struct skill_rules *rules; /* borrowed */
    struct ledger *ledger;           /* borrowed; used on the loop thread only */
    skills_run_f *run;
    skills_cb *done;
    void *ctx;

    /* the arguments, all in the arena of @req */
    struct caller who;
    struct skill_where at;
    struct str name, version;
    struct skills_filter filter;
    struct skill_store_ask ask;
    struct regex *pattern; /* of the names, or of the bodies that depend on @name; owned; or NULL */
    bool confirmed;        /* delete: the name was repeated */
    bool dry;              /* erase: count only */
    uint64_t max_bytes;    /* the tenant's limits.skill_bytes; 0: no limit */
    int64_t now;           /* seconds */

    /* the result; reset when the job runs again */
    struct skills_answer answer;
    bool wrote, over; /* @tenant_bytes is valid; refused, the tenant is over @max_bytes */
    uint64_t tenant_bytes;
    struct arena found;
    struct skill_next next;
};

skills_run_f run_load, run_metadata, run_versions, run_query, run_token, run_dependents, run_store,
    run_update_status, run_delete, run_erase;

void skill_bad_status(struct fault *f, struct str word);
