/* spawned.c - errands that programs do.  (spawned.h has the contract.) */
#include "dispatch/spawned.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/mem.h"
#include "dispatch/dispatch_priv.h"
#include "net/spawner.h"

#define OUTPUT_MAX ((size_t)1 << 20)

struct spawned {
    struct errand_job job;
    struct clock *clock; /* borrowed */
    struct spawn *spawn; /* NULL: it ends when the turn does */
    struct timer soon;
    bool (*is_away)(struct str errors);
    bool answer;
    struct errand_end end; /* for @soon; the text is a literal */
};

static void spawned_free(struct spawned *j)
{
    timer_stop(j->clock, &j->soon);
    spawn_cancel(&j->spawn);
    free(j);
}

static void cancel(struct errand_job *base)
{
    spawned_free(container_of(base, struct spawned, job));
}

static struct str last_line(struct str s)
{
    s = str_trim(s);
    for (size_t i = s.n; i > 0; i--)
        if (s.p[i - 1] == '\n')
            return str_skip(s, i);
    return s;
}

static struct errand_end bad_answer(struct str why)
{
    return (struct errand_end){.result = ERRAND_FAILED, .cause = CAUSE_MALFORMED, .text = why};
}

static void on_end(void *ctx, const struct spawn_end *end)
{
    struct spawned *j = ctx;
    struct errand_end e = {.result = ERRAND_DONE, .text = j->answer ? end->output : STR("")};
    struct str said = last_line(end->errors);
    char why[256];

    j->spawn = NULL;
    if (!end->well) {
        snprintf(why, sizeof why, "the program failed: %.100s%s%.*s",
                 end->timed_out ? "it took too long" : end->how, said.n > 0 ? ": " : "",
                 (int)(said.n < 120 ? said.n : 120), said.n > 0 ? said.p : "");
        e = (struct errand_end){.result = ERRAND_FAILED,
                                .cause = end->timed_out ? CAUSE_TIMEOUT : CAUSE_NETWORK,
                                .text = str_of(why)};
        if (j->is_away != NULL && j->is_away(end->errors))
            e.result = ERRAND_AWAY;
    } else if (j->answer && end->cut) {
        e = bad_answer(STR("the answer is longer than allowed"));
    } else if (j->answer && !utf8_valid(end->output)) {
        e = bad_answer(STR("the answer is no text"));
    }
    j->job.done(j->job.ctx, &e);
    spawned_free(j);
}

static void on_soon(struct timer *t)
{
    struct spawned *j = container_of(t, struct spawned, soon);

    j->job.done(j->job.ctx, &j->end);
    spawned_free(j);
}

static void end_soon(struct spawned *j, enum errand_result result, struct str text)
{
    j->end = (struct errand_end){.result = result, .cause = CAUSE_VALIDATION, .text = text};
    timer_set(j->clock, &j->soon, 0);
}

struct errand_job *spawned_run(struct recipient *a, const struct spawned_order *o, errand_cb *done,
                               void *ctx)
{
    struct spawner *spawner = a->d->env.spawner;
    int number = spawner != NULL ? spawner_find(spawner, o->argv) : -1;
    struct spawned *j = xcalloc(1, sizeof *j);

    *j = (struct spawned){.job = {.done = done, .ctx = ctx, .cancel = cancel},
                          .clock = a->d->env.clock,
                          .is_away = o->is_away,
                          .answer = o->answer};
    timer_init(&j->soon, on_soon);
    if (number < 0) {
        end_soon(j, ERRAND_FAILED, STR("this program came with a reload: restart the server"));
    } else if (o->look && strchr(o->argv[0], '/') != NULL && access(o->argv[0], X_OK) != 0) {
        end_soon(j, ERRAND_FAILED, STR("the program is not there, or may not be run"));
    } else if (o->look) {
        end_soon(j, ERRAND_DONE, STR(""));
    } else {
        struct spawn_order order = {.command = (unsigned)number,
                                    .more = o->more,
                                    .input = o->input,
                                    .timeout_ms = o->timeout_ms,
                                    .max_output = OUTPUT_MAX};
        j->spawn = spawner_run(spawner, &order, on_end, j);
        if (j->spawn == NULL)
            end_soon(j, ERRAND_AWAY, STR("too many programs run already"));
    }
    return &j->job;
}
