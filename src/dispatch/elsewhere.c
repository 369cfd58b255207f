/* elsewhere.c - errands to an agent that is on another node: that node is asked over its trunk
 * (net/trunk.h) and runs them (hands.h).
 *
 * While it is not there nothing is tried: the mail waits, as for anybody who is away.  When its
 * trunk is lost nobody knows whether the agent has it, so it is brought again, as after a crash. */
#include <stdio.h>
#include <stdlib.h>
#include "base/json.h"
#include "base/mem.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/errand_text.h"
#include "dispatch/substrate.h"
#include "net/trunk.h"

struct away_job {
    struct errand_job job;
    struct dispatch *d; /* borrowed */
    struct trunk_ask *ask;
    struct timer soon; /* there is nobody to ask */
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
    return agent_is_elsewhere(a) ? ask_its_node(a, e, done, ctx)
                                 : a->cfg->ops->run(a, e, done, ctx);
}

const char *errand_away(struct recipient *a)
{
    if (!agent_is_elsewhere(a))
        return a->cfg->ops->away != NULL ? a->cfg->ops->away(a) : NULL;
    return trunk_reaches(a->d->env.server, str_of(a->cfg->s.node))
               ? NULL
               : "its node is not there: it waits for it";
}
