/* remote.c - errands to an agent on another node.  (remote.h has the contract.)
 *
 *      node that serves --errand_write()--> trunk --errand_read()--> node of the agent
 *                       <--errand_end_read()-- trunk <--errand_end_write()--
 *
 * While the other node is not connected, errands end with ERRAND_AWAY and the mail waits.  When the
 * trunk is lost during an errand, the agent may or may not have the delivery.  The errand then
 * fails and is retried, as after a crash.
 *
 * Substrates need a recipient with a struct dispatch, so the runner embeds one without a relay. */
#include "dispatch/remote.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/json.h"
#include "base/jw.h"
#include "base/mem.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/substrate.h"
#include "net/trunk.h"
#include "net/work.h"

/* ---- an errand and its end as JSON objects ---- */

static void errand_write(struct buf *out, const struct errand *e, struct str tenant,
                         struct str agent)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    jw_kstr(&w, "tenant", tenant);
    jw_kstr(&w, "agent", agent);
    jw_ki64(&w, "kind", e->kind);
    jw_kstr_opt(&w, "body", e->body);
    jw_kstr_opt(&w, "dispatchId", e->dispatch_id);
    jw_kstr_opt(&w, "word", e->word);
    jw_kstr_opt(&w, "header", e->header);
    jw_kstr_opt(&w, "text", e->text);
    jw_kstr_opt(&w, "session", e->session);
    jw_ki64(&w, "timeoutMs", e->timeout_ms);
    jw_end_obj(&w);
}

static bool read_number(struct json doc, const char *key, int64_t max, int64_t *ret)
{
    return json_as_i64(json_get(doc, key), ret) && *ret >= 0 && *ret <= max;
}

static bool errand_read(struct json doc, struct errand *ret_e, struct str *ret_tenant,
                        struct str *ret_agent)
{
    int64_t kind, timeout_ms;

    if (!read_number(doc, "kind", ERRAND_LOOK, &kind) ||
        !read_number(doc, "timeoutMs", INT64_MAX, &timeout_ms))
        return false;
    *ret_tenant = json_str(doc, "tenant");
    *ret_agent = json_str(doc, "agent");
    *ret_e = (struct errand){.kind = (enum errand_kind)kind,
                             .body = json_str(doc, "body"),
                             .dispatch_id = json_str(doc, "dispatchId"),
                             .word = json_str(doc, "word"),
                             .header = json_str(doc, "header"),
                             .text = json_str(doc, "text"),
                             .session = json_str(doc, "session"),
                             .timeout_ms = timeout_ms};
    return ret_tenant->p != NULL && ret_agent->p != NULL;
}

static void errand_end_write(struct buf *out, const struct errand_end *e)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    jw_ki64(&w, "result", e->result);
    jw_ki64(&w, "cause", e->cause);
    jw_ki64(&w, "httpStatus", e->http_status);
    jw_ki64(&w, "retryAfterMs", e->retry_after_ms);
    jw_kstr_opt(&w, "text", e->text);
    jw_end_obj(&w);
}

static bool errand_end_read(struct json doc, struct errand_end *ret_e)
{
    int64_t result, cause, status, after_ms;

    if (!read_number(doc, "result", ERRAND_REFUSED, &result) ||
        !read_number(doc, "cause", CAUSE_VALIDATION, &cause) ||
        !read_number(doc, "httpStatus", 999, &status) ||
        !read_number(doc, "retryAfterMs", INT64_MAX, &after_ms))
        return false;
    *ret_e = (struct errand_end){.result = (enum errand_result)result,
                                 .cause = (enum errand_cause)cause,
                                 .http_status = (int)status,
                                 .retry_after_ms = after_ms,
                                 .text = json_str(doc, "text")};
    return true;
}

/* ---- on the node that serves: sends errands ---- */

struct away_job {
    struct errand_job job;
    struct dispatch *d; /* borrowed */
    struct trunk_ask *ask;
    struct timer soon; /* ends the job: the node is not connected */
    char why[160];
};

static void away_job_free(struct away_job *j)
{
    trunk_ask_cancel(&j->ask);
    timer_stop(j->d->env.clock, &j->soon);
    free(j);
}

static void cancel(struct errand_job *base)
{
    away_job_free(container_of(base, struct away_job, job));
}

static void end(struct away_job *j, const struct errand_end *e)
{
    j->job.done(j->job.ctx, e);
    away_job_free(j);
}

static void on_told(void *ctx, struct str answer)
{
    struct away_job *j = ctx;
    struct errand_end e;
    struct json doc;

    j->ask = NULL;
    if (answer.p == NULL || !json_parse(j->d->json, answer, &doc) || !errand_end_read(doc, &e))
        e = (struct errand_end){.result = ERRAND_FAILED,
                                .cause = CAUSE_NETWORK,
                                .text = STR("its node went away meanwhile")};
    end(j, &e);
}

static void on_soon(struct timer *t)
{
    struct away_job *j = container_of(t, struct away_job, soon);

    end(j, &(struct errand_end){.result = ERRAND_AWAY,
                                .cause = CAUSE_NETWORK,
                                .text = str_of(j->why)});
}

static struct errand_job *ask_its_node(struct recipient *a, const struct errand *e, errand_cb *done,
                                       void *ctx)
{
    struct away_job *j = xcalloc(1, sizeof *j);
    struct buf text = BUF_INIT;

    *j = (struct away_job){.job = {.done = done, .ctx = ctx, .cancel = cancel}, .d = a->d};
    timer_init(&j->soon, on_soon);
    errand_write(&text, e, str_of(a->tenant), str_of(a->id));
    j->ask = trunk_ask(a->d->env.server, str_of(a->cfg->s.node), buf_str(&text), on_told, j);
    buf_done(&text);
    if (j->ask == NULL) {
        snprintf(j->why, sizeof j->why, "its node %.40s is not there: it waits for it",
                 a->cfg->s.node);
        timer_set(a->d->env.clock, &j->soon, 0);
    }
    return &j->job;
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

/* ---- on the agent's node: runs errands ---- */

enum { FILE_THREADS = 1 };

struct runner {
    struct dispatch d;
    struct list tasks; /* struct task, owned */
    runner_told_cb *told;
    void *ctx;
};

struct task {
    struct list link;
    struct runner *h;
    uint32_t number;
    struct errand_job *job; /* NULL: refused, and answered by @soon */
    struct timer soon;
    char why[160];
};

static void task_free(struct task *k)
{
    job_cancel(&k->job);
    timer_stop(k->h->d.env.clock, &k->soon);
    list_remove(&k->link);
    free(k);
}

static void on_done(void *ctx, const struct errand_end *e)
{
    struct task *k = ctx;
    struct buf text = BUF_INIT;

    k->job = NULL;
    errand_end_write(&text, e);
    k->h->told(k->h->ctx, k->number, buf_str(&text));
    buf_done(&text);
    task_free(k);
}

static void on_refused(struct timer *t)
{
    struct task *k = container_of(t, struct task, soon);

    on_done(k, &(struct errand_end){.result = ERRAND_FAILED,
                                    .cause = CAUSE_VALIDATION,
                                    .text = str_of(k->why)});
}

static void refuse(struct task *k, const char *why)
{
    snprintf(k->why, sizeof k->why, "node %.40s: %s", k->h->d.env.node, why);
    timer_set(k->h->d.env.clock, &k->soon, 0);
}

void runner_take(struct runner *h, uint32_t number, struct str question)
{
    struct task *k = xcalloc(1, sizeof *k);
    struct str tenant, agent;
    struct recipient *a;
    struct errand e;
    struct json doc;

    *k = (struct task){.h = h, .number = number};
    timer_init(&k->soon, on_refused);
    list_append(&h->tasks, &k->link);
    if (!json_parse(h->d.json, question, &doc) || !errand_read(doc, &e, &tenant, &agent)) {
        refuse(k, "that is no errand");
        return;
    }
    a = agents_find(h->d.agents, tenant, agent);
    if (a == NULL || a->cfg->ops->run == NULL || agent_is_remote(a) || a->cfg->s.node == NULL)
        refuse(k, "its configuration has no such agent for this node");
    else
        k->job = a->cfg->ops->run(a, &e, on_done, k);
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
    h->d.files = work_pool_new(env->loop, FILE_THREADS);
    h->d.agents = agents_new(&h->d);
    agents_set(h->d.agents, cfg);
    return h;
}

void runner_free(struct runner *h)
{
    if (h == NULL)
        return;
    runner_drop_all(h);
    agents_free(h->d.agents);
    work_pool_free(h->d.files);
    json_parser_free(h->d.json);
    free(h);
}
