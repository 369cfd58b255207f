/* exec.c - a program per delivery: the body of the contract on its standard input.
 *
 * Status 0 is taken; anything else is tried again.  Of a request its standard output is the answer.
 * Never through a shell: the command is a list of words. */
#include "dispatch/agent.h"
#include "dispatch/spawned.h"

static const struct config_key keys[] = {
    {"command", CFG_TEXTS, CFG_RELOAD, offsetof(struct agent_settings, command), .required = true,
     .words = true,
     .what = "The program and its arguments, `[program, argument]` or one text that is split as a "
             "shell would; no shell is run. A new one needs a restart."},
    {"timeout", CFG_DURATION, CFG_RELOAD, offsetof(struct agent_settings, timeout_ms), "60s",
     .min = 100, .max = 3600000, .what = "How long it may run; then it is ended."},
    {0},
};
static const struct config_section config = {.keys = keys,
                                             .size = sizeof(struct agent_settings),
                                             .name = "exec"};

static const char *target(const struct agent_config *c)
{
    return c->s.command[0];
}

static struct errand_job *run(struct recipient *a, const struct errand *e, errand_cb *done,
                              void *ctx)
{
    const struct agent_settings *s = &a->cfg->s;
    struct spawned_order o = {.argv = (const char *const *)s->command,
                              .input = e->body,
                              .timeout_ms = e->timeout_ms != 0 ? e->timeout_ms : s->timeout_ms,
                              .look = e->kind == ERRAND_LOOK,
                              .answer = e->kind == ERRAND_REQUEST};

    return spawned_run(a, &o, done, ctx);
}

const struct substrate_ops substrate_exec = {
    .name = "exec", .config = &config, .can = SUBSTRATE_ANSWERS, .target = target, .run = run};
