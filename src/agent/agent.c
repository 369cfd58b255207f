/* agent.c - connects the gateway client to the workers, and shuts down in good order.
 *
 *      RUNNING --SIGTERM--> FINISHING --turns are over, or @grace--> ENDING
 *       |   ^                                                          |
 *  SIGUSR1  SIGCONT, or a while                   GONE <--programs are gone
 *       v   |                                      '-- going_idle, its answer, close, exit
 *      RESTING: going_idle once nothing is in hand; SIGTERM as in RUNNING
 *
 *      a second SIGTERM: GONE at once
 *
 * After SIGTERM programs get no more messages.  Messages that arrive then are not acknowledged, so
 * the connector keeps them.  The last frame, going_idle, lets the connector buffer for this
 * instance and wake it later. */
#include "agent/agent.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "agent/agent_priv.h"
#include "base/log.h"
#include "base/mem.h"
#include "bellhop/gateway.h"
#include "net/http_client.h"
#include "net/loop.h"

#define MAX_PENDING \
    1024 /* events queued for busy programs; more than this wait at the connector instead */
#define ENDING_MS 10000
#define REST_MS \
    5000 /* a frozen process does not count this time; one that was not frozen resumes */

enum { DONE = 0, FAILED = 1, MISUSED = 2, REVOKED = 3 };

static void say(const struct agent *a, const char *what, const char *more)
{
    if (a->opt->quiet)
        return;
    printf("agent: %s%s%s\n", what, *more != '\0' ? ": " : "", more);
    fflush(stdout);
}

/* ---- shutdown ---- */

bool agent_may_hand_over(const struct agent *a)
{
    return a->state == AGENT_RUNNING;
}

static void leave(struct agent *a)
{
    a->state = AGENT_GONE;
    timer_stop(a->clock, &a->grace);
    timer_stop(a->clock, &a->rest);
    loop_stop(a->loop);
}

static bool is_all_said(const struct agent *a)
{
    list_each (&a->conversations, it, next)
        if (!conversation_is_quiet(list_entry(it, struct conversation, link)))
            return false;
    return true;
}

static bool has_turns(const struct agent *a)
{
    return a->n_begun > 0 || (a->ops->is_busy != NULL && a->ops->is_busy(a->backend));
}

static void end_programs(struct agent *a)
{
    a->state = AGENT_ENDING;
    timer_set(a->clock, &a->grace, ENDING_MS);
    list_each (&a->conversations, it, next)
        turn_leave(list_entry(it, struct conversation, link));
    a->ops->end(a->backend);
}

static void on_wake(void *ctx)
{
    struct agent *a = ctx;

    if (a->state != AGENT_RESTING)
        return;
    a->state = AGENT_RUNNING;
    a->dormant = false;
    timer_stop(a->clock, &a->rest);
    say(a, "back", "");
    bhgw_open(a->gw);
    if (a->ops->go != NULL)
        a->ops->go(a->backend);
    list_each (&a->conversations, it, next)
        turn_go(list_entry(it, struct conversation, link));
}

static void on_rested(struct timer *t)
{
    on_wake(container_of(t, struct agent, rest));
}

static void on_rest(void *ctx)
{
    struct agent *a = ctx;

    if (a->state != AGENT_RUNNING)
        return;
    say(a, "resting", "");
    a->state = AGENT_RESTING;
    agent_moved(a);
}

void agent_moved(struct agent *a)
{
    if (a->state == AGENT_RESTING && !a->dormant && !has_turns(a) && is_all_said(a)) {
        a->dormant = true;
        bhgw_go_idle(a->gw);
        timer_set(a->clock, &a->rest, REST_MS);
    }
    if (a->state == AGENT_FINISHING && !has_turns(a))
        end_programs(a);
    if (a->state == AGENT_ENDING && a->ops->is_ended(a->backend) && !has_turns(a) && is_all_said(a))
        leave(a);
}

static void on_grace(struct timer *t)
{
    struct agent *a = container_of(t, struct agent, grace);

    if (a->state == AGENT_FINISHING) {
        log_warn(NULL,
                 "turns are unfinished after the grace time; the connector keeps their messages");
        end_programs(a);
        agent_moved(a);
    } else {
        leave(a);
    }
}

static void on_terminate(void *ctx)
{
    struct agent *a = ctx;

    if (a->state != AGENT_RUNNING && a->state != AGENT_RESTING) {
        log_warn(NULL, "second signal: exiting at once");
        leave(a);
        return;
    }
    say(a, "leaving", "");
    a->state = AGENT_FINISHING;
    timer_set(a->clock, &a->grace, a->opt->grace_ms);
    agent_moved(a);
}

void agent_bearer(const struct agent *a, struct buf *out)
{
    char *token = bhgw_token(a->opt->gateway_id, a->opt->secret, 60);

    buf_printf(out, "Authorization: Bearer %s", token);
    bhgw_string_free(token);
}

/* ---- messages ---- */

void message_words(const struct agent *a, const struct bhgw_event *ev, struct buf *out)
{
    if (a->opt->shared_groups && strcmp(ev->chat_type, "dm") != 0 && ev->user_name != NULL)
        buf_printf(out, "%s: ", ev->user_name);
    if (ev->quoted_text != NULL && !ev->quoted_is_own)
        buf_printf(out, "[In reply to: %s]\n", ev->quoted_text);
    buf_add(out, ev->text, ev->text_bytes);
}

void message_settle(struct agent *a, struct message *t)
{
    if (t->acked)
        return;
    t->acked = true;
    if (a->gw != NULL)
        bhgw_ack(a->gw, t->ev->delivery);
}

void message_done(struct agent *a, struct message *t)
{
    if (!t->over || t->n_says > 0)
        return;
    message_settle(a, t);
    t->conversation->n_turns--;
    bhgw_event_free(t->ev);
    free(t->forward);
    free(t);
}

struct arrival { /* from a thread of the library to the loop */
    struct agent *agent;
    struct bhgw_event *ev;
    char *forward;               /* a webhook: its line */
    char *session_key, *chat_id; /* an interrupt */
};

/* The key of the conversation of @ev.  With --shared-groups all people of a shared chat have one
 * conversation. */
static struct conversation *find_conversation(struct agent *a, const struct bhgw_event *ev)
{
    BUF_LOCAL key = BUF_INIT;

    if (!a->opt->shared_groups || strcmp(ev->chat_type, "dm") == 0)
        return conversation_get(a, str_of(ev->session_key));
    buf_printf(&key, "shared:%s:%s:%s", ev->platform, ev->chat_id,
               ev->thread_id != NULL ? ev->thread_id : "");
    return conversation_get(a, buf_str(&key));
}

static void on_arrival(void *ctx)
{
    struct arrival *arrived = ctx;
    struct agent *a = arrived->agent;
    bool press = a->state != AGENT_GONE && a->ops->take == NULL && turn_pressed(a, arrived->ev);

    if (press)
        bhgw_ack(a->gw, arrived->ev->delivery);
    if (press || a->state == AGENT_GONE) { /* not acknowledged: the connector keeps it */
        bhgw_event_free(arrived->ev);
        free(arrived->forward);
        free(arrived);
        return;
    }
    struct message *t = xcalloc(1, sizeof *t);
    struct conversation *c = find_conversation(a, arrived->ev);
    *t = (struct message){.ev = arrived->ev, .conversation = c, .forward = arrived->forward};
    free(arrived);
    list_init(&t->link);
    c->n_turns++;
    conversation_heard(c, t->ev);
    if (a->ops->take != NULL)
        a->ops->take(a->backend, t);
    else
        turn_add(c, t);
    conversation_trim(a);
}

static enum bhgw_verdict on_event(void *ctx, struct bhgw *gw, const struct bhgw_event *ev)
{
    /* A bare /stop has also arrived as an interrupt, and programs get the interrupt only. */
    if (ev->text != NULL && str_eq_ci(str_trim(str_of(ev->text)), STR("/stop")))
        return BHGW_ACK;

    struct arrival *arrived = xcalloc(1, sizeof *arrived);

    *arrived = (struct arrival){.agent = ctx, .ev = bhgw_event_copy(ev)};
    loop_post(((struct agent *)ctx)->loop, on_arrival, arrived);
    return BHGW_LATER;
}

static enum bhgw_verdict on_passthrough(void *ctx, struct bhgw *gw,
                                        const struct bhgw_passthrough *fwd)
{
    struct arrival *arrived = xcalloc(1, sizeof *arrived);
    struct buf line = BUF_INIT;

    *arrived = (struct arrival){.agent = ctx, .ev = bhgw_passthrough_event(fwd)};
    line_forward(&line, fwd, arrived->ev);
    arrived->forward = buf_take(&line);
    loop_post(((struct agent *)ctx)->loop, on_arrival, arrived);
    return BHGW_LATER;
}

/* Is @key for the place of @ev?  In a thread all people have one key.  Elsewhere the connector also
 * sends the key without its last part, the person. */
static bool is_key_of(const struct bhgw_event *ev, struct str key)
{
    struct str own = str_of(ev->session_key);

    if (str_eq(own, key))
        return true;
    while (own.n > 0 && own.p[own.n - 1] != ':')
        own.n--;
    return ev->thread_id == NULL && own.n > 0 && str_eq(str_make(own.p, own.n - 1), key);
}

/* With --shared-groups a chat may have several conversations, one in each thread.  NULL: it is not
 * known which of them is meant. */
static struct conversation *interrupted(struct agent *a, struct str session_key, struct str chat_id)
{
    struct conversation *c = conversation_find(a, session_key);
    size_t n = 0;

    if (c != NULL || !a->opt->shared_groups)
        return c;
    list_each (&a->conversations, it, next) {
        struct conversation *one = list_entry(it, struct conversation, link);
        if (one->last == NULL || !str_eq(str_of(one->last->chat_id), chat_id))
            continue;
        if (is_key_of(one->last, session_key))
            return one;
        c = one;
        n++;
    }
    return n == 1 ? c : NULL;
}

static void on_interrupted(void *ctx)
{
    struct arrival *arrived = ctx;
    struct agent *a = arrived->agent;
    struct conversation *c = interrupted(a, str_of(arrived->session_key), str_of(arrived->chat_id));

    if (a->ops->interrupt != NULL)
        a->ops->interrupt(a->backend, arrived->session_key, arrived->chat_id);
    else if (c != NULL)
        turn_stop(c);
    free(arrived->session_key);
    free(arrived->chat_id);
    free(arrived);
}

static void on_interrupt(void *ctx, struct bhgw *gw, const char *session_key, const char *chat_id)
{
    struct arrival *arrived = xcalloc(1, sizeof *arrived);

    *arrived = (struct arrival){.agent = ctx,
                                .session_key = xstrdup(session_key),
                                .chat_id = xstrdup(chat_id)};
    loop_post(((struct agent *)ctx)->loop, on_interrupted, arrived);
}

/* ---- the connection ---- */

static void on_connected(void *ctx)
{
    struct agent *a = ctx;

    list_each (&a->conversations, it, next)
        conversation_connected(list_entry(it, struct conversation, link));
}

static void on_revoked(void *ctx)
{
    struct agent *a = ctx;

    a->status = REVOKED;
    if (a->state == AGENT_RUNNING || a->state == AGENT_RESTING)
        on_terminate(a);
}

static void on_state(void *ctx, struct bhgw *gw, enum bhgw_state state, const char *why)
{
    struct agent *a = ctx;

    log_info(NULL, "%s: %s", bhgw_state_name(state), why);
    if (state == BHGW_READY) {
        say(a, "ready", "");
        loop_post(a->loop, on_connected, a);
    }
    if (state == BHGW_DISABLED)
        loop_post(a->loop, on_revoked, a);
}

static void on_log(void *ctx, enum bhgw_log_level level, const char *line)
{
    if (level == BHGW_LOG_WARN || level == BHGW_LOG_ERROR)
        log_warn(NULL, "%s", line);
    else
        log_debug(NULL, "%s", line);
}

static struct bhgw *make_gateway(struct agent *a, char error[256])
{
    struct bhgw_options o = bhgw_options_init();

    o.url = a->opt->url;
    o.gateway_id = a->opt->gateway_id;
    o.secret = a->opt->secret;
    o.ca_file = a->opt->ca_file;
    o.identities = a->opt->identities;
    o.n_identities = a->opt->n_identities;
    o.seen_file = a->opt->seen_file;
    o.policy = a->opt->policy;
    o.max_pending = MAX_PENDING;
    o.late_acks = true; /* a message is acknowledged when its turn has ended */
    o.ctx = a;
    o.on_event = on_event;
    o.on_passthrough = a->ops->take != NULL ? on_passthrough : NULL;
    o.on_interrupt = on_interrupt;
    o.on_state = on_state;
    o.log = on_log;
    return bhgw_new(&o, error, 256);
}

/* ---- start-up and the main loop ---- */

/* Our environment without the gateway's secret, so that a program that prints its environment
 * reveals no credential. */
static char **bare_environment(void)
{
    size_t n = 0, kept = 0;

    while (environ[n] != NULL)
        n++;
    char **envp = xcalloc(n + 1, sizeof *envp);
    for (size_t i = 0; i < n; i++)
        if (strncmp(environ[i], "GATEWAY_RELAY_SECRET=", 21) != 0)
            envp[kept++] = environ[i];
    return envp;
}

static void goodbye(struct agent *a)
{
    switch (bhgw_go_idle_wait(a->gw)) {
    case BHGW_OK:
        say(a, "left", "the connector keeps new messages");
        break;
    case BHGW_TIMEOUT:
        log_warn(NULL, "the connector did not confirm that it keeps new messages");
        if (a->status == DONE)
            a->status = FAILED;
        break;
    case BHGW_NOT_CONNECTED:
    case BHGW_STOPPED:
    case BHGW_NO_THREADS:
        say(a, "left", "there was no connection");
        break;
    }
}

static void take_down(struct agent *a)
{
    bhgw_close(a->gw);
    bhgw_free(a->gw);
    a->gw = NULL;
    loop_turn(a->loop, 0); /* runs what the client's threads posted before they ended */
    if (a->backend != NULL)
        a->ops->close(a->backend); /* before the turns: it may hold questions of theirs */
    list_each (&a->conversations, it, next)
        turn_drop(list_entry(it, struct conversation, link));
    if (a->http != NULL)
        http_client_free(a->http);
    list_each (&a->conversations, it2, next2)
        conversation_free(list_entry(it2, struct conversation, link));
    map_done(&a->by_key);
    map_done(&a->asks);
    json_parser_free(a->parser);
    free(a->envp);
    loop_free(a->loop);
}

int agent_run(const struct agent_options *opt)
{
    struct agent a = {.opt = opt, .ops = opt->backend, .by_key = MAP_INIT, .asks = MAP_INIT};
    char error[256];

    a.gw = make_gateway(&a, error);
    if (a.gw == NULL) {
        log_error(NULL, "%s", error);
        return MISUSED;
    }
    a.loop = loop_new();
    if (a.loop == NULL) {
        bhgw_free(a.gw);
        return FAILED;
    }
    a.clock = loop_clock(a.loop);
    a.envp = bare_environment();
    a.parser = json_parser_new();
    list_init(&a.workers);
    list_init(&a.hungry);
    list_init(&a.conversations);
    timer_init(&a.grace, on_grace);
    timer_init(&a.rest, on_rested);
    loop_on_signal(a.loop, SIGTERM, on_terminate, &a);
    loop_on_signal(a.loop, SIGINT, on_terminate, &a);
    loop_on_signal(a.loop, SIGUSR1, on_rest, &a);
    loop_on_signal(a.loop, SIGCONT, on_wake, &a);
    a.http = a.ops->begin != NULL ? http_client_new(a.loop) : NULL;
    a.backend = a.ops->open(&a, error);
    if (a.backend == NULL) {
        log_error(NULL, "%s", error);
        a.status = FAILED;
    } else if (bhgw_open(a.gw) == BHGW_OK) {
        loop_run(a.loop);
    } else {
        log_error(NULL, "cannot start a thread: the limit of the system is reached");
        a.status = FAILED;
    }
    a.state = AGENT_GONE;
    goodbye(&a);
    take_down(&a);
    return a.status;
}
