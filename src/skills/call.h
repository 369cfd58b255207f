/* call.h - one call of the skill store in flight.
 *
 * skills.c fills it on the loop, call.c answers it on a thread.  Private to this folder. */
#pragma once
#include "skills/backend.h"

typedef enum lane_end call_run_f(struct skills_call *c, void *conn);

struct skills_call {
    struct lane_job job;
    const struct skill_backend_ops *ops;
    const struct skill_rules *rules; /* borrowed */
    struct ledger *ledger;           /* borrowed; used on the loop thread only */
    call_run_f *run;
    skills_cb *done;
    void *ctx;

    /* the arguments, all in @arena */
    struct arena arena;
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
    struct fault refusal;  /* set: the arguments are wrong, and the backend is not called */

    /* the result; reset when the job runs again */
    struct skills_answer answer;
    bool wrote, over; /* @tenant_bytes is valid; refused, the tenant is over @max_bytes */
    uint64_t tenant_bytes;
    struct buf json;
    struct spill spill;
    const char *spill_dir; /* borrowed; NULL: the answer stays in memory */
    uint64_t max_file_bytes;
    struct arena found;
    struct skill_next next;
};

/* Call after appending to @json.  Moves a long answer to the spill file.  False: it is too long,
 * stop. */
bool call_grown(struct skills_call *c);

call_run_f call_load, call_metadata, call_versions, call_query, call_token, call_dependents,
    call_store, call_update_status, call_delete, call_erase;

void call_bad_status(struct fault *f, struct str word);
