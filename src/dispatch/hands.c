/* hands.c - design.  (hands.h has the contract.)
 *
 * Substrates want an agent of a dispatch, so there is one here, without mail. */
#include "dispatch/hands.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/json.h"
#include "base/mem.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/errand_text.h"
#include "dispatch/substrate.h"
#include "net/work.h"

enum { FILE_THREADS = 1 };

struct hands {
    struct dispatch d;
    struct list tasks; /* struct task, owned */
    hands_told_cb *told;
    void *ctx;
};

struct task {
    struct list link;
    struct hands *h;
    uint32_t number;
    struct errand_job *job; /* NULL: it is refused, @soon */
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

static void on_soon(struct timer *t)
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

void hands_take(struct hands *h, uint32_t number, struct str question)
{
    struct task *k = xcalloc(1, sizeof *k);
    struct str tenant, agent;
    struct recipient *a;
    struct errand e;
    struct json doc;

    *k = (struct task){.h = h, .number = number};
    timer_init(&k->soon, on_soon);
    list_append(&h->tasks, &k->link);
    if (!json_parse(h->d.json, question, &doc) || !errand_read(doc, &e, &tenant, &agent)) {
        refuse(k, "that is no errand");
        return;
    }
    a = agents_find(h->d.agents, tenant, agent);
    if (a == NULL || a->cfg->ops->run == NULL || agent_is_elsewhere(a) || a->cfg->s.node == NULL)
        refuse(k, "its configuration has no such agent for this node");
    else
        k->job = a->cfg->ops->run(a, &e, on_done, k);
}

void hands_drop(struct hands *h, uint32_t number)
{
    list_each (&h->tasks, it, nxt)
        if (list_entry(it, struct task, link)->number == number)
            task_free(list_entry(it, struct task, link));
}

void hands_drop_all(struct hands *h)
{
    list_each (&h->tasks, it, nxt)
        task_free(list_entry(it, struct task, link));
}

/* ---- its life ---- */

struct hands *hands_new(const struct dispatch_env *env, const struct config *cfg,
                        hands_told_cb *told, void *ctx)
{
    struct hands *h = xcalloc(1, sizeof *h);

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

void hands_free(struct hands *h)
{
    if (h == NULL)
        return;
    hands_drop_all(h);
    agents_free(h->d.agents);
    work_pool_free(h->d.files);
    json_parser_free(h->d.json);
    free(h);
}
