/* program.c - delivers by running a program: exec starts one per payload, tmux types into a pane.
 *
 * The spawner (net/spawner.h) runs the programs.  It accepts only the programs of the configuration
 * at start.  A program that a reload added fails with a sentence that asks for a restart.
 *
 * exec: the program reads the payload as JSON from its standard input.  Exit status 0 means
 * delivered; any other status is retried.  The standard output of a request is its answer.  No
 * shell is involved: the command is a list of words.
 *
 * tmux: the text goes through a paste buffer of tmux, in one piece, and as a bracketed paste if the
 * program in the pane enabled that.  Control characters could act on the terminal or end the paste,
 * so visible characters replace them first: add_picture().
 *
 *      deliver   pastes the text and a line break: with bracketed paste the text waits in the
 *                program's input line, while a program that reads lines reads it at once
 *      wake      pastes its text, or one fixed line; then Enter, and the pane's bell
 *
 * The configuration sets the target; a caller's session only chooses among the configured ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/mem.h"
#include "dispatch/agent.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/hosted.h"
#include "dispatch/substrate.h"
#include "net/spawner.h"

/* ---- a program's run ---- */

struct spawned_order {
    const char *const *argv; /* the command as registered with the spawner */
    const char *const *more; /* further arguments, NULL-terminated; NULL: none */
    struct str input;
    int64_t timeout_ms;
    /* True when the program's error output says that the agent is away; may be NULL. */
    bool (*is_away)(struct str errors);
    bool look;   /* only check whether it can be run */
    bool answer; /* its output is the answer: must be text, at most OUTPUT_MAX */
};

#define OUTPUT_MAX ((size_t)1 << 20)

struct spawned {
    struct errand_job job;
    struct spawn *spawn;
    bool (*is_away)(struct str errors);
    bool answer;
};

static void cancel(struct errand_job *base)
{
    struct spawned *j = container_of(base, struct spawned, job);

    spawn_cancel(&j->spawn);
    free(j);
}

static struct errand_end bad_answer(struct str why)
{
    return (struct errand_end){.result = ERRAND_FAILED, .cause = CAUSE_MALFORMED, .text = why};
}

static void on_end(void *ctx, const struct spawn_end *end)
{
    struct spawned *j = ctx;
    struct errand_end e = {.result = ERRAND_DONE, .text = j->answer ? end->output : STR("")};
    struct str said = str_trim(end->errors); /* its last line */
    char why[256];

    j->spawn = NULL;
    for (size_t i = said.n; i > 0; i--)
        if (said.p[i - 1] == '\n') {
            said = str_skip(said, i);
            break;
        }
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
    free(j);
}

/* Starts the program.  On ERRAND_DONE the text is its output if @answer is set. */
static struct errand_job *spawned_run(struct recipient *a, const struct spawned_order *o,
                                      errand_cb *done, void *ctx)
{
    struct spawner *spawner = a->d->env.spawner;
    int number = spawner == NULL  ? -1
                 : a->cfg->stored ? spawner_learn(spawner, o->argv)
                                  : spawner_find(spawner, o->argv);

    if (number < 0)
        return errand_end_soon(a->d, ERRAND_FAILED, CAUSE_VALIDATION, done, ctx,
                               "this program came with a reload: restart the server");
    if (o->look && strchr(o->argv[0], '/') != NULL && access(o->argv[0], X_OK) != 0)
        return errand_end_soon(a->d, ERRAND_FAILED, CAUSE_VALIDATION, done, ctx,
                               "the program is not there, or may not be run");
    if (o->look)
        return errand_end_soon(a->d, ERRAND_DONE, CAUSE_VALIDATION, done, ctx, "%s", "");
    struct spawn_order order = {.command = (unsigned)number,
                                .more = o->more,
                                .input = o->input,
                                .timeout_ms = o->timeout_ms,
                                .max_output = OUTPUT_MAX};
    struct spawned *j = xcalloc(1, sizeof *j);
    *j = (struct spawned){.job = {.done = done, .ctx = ctx, .cancel = cancel},
                          .is_away = o->is_away,
                          .answer = o->answer};
    j->spawn = spawner_run(spawner, &order, on_end, j);
    if (j->spawn != NULL)
        return &j->job;
    free(j);
    return errand_end_soon(a->d, ERRAND_AWAY, CAUSE_VALIDATION, done, ctx,
                           "too many programs run already");
}

/* ---- files outside of the sandbox ---- */

static bool pipe_is_away(struct str errors)
{
    return str_contains(errors, STR(PIPE_UNREAD));
}

struct errand_job *drop_run(struct recipient *a, const char *const *more, struct str input,
                            int64_t timeout_ms, errand_cb *done, void *ctx)
{
    const char *const drop[] = {hosted_program(), "drop", NULL};
    struct spawned_order o = {.argv = drop,
                              .more = more,
                              .input = input,
                              .timeout_ms = timeout_ms,
                              .is_away = pipe_is_away};

    return spawned_run(a, &o, done, ctx);
}

#define BODY_MAX ((size_t)4 << 20)

int dispatch_drop(int argc, char **argv)
{
    struct buf body = {.limit = BODY_MAX};
    char part[16384];
    ssize_t n;
    int rc = 2;

    while ((n = read(STDIN_FILENO, part, sizeof part)) > 0)
        buf_add(&body, part, (size_t)n);
    if (n < 0 || buf_failed(&body))
        fputs("the payload cannot be read\n", stderr);
    else if (argc > 0 && strcmp(argv[0], "file") == 0)
        rc = file_drop(argc - 1, argv + 1, buf_str(&body));
    else if (argc > 0 && strcmp(argv[0], "pipe") == 0)
        rc = pipe_drop(argc - 1, argv + 1, buf_str(&body));
    else
        fputs("bellhop drop is run by bellhop serve\n", stderr);
    buf_done(&body);
    return rc;
}

/* ---- exec ---- */

static const struct config_key exec_keys[] = {
    {"command", CFG_TEXTS, CFG_RELOAD, offsetof(struct agent_settings, command), .required = true,
     .words = true,
     .what = "The program and its arguments, `[program, argument]`, or one text that is split like "
             "a shell command; no shell runs. A change needs a restart."},
    {"timeout", CFG_DURATION, CFG_RELOAD, offsetof(struct agent_settings, timeout_ms), "60s",
     .min = 100, .max = 3600000, .what = "How long the program may run; then it is killed."},
    {0},
};
static const struct config_section exec_config = {.keys = exec_keys,
                                                  .size = sizeof(struct agent_settings),
                                                  .name = "exec"};

static struct errand_job *exec_run(struct recipient *a, const struct errand *e, errand_cb *done,
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

const struct substrate_ops substrate_exec = {.name = "exec",
                                             .config = &exec_config,
                                             .can = SUBSTRATE_ANSWERS | SUBSTRATE_LOCAL,
                                             .run = exec_run};

/* ---- tmux ---- */

#define AT(member) offsetof(struct agent_settings, member)

static const struct config_key tmux_keys[] = {
    {"target", CFG_TEXT, CFG_RELOAD, AT(target), .required = true,
     .what = "The pane, as tmux names it: `session`, `session:window.pane` or `%3`."},
    {"socket", CFG_TEXT, CFG_RELOAD, AT(socket),
     .what = "The socket of the tmux server; without it, the default one of the user."},
    {"timeout", CFG_DURATION, CFG_RELOAD, AT(timeout_ms), "10s", .min = 100, .max = 60000,
     .what = "How long tmux may take."},
    {0},
};
static const struct config_section tmux_config = {.keys = tmux_keys,
                                                  .size = sizeof(struct agent_settings),
                                                  .name = "tmux"};

/* ---- the text ---- */

/* Adds the picture of a control character (U+2400 and on), or U+FFFD where there is none. */
static void add_picture(struct buf *out, unsigned c)
{
    unsigned at = c == 0x7f ? 0x2421 : c < 0x20 ? 0x2400 + c : 0xfffd;

    buf_add_c(out, (char)(0xe0 | at >> 12));
    buf_add_c(out, (char)(0x80 | (at >> 6 & 0x3f)));
    buf_add_c(out, (char)(0x80 | (at & 0x3f)));
}

static void clean(struct buf *out, struct str text)
{
    while (text.n > 0) {
        unsigned char c = (unsigned char)text.p[0];
        size_t n = utf8_seq_bytes(text);
        bool c1 = n == 2 && c == 0xc2 && (unsigned char)text.p[1] < 0xa0;
        if (c == '\r' && text.n > 1 && text.p[1] == '\n') {
            n = 1; /* the line break follows */
        } else if (c == '\n' || c == '\t') {
            buf_add_c(out, (char)c);
        } else if (n == 0 || c < 0x20 || c == 0x7f || c1) {
            add_picture(out, n == 1 ? c : 0x80);
        } else {
            buf_add(out, text.p, n);
        }
        text = str_skip(text, n != 0 ? n : 1);
    }
}

/* ---- the command ---- */

#define BASE_MAX 4

size_t tmux_command(const struct agent_settings *s, const char *argv[4])
{
    size_t n = 0;

    argv[n++] = "tmux";
    if (s->socket != NULL) {
        argv[n++] = "-S";
        argv[n++] = s->socket;
    }
    argv[n] = NULL;
    return n;
}

/* tmux reports a missing pane only in its error text. */
static bool is_away(struct str errors)
{
    return str_contains(errors, STR("can't find")) ||
           str_contains(errors, STR("no server running")) ||
           str_contains(errors, STR("error connecting")) ||
           str_contains(errors, STR("server exited")) || str_contains(errors, STR("lost server"));
}

/* The tmux words that paste the buffer.  A wake adds Enter and the bell, which it writes to the
 * pane's terminal as the program in the pane would. */
#define PASTE(pane, buffer) \
    "has-session", "-t", pane, ";", "load-buffer", "-b", buffer, "-", ";", "paste-buffer", "-p", \
        "-d", "-b", buffer, "-t", pane
#define RING(pane) \
    ";", "send-keys", "-t", pane, "Enter", ";", "run-shell", "-b", "-t", pane, \
        "printf '\\a' > '#{pane_tty}'"

static struct errand_job *tmux_run(struct recipient *a, const struct errand *e, errand_cb *done,
                                   void *ctx)
{
    const struct agent_settings *s = &a->cfg->s;
    const char *chosen = agent_session(a->cfg, e->session), *base[BASE_MAX];
    const char *pane = chosen != NULL && *chosen != '\0' ? chosen : s->target;
    struct buf text = BUF_INIT;
    char buffer[48], session[DISPATCH_ID_MAX + 1];

    snprintf(session, sizeof session, "%.*s", STR_FMT(e->session));
    if (!str_is_empty(e->session) && chosen == NULL)
        return errand_end_soon(a->d, ERRAND_REFUSED, CAUSE_VALIDATION, done, ctx,
                               "the agent has no session \"%.100s\"", session);
    snprintf(buffer, sizeof buffer, "bellhop-%llx", (unsigned long long)dispatch_number(a->d));
    /* Checks the pane first: without a pane the buffer would never be deleted. */
    const char *const type[] = {PASTE(pane, buffer), NULL};
    const char *const ring[] = {PASTE(pane, buffer), RING(pane), NULL};
    const char *const look[] = {"has-session", "-t", pane, NULL};
    tmux_command(s, base);
    if (!str_is_empty(e->header)) {
        clean(&text, e->header);
        buf_add_c(&text, '\n');
    }
    clean(&text, e->text);
    if (e->kind != ERRAND_WAKE)
        buf_add_c(&text, '\n');
    struct spawned_order o = {.argv = base,
                              .more = e->kind == ERRAND_LOOK   ? look
                                      : e->kind == ERRAND_WAKE ? ring
                                                               : type,
                              .input = buf_str(&text),
                              .timeout_ms = s->timeout_ms,
                              .is_away = is_away};
    struct errand_job *job = spawned_run(a, &o, done, ctx);
    buf_done(&text);
    return job;
}

const struct substrate_ops substrate_tmux = {.name = "tmux",
                                             .config = &tmux_config,
                                             .can = SUBSTRATE_RINGS | SUBSTRATE_LOCAL,
                                             .run = tmux_run};
