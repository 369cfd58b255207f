/* substrate.h - what brings a payload to an agent: one table of functions per kind, one file each.
 *
 *      courier or call --run()--> job --done(end)--> courier or call
 *
 * Nothing here may block: files are written by a thread, programs are watched, HTTP is the loop's.
 * A job calls back exactly once, later, unless it is cancelled first.
 */
#pragma once
#include <stdint.h>
#include "base/buf.h"
#include "base/str.h"

struct recipient;
struct agent_config;
struct config_section;
struct errand_job;

enum errand_kind {
    ERRAND_DELIVER, /* put it there; poke nobody */
    ERRAND_WAKE,    /* the same and ring, or only ring */
    ERRAND_REQUEST, /* put it there and bring the answer back */
    ERRAND_LOOK,    /* could it be brought there now? */
};

struct errand { /* borrowed for the call */
    enum errand_kind kind;
    struct str body;        /* as a webhook gets it: one JSON object, no line break */
    struct str dispatch_id; /* names the file */
    struct str word;        /* "augment", "template" */
    struct str header;      /* one line about where it comes from, for people; may be absent */
    struct str text;        /* content, prompt or context; absent: only ring */
    struct str session;     /* absent: none */
    int64_t timeout_ms;     /* of a request; 0: the agent's own */
};

enum errand_result {
    ERRAND_DONE,
    ERRAND_AWAY,    /* nobody is there to take it: it waits, that is no attempt */
    ERRAND_FAILED,  /* the same may work later */
    ERRAND_REFUSED, /* trying again is no use */
};

/* The contract's cause_kind. */
enum errand_cause {
    CAUSE_NETWORK,
    CAUSE_TIMEOUT,
    CAUSE_HTTP_STATUS,
    CAUSE_MALFORMED,
    CAUSE_VALIDATION,
};

struct errand_end { /* borrowed for the callback */
    enum errand_result result;
    enum errand_cause cause;
    int http_status;        /* with CAUSE_HTTP_STATUS */
    int64_t retry_after_ms; /* the other side said when to come back; 0: it did not */
    struct str text;        /* why not, a sentence; of a request that is done: the answer */
};
typedef void errand_cb(void *ctx, const struct errand_end *e);

struct errand_job { /* first member of every substrate's own */
    errand_cb *done;
    void *ctx;
    void (*cancel)(struct errand_job *j); /* frees it, now or when its thread is back */
};
static inline void job_cancel(struct errand_job **j)
{
    if (*j != NULL)
        (*j)->cancel(*j);
    *j = NULL;
}

enum { SUBSTRATE_RINGS = 1, SUBSTRATE_ANSWERS = 2 };

struct substrate_ops {
    const char *name;                    /* "file" */
    const struct config_section *config; /* its keys; the struct is agent_settings */
    unsigned can;                        /* SUBSTRATE_RINGS: wake is more than deliver; ... */
    /* True when this agent can be rung; NULL: as @can says. */
    bool (*rings)(const struct agent_config *c);
    /* Where it goes, for lists: a path, a URL, a pane. */
    const char *(*target)(const struct agent_config *c);
    /* NULL: it is not reached from here (relay, none). */
    struct errand_job *(*run)(struct recipient *a, const struct errand *e, errand_cb *done,
                              void *ctx);
    /* Is nobody there to take it?  A phrase that says so; asked at every delivery, so it must be
     * cheap.  NULL here: only trying tells. */
    const char *(*away)(struct recipient *a);
    void (*forget)(struct recipient *a); /* frees agent->state; NULL: it has none */
};
/* run() of its substrate, on the node where the agent is (remote.c). */
struct errand_job *errand_run(struct recipient *a, const struct errand *e, errand_cb *done,
                              void *ctx);
const char *errand_away(struct recipient *a); /* away(), the same way; NULL: nothing is known */

extern const struct substrate_ops *const substrates[];       /* ends with NULL */
const struct substrate_ops *substrate_find(struct str name); /* NULL: unknown */
extern const struct substrate_ops substrate_relay, substrate_webhook, substrate_tmux,
    substrate_file, substrate_pipe, substrate_exec, substrate_none;
