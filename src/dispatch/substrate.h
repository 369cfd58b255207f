/* substrate.h - the interface of a substrate: how a payload reaches one kind of agent.
 *
 *      courier or call --run()--> job --done(end)--> courier or call
 *
 * Each substrate is a table of functions in a file of its own under substrate/.  A substrate never
 * blocks: threads write files, the spawner runs programs, the loop drives HTTP.  A job calls back
 * exactly once, later, unless it is cancelled first.
 */
#pragma once
#include <stdint.h>
#include "base/err.h"
#include "base/str.h"

struct dispatch;
struct recipient;
struct agent_config;

enum errand_kind {
    ERRAND_DELIVER, /* deliver without waking the agent */
    ERRAND_WAKE,    /* wake the agent, and deliver the text if there is one */
    ERRAND_REQUEST, /* deliver and return the agent's answer */
    ERRAND_LOOK,    /* only check whether the agent could be reached now */
};

struct errand { /* borrowed for the call */
    enum errand_kind kind;
    struct str body;        /* the payload as one JSON object without a line break */
    struct str dispatch_id; /* becomes the file's name */
    struct str word;        /* the kind: "augment", "template" */
    struct str header;      /* one line that tells people the origin; may be absent */
    struct str text;        /* content, prompt or context; absent: only wake */
    struct str session;     /* absent: none */
    int64_t timeout_ms;     /* of a request; 0: the agent's own setting */
    struct str correlation; /* of a request: its answer must name no other */
    struct str trace;       /* W3C traceparent; absent: none */
};

enum errand_result {
    ERRAND_DONE,
    ERRAND_AWAY,    /* the agent is away: retry later, not counted as an attempt */
    ERRAND_FAILED,  /* retry later, counted as an attempt */
    ERRAND_REFUSED, /* do not retry */
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
    unsigned http_status; /* with CAUSE_HTTP_STATUS */
    struct str text;      /* the reason, a sentence; of a successful request: the answer */
    /* What the agent's own receipt says, where its substrate has one. */
    struct str session;  /* the session that took it; absent: it names none */
    struct str warnings; /* JSON strings with commas between them */
    bool skipped;        /* taken, and not shown to the agent yet */
};
typedef void errand_cb(void *ctx, const struct errand_end *e);

struct errand_job { /* first member of each substrate's job */
    errand_cb *done;
    void *ctx;
    void (*cancel)(struct errand_job *j); /* frees the job, now or when its thread has ended */
};
static inline void job_cancel(struct errand_job **j)
{
    if (*j != NULL)
        (*j)->cancel(*j);
    *j = NULL;
}

enum {
    SUBSTRATE_RINGS = 1,   /* wakes */
    SUBSTRATE_ANSWERS = 2, /* the job of a request ends with the answer */
    SUBSTRATE_RELAYED = 4, /* behind a gateway: the relay brings the mail */
    SUBSTRATE_HOSTED = 8,  /* and bellhop runs that gateway: hosted.h */
    SUBSTRATE_LOCAL = 16,  /* touches this machine: files, programs */
};

struct substrate_ops {
    const char *name;                    /* "file" */
    const struct config_section *config; /* its keys, stored in struct agent_settings */
    unsigned can;                        /* of the flags above */
    /* Starts an errand.  NULL: dispatch does not reach these agents (relay, none). */
    struct errand_job *(*run)(struct recipient *a, const struct errand *e, errand_cb *done,
                              void *ctx);
    /* Returns a phrase when the agent is away, else NULL.  Called for every delivery, so it must be
     * cheap.  The pointer is NULL where only an attempt can tell. */
    const char *(*away)(struct recipient *a);
};
/* Calls run() of the agent's substrate, on the agent's node (remote.c). */
struct errand_job *errand_run(struct recipient *a, const struct errand *e, errand_cb *done,
                              void *ctx);
/* A job that is not run: it ends with @result when the turn ends.  At most 159 bytes of text. */
struct errand_job *errand_end_soon(struct dispatch *d, enum errand_result result,
                                   enum errand_cause cause, errand_cb *done, void *ctx,
                                   const char *fmt, ...) BH_PRINTF(6, 7);
/* Calls away(); for an agent on another node, checks that the node's trunk is connected. */
const char *errand_away(struct recipient *a);

/* Runs dispatch_drop() in the helper with @more, NULL-terminated: recipient.outside. */
struct errand_job *drop_run(struct recipient *a, const char *const *more, struct str input,
                            int64_t timeout_ms, errand_cb *done, void *ctx);
#define PIPE_UNREAD "nobody reads the pipe"

/* The parts of dispatch_drop(): print the reason, and return the exit status. */
int file_drop(int argc, char **argv, struct str body);
int pipe_drop(int argc, char **argv, struct str body);

extern const struct substrate_ops *const substrates[];       /* ends with NULL */
const struct substrate_ops *substrate_find(struct str name); /* NULL: unknown */
extern const struct substrate_ops substrate_relay, substrate_webhook, substrate_tmux,
    substrate_file, substrate_pipe, substrate_exec, substrate_none, substrate_lines, substrate_acp,
    substrate_responses, substrate_chat;
