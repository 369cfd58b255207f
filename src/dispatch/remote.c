/* remote.c - errands to an agent on another node.  (remote.h has the contract.)
 *
 *      node that serves --errand_form--> trunk --> node of the agent --end_form--> trunk --> back
 *
 * While the other node is not connected, errands end with ERRAND_AWAY and the mail waits.  When the
 * trunk is lost during an errand, the agent may or may not have the delivery.  The errand then
 * fails and is retried, as after a crash.
 *
 * Substrates need a recipient with a struct dispatch, so the runner embeds one without a relay. */
#include "dispatch/remote.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/json.h"
#include "base/mem.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/substrate.h"
#include "net/trunk.h"
#include "net/work.h"
#include "store/store.h"

/* ---- an errand and its end as JSON objects ---- */

struct sent_errand {
    struct str tenant, agent;
    struct errand e;
};
static const struct record_field errand_fields[] = {
    RECORD_FIELD(struct sent_errand, tenant, "tenant", RECORD_NEEDED),
    RECORD_FIELD(struct sent_errand, agent, "agent", RECORD_NEEDED),
    RECORD_FIELD(struct sent_errand, e.kind, "kind", 0, .max = ERRAND_LOOK),
    RECORD_FIELD(struct sent_errand, e.body, "body", 0),
    RECORD_FIELD(struct sent_errand, e.dispatch_id, "dispatchId", 0),
    RECORD_FIELD(struct sent_errand, e.word, "word", 0),
    RECORD_FIELD(struct sent_errand, e.header, "header", 0),
    RECORD_FIELD(struct sent_errand, e.text, "text", 0),
    RECORD_FIELD(struct sent_errand, e.session, "session", 0),
    RECORD_FIELD(struct sent_errand, e.timeout_ms, "timeoutMs", 0),
    RECORD_FIELD(struct sent_errand, e.correlation, "correlation", 0),
    RECORD_FIELD(struct sent_errand, e.trace, "trace", 0),
};
static const struct record_form errand_form = RECORD_FORM(NULL, struct sent_errand, errand_fields);

static const struct record_field end_fields[] = {
    RECORD_FIELD(struct errand_end, result, "result", 0, .max = ERRAND_REFUSED),
    RECORD_FIELD(struct errand_end, cause, "cause", 0, .max = CAUSE_VALIDATION),
    RECORD_FIELD(struct errand_end, http_status, "httpStatus", 0, .max = 999),
    RECORD_FIELD(struct errand_end, text, "text", 0),
    RECORD_FIELD(struct errand_end, session, "session", 0),
    RECORD_FIELD(struct errand_end, warnings, "warnings", 0),
    RECORD_FIELD(struct errand_end, skipped, "skipped", 0),
};
static const struct record_form end_form = RECORD_FORM(NULL, struct errand_end, end_fields);

/* ---- on the node that serves: sends errands ---- */

struct away_job {
    struct errand_job job;
    struct dispatch *d; /* borrowed */
    struct trunk_ask *ask;
};

static void cancel(struct errand_job *base)
{
    struct away_job *j = container_of(base, struct away_job, job);

    trunk_ask_cancel(&j->ask);
    free(j);
}

static void on_told(void *ctx, struct str answer)
{
    struct away_job *j = ctx;
    struct errand_end e;

    j->ask = NULL;
    if (answer.p == NULL || !record_read(j->d->records, &end_form, STR(""), answer, &e))
        e = (struct errand_end){.result = ERRAND_FAILED,
                                .cause = CAUSE_NETWORK,
                                .text = STR("its node went away meanwhile")};
    j->job.done(j->job.ctx, &e);
    free(j);
}

static struct errand_job *ask_its_node(struct recipient *a, const struct errand *e, errand_cb *done,
                                       void *ctx)
{
    struct away_job *j = xcalloc(1, sizeof *j);
    struct sent_errand what = {str_of(a->tenant), str_of(a->id), *e};
    struct buf text = BUF_INIT;

    *j = (struct away_job){.job = {.done = done, .ctx = ctx, .cancel = cancel}, .d = a->d};
    record_write(&errand_form, NULL, &what, NULL, &text);
    j->ask = trunk_ask(a->d->env.server, str_of(a->cfg->s.node), buf_str(&text), on_told, j);
    buf_done(&text);
    if (j->ask != NULL)
        return &j->job;
    free(j);
    return errand_end_soon(a->d, ERRAND_AWAY, CAUSE_NETWORK, done, ctx,
                           "its node %.40s is not there: it waits for it", a->cfg->s.node);
}

struct errand_job *errand_run(struct recipient *a, const struct errand *e, errand_cb *done,
                              void *ctx)
{
    return agent_is_remote(a) ? ask_its_node(a, e, done, ctx) : a->cfg->ops->run(a, e, done, ctx);
}

const char *errand_away(struct recipient *a)
{
    if (!agent_is_remote(a))
        return a->cfg->ops->away != NULL ? a->cfg->ops->away(a) : NULL;
    return trunk_reaches(a->d->env.server, str_of(a->cfg->s.node))
               ? NULL
               : "its node is not there: it waits for it";
}

/* ---- an errand that ends without being run ---- */

struct ended_job {
    struct errand_job job;
    struct dispatch *d; /* borrowed */
    struct timer soon;
    struct errand_end end;
    char why[160];
};

static void cancel_ended(struct errand_job *base)
{
    struct ended_job *j = container_of(base, struct ended_job, job);

    timer_stop(j->d->env.clock, &j->soon);
    free(j);
}

static void on_soon(struct timer *t)
{
    struct ended_job *j = container_of(t, struct ended_job, soon);

    j->job.done(j->job.ctx, &j->end);
    free(j);
}

struct errand_job *errand_end_soon(struct dispatch *d, enum errand_result result,
                                   enum errand_cause cause, errand_cb *done, void *ctx,
                                   const char *fmt, ...)
{
    struct ended_job *j = xcalloc(1, sizeof *j);
    va_list args;

    *j = (struct ended_job){.job = {.done = done, .ctx = ctx, .cancel = cancel_ended}, .d = d};
    va_start(args, fmt);
    vsnprintf(j->why, sizeof j->why, fmt, args);
    va_end(args);
    j->end = (struct errand_end){.result = result, .cause = cause, .text = str_of(j->why)};
    timer_init(&j->soon, on_soon);
    timer_set(d->env.clock, &j->soon, 0);
    return &j->job;
}

/* ---- on the agent's node: runs errands ---- */

enum { FILE_THREADS = 1 };

struct runner {
    struct dispatch d;
    struct list tasks; /* struct task, owned */
    runner_told_cb *told;
    void *ctx;
    const struct config *next; /* borrowed; its agents are not taken yet; NULL: none */
};

struct task {
    struct list link;
    struct runner *h;
    uint32_t number;
    struct errand_job *job;
};

static void task_free(struct task *k)
{
    job_cancel(&k->job);
    list_remove(&k->link);
    free(k);
}

static void on_done(void *ctx, const struct errand_end *e)
{
    struct task *k = ctx;
    struct buf text = BUF_INIT;

    k->job = NULL;
    record_write(&end_form, NULL, e, NULL, &text);
    k->h->told(k->h->ctx, k->number, buf_str(&text));
    buf_done(&text);
    task_free(k);
}

void runner_take(struct runner *h, uint32_t number, struct str question)
{
    struct task *k = xcalloc(1, sizeof *k);
    const char *wrong = NULL;
    struct recipient *a = NULL;
    struct sent_errand what;

    *k = (struct task){.h = h, .number = number};
    if (h->next != NULL && list_is_empty(&h->tasks)) { /* an agent lives as long as its errands */
        agents_set(h->d.agents, h->next);
        h->next = NULL;
    }
    list_append(&h->tasks, &k->link);
    if (!record_read(h->d.records, &errand_form, STR(""), question, &what))
        wrong = "that is no errand";
    else
        a = agents_find(h->d.agents, what.tenant, what.agent);
    if (wrong == NULL &&
        (a == NULL || a->cfg->ops->run == NULL || agent_is_remote(a) || a->cfg->s.node == NULL))
        wrong = "its configuration has no such agent for this node";
    if (wrong == NULL)
        k->job = a->cfg->ops->run(a, &what.e, on_done, k);
    else
        k->job = errand_end_soon(&h->d, ERRAND_FAILED, CAUSE_VALIDATION, on_done, k,
                                 "node %.40s: %s", h->d.env.node, wrong);
}

void runner_drop(struct runner *h, uint32_t number)
{
    list_each (&h->tasks, it, nxt)
        if (list_entry(it, struct task, link)->number == number)
            task_free(list_entry(it, struct task, link));
}

void runner_drop_all(struct runner *h)
{
    list_each (&h->tasks, it, nxt)
        task_free(list_entry(it, struct task, link));
}

/* ---- life ---- */

struct runner *runner_new(const struct dispatch_env *env, const struct config *cfg,
                          runner_told_cb *told, void *ctx)
{
    struct runner *h = xcalloc(1, sizeof *h);

    h->d.env = *env;
    h->d.env.relay = NULL;
    h->told = told;
    h->ctx = ctx;
    list_init(&h->tasks);
    list_init(&h->d.calls);
    list_init(&h->d.ending);
    h->d.json = json_parser_new();
    h->d.records = record_reader_new(NULL);
    h->d.files = work_pool_new(env->loop, FILE_THREADS);
    h->d.agents = agents_new(&h->d);
    agents_set(h->d.agents, cfg);
    return h;
}

void runner_reload(struct runner *h, const struct config *cfg)
{
    h->next = cfg;
}

void runner_free(struct runner *h)
{
    if (h == NULL)
        return;
    runner_drop_all(h);
    agents_free(h->d.agents);
    work_pool_free(h->d.files);
    json_parser_free(h->d.json);
    record_reader_free(h->d.records);
    free(h);
}
