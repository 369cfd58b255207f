/* acp.c - programs that speak ACP: processes, sessions, prompts.  (acp_priv.h has the picture.)
 *
 * A session looks for a host in this order: one with room, a new one, a place of an idle session
 * that can be closed, the place of an idle host that is ended.  Else the session waits, in
 * backend->hungry, until a turn ends or a host exits.
 *
 * When a host exits, its turns end with TURN_DIED; turn.c repeats those in which nothing was said.
 * The next host continues the session with `session/resume`, else `session/load`; the updates that
 * load repeats are swallowed.  Where neither works, the session is a new one, and the chat is
 * told.
 *
 * Long because a host, its sessions and their prompts end together or go on together. */
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "agent/acp_priv.h"
#include "agent/files.h"
#include "agent/kept_sessions.h"
#include "base/jw.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/loop.h"
#include "net/program.h"

#define MAX_LINE ((size_t)32 << 20)
#define START_MS 120000 /* the answer to initialize; the first start of an npx package is slow */
#define OPEN_MS 120000
#define CANCEL_MS 10000 /* from session/cancel to the end of the process */
#define KILL_MS 2000
#define STEADY_MS 30000
#define LOGGED_LINES 200 /* lines of stderr, and unusable lines, that a host may log */
#define NO_RESOURCE -32002

struct acp {
    struct backend base;
    struct agent *agent; /* borrowed */
    struct list hosts;   /* struct acp_host */
    struct list hungry;  /* struct acp_session */
    size_t n_hosts;
    struct kept_sessions *kept;
    char *cwd;
    unsigned failures; /* exits in a row without a finished prompt */
    struct timer restart;
    bool ending;
};

static timer_cb on_restart, on_host_patience, on_host_idle, on_session_patience, on_again;
static const struct program_ops program_ops;
static const struct jsonrpc_ops rpc_ops;

struct acp *acp_of(struct backend *b)
{
    return container_of(b, struct acp, base);
}

/* ---- hosts ---- */

static void fail_start(struct acp *b, const char *why)
{
    b->failures++;
    log_error(NULL, "%s; next try in %" PRId64 " ms", why, restart_ms(b->failures));
    timer_set(b->agent->clock, &b->restart, restart_ms(b->failures));
}

/* The program speaks another protocol, or none: it is ended. */
static void host_useless(struct acp_host *h, const char *why)
{
    h->state = HOST_RETIRING;
    h->useless = xstrdup(why);
    program_signal(h->prog, SIGTERM);
    timer_set(h->backend->agent->clock, &h->patience, KILL_MS);
}

static bool flag(struct json object, const char *key)
{
    return json_as_bool(json_get(object, key), false);
}

static void host_ready(struct acp_host *h)
{
    h->state = HOST_READY;
    list_each (&h->sessions, it, next)
        acp_advance(list_entry(it, struct acp_session, link));
}

static void on_authenticated(void *ctx, const struct jsonrpc_result *r)
{
    struct acp_host *h = ctx;

    timer_stop(h->backend->agent->clock, &h->patience);
    if (r->ok) {
        host_ready(h);
        return;
    }
    char *said = acp_reason(h, r), why[400];
    snprintf(why, sizeof why, "it refused --login %.60s: %.300s", h->backend->agent->opt->login,
             said);
    free(said);
    host_useless(h, why);
}

/* Logs in the way that --login names. */
static void authenticate(struct acp_host *h)
{
    BUF_LOCAL params = BUF_INIT;
    struct jw w = jw_begin(&params);

    jw_obj(&w);
    jw_kstr(&w, "methodId", str_of(h->backend->agent->opt->login));
    jw_end_obj(&w);
    timer_set(h->backend->agent->clock, &h->patience, START_MS);
    uint64_t call = jsonrpc_call(h->rpc, "authenticate", buf_str(&params), on_authenticated, h);
    (void)call; /* the second of its connection: there is room */
}

static void on_initialized(void *ctx, const struct jsonrpc_result *r)
{
    struct acp_host *h = ctx;
    struct json can = json_get(r->value, "agentCapabilities"),
                prompt = json_get(can, "promptCapabilities"),
                session = json_get(can, "sessionCapabilities");
    char why[300];

    timer_stop(h->backend->agent->clock, &h->patience);
    if (!r->ok) {
        BUF_LOCAL said = BUF_INIT;
        buf_add_plain(&said, str_make(r->message.p, r->message.n < 200 ? r->message.n : 200));
        snprintf(why, sizeof why, "it refused initialize: %s", buf_z(&said));
        host_useless(h, why);
        return;
    }
    if (json_i64(r->value, "protocolVersion", 0) != 1) {
        snprintf(why, sizeof why,
                 "it speaks version %" PRId64 " of the Agent Client Protocol, bellhop version 1",
                 json_i64(r->value, "protocolVersion", 0));
        host_useless(h, why);
        return;
    }
    h->can_load = flag(can, "loadSession");
    h->can_resume = json_is_object(json_get(session, "resume"));
    h->can_close = json_is_object(json_get(session, "close"));
    h->takes_images = flag(prompt, "image");
    h->takes_audio = flag(prompt, "audio");
    h->takes_files = flag(prompt, "embeddedContext");
    h->login = acp_login(json_get(r->value, "authMethods"));
    log_info(NULL, "the agent is ready: load=%d resume=%d close=%d image=%d audio=%d files=%d",
             h->can_load, h->can_resume, h->can_close, h->takes_images, h->takes_audio,
             h->takes_files);
    if (h->backend->agent->opt->login != NULL)
        authenticate(h);
    else
        host_ready(h);
}

static void initialize(struct acp_host *h)
{
    BUF_LOCAL params = BUF_INIT;

    acp_write_initialize(&params);
    uint64_t call = jsonrpc_call(h->rpc, "initialize", buf_str(&params), on_initialized, h);
    (void)call; /* the first of its connection: there is room */
}

/* NULL: it cannot start now; the next try is scheduled. */
static struct acp_host *host_start(struct acp *b)
{
    struct agent *a = b->agent;
    struct acp_host *h = xcalloc(1, sizeof *h);
    char why[256], line[300];

    *h = (struct acp_host){.backend = b, .by_id = MAP_INIT};
    list_init(&h->link);
    list_init(&h->sessions);
    timer_init(&h->patience, on_host_patience);
    timer_init(&h->idle, on_host_idle);
    struct program_order order = {.argv = a->opt->argv, .envp = a->envp, .max_line = MAX_LINE};
    h->prog = program_start(a->loop, &order, &program_ops, h, why);
    if (h->prog == NULL) {
        snprintf(line, sizeof line, "cannot start %s", why);
        fail_start(b, line);
        free(h);
        return NULL;
    }
    h->rpc = jsonrpc_new(&rpc_ops, h);
    h->started_ms = clock_now_ms(a->clock);
    list_append(&b->hosts, &h->link);
    b->n_hosts++;
    timer_set(a->clock, &h->patience, START_MS);
    initialize(h);
    return h;
}

static void host_free(struct acp_host *h)
{
    struct acp *b = h->backend;

    timer_stop(b->agent->clock, &h->patience);
    timer_stop(b->agent->clock, &h->idle);
    program_free(h->prog);
    jsonrpc_free(h->rpc);
    map_done(&h->by_id);
    list_remove(&h->link);
    b->n_hosts--;
    free(h->login);
    free(h->useless);
    free(h);
}

static void on_host_patience(struct timer *t)
{
    struct acp_host *h = container_of(t, struct acp_host, patience);

    if (h->state == HOST_STARTING)
        host_useless(h, "it did not answer initialize; does it speak the Agent Client Protocol?");
    else
        program_signal(h->prog, SIGKILL);
}

/* An idle program ends if its sessions can be continued later. */
static void on_host_idle(struct timer *t)
{
    struct acp_host *h = container_of(t, struct acp_host, idle);

    if (h->n_turns == 0 && h->state == HOST_READY && (h->can_resume || h->can_load)) {
        h->state = HOST_RETIRING;
        program_end(h->prog);
    }
}

/* A program that ignored a cancellation ends as soon as no other chat needs it. */
static void host_retire(struct acp_host *h)
{
    h->state = HOST_RETIRING;
    if (h->n_turns > 0 || timer_is_set(&h->patience))
        return;
    program_signal(h->prog, SIGTERM);
    timer_set(h->backend->agent->clock, &h->patience, KILL_MS);
}

/* ---- sessions find a host ---- */

static void session_leave(struct acp_session *s)
{
    struct acp_host *h = s->host;

    if (h != NULL && s->request != 0)
        jsonrpc_forget(h->rpc, &s->request);
    if (h != NULL && s->command_request != 0)
        jsonrpc_forget(h->rpc, &s->command_request);
    if (h != NULL && s->prompted)
        h->n_turns--;
    if (h != NULL && s->id != NULL && map_get(&h->by_id, str_of(s->id)) == s)
        map_del(&h->by_id, str_of(s->id));
    acp_drop_permissions(s, false);
    files_cancel(&s->files);
    timer_stop(s->backend->agent->clock, &s->patience);
    list_remove(&s->link);
    free(s->id);
    free(s->message);
    s->id = s->message = NULL;
    s->host = NULL;
    s->state = ACP_OFF;
    s->prompted = s->replaying = false;
}

static bool is_idle(const struct acp_session *s)
{
    return s->turn == NULL && s->command == NULL && s->state == ACP_OPEN;
}

/* The agent has no session for it any more. */
static void session_lost(struct acp_session *s)
{
    s->host->n_sessions--;
    session_leave(s);
}

/* With @place also where the agent works, for a session that is opened. */
static void write_session(struct buf *params, const struct acp_session *s, bool place)
{
    struct jw w = jw_begin(params);

    jw_obj(&w);
    jw_kstr_opt(&w, "sessionId", str_of(s->id));
    if (place) {
        jw_kstr(&w, "cwd", str_of(s->backend->cwd));
        jw_karr(&w, "mcpServers");
        jw_end_arr(&w);
    }
    jw_end_obj(&w);
}

static void on_closed(void *ctx, const struct jsonrpc_result *r)
{
    if (!r->ok)
        log_debug(NULL, "a session could not be closed");
}

/* Leaves the host; the agent may free the session. */
static void session_close(struct acp_session *s)
{
    struct acp_host *h = s->host;
    BUF_LOCAL params = BUF_INIT;

    write_session(&params, s, false);
    if (h->can_close && s->state == ACP_OPEN &&
        jsonrpc_call(h->rpc, "session/close", buf_str(&params), on_closed, NULL) != 0)
        h->n_sessions--;
    session_leave(s);
}

/* Closes the session that was idle longest, on a host that can close sessions. */
static struct acp_host *make_place(struct acp *b)
{
    list_each (&b->hosts, it, next) {
        struct acp_host *h = list_entry(it, struct acp_host, link);
        if (h->state != HOST_READY || !h->can_close)
            continue;
        list_each (&h->sessions, it2, next2) {
            struct acp_session *s = list_entry(it2, struct acp_session, link);
            if (!is_idle(s))
                continue;
            session_close(s);
            return h;
        }
    }
    return NULL;
}

/* Ends the host that was idle longest. */
static void end_idle_host(struct acp *b)
{
    list_each (&b->hosts, it, next) {
        struct acp_host *h = list_entry(it, struct acp_host, link);
        bool busy = h->state != HOST_READY;
        list_each (&h->sessions, it2, next2)
            busy |= !is_idle(list_entry(it2, struct acp_session, link));
        if (!busy) {
            h->state = HOST_RETIRING;
            program_end(h->prog);
            return;
        }
    }
}

static bool find_host(struct acp_session *s)
{
    struct acp *b = s->backend;
    struct acp_host *found = NULL;

    list_each (&b->hosts, it, next) {
        struct acp_host *h = list_entry(it, struct acp_host, link);
        if (h->state != HOST_RETIRING && h->n_sessions < b->agent->opt->sessions)
            found = h;
    }
    if (found == NULL && !timer_is_set(&b->restart) && b->n_hosts < b->agent->opt->max_programs)
        found = host_start(b);
    if (found == NULL)
        found = make_place(b);
    if (found == NULL) {
        if (!list_is_linked(&s->link))
            list_append(&b->hungry, &s->link);
        if (b->n_hosts >= b->agent->opt->max_programs)
            end_idle_host(b);
        return false;
    }
    list_remove(&s->link);
    list_append(&found->sessions, &s->link);
    s->host = found;
    found->n_sessions++;
    timer_stop(b->agent->clock, &found->idle);
    return true;
}

/* There may be room: the sessions that waited longest come first. */
static void feed_hungry(struct acp *b)
{
    while (!list_is_empty(&b->hungry) && !b->ending) {
        struct acp_session *s = list_first(&b->hungry, struct acp_session, link);
        acp_advance(s);
        if (s->host == NULL)
            return;
    }
}

/* A session that has nothing to do gives its place to the next. */
static void go_on(struct acp_session *s)
{
    acp_advance(s);
    if (is_idle(s))
        feed_hungry(s->backend);
}

static void on_restart(struct timer *t)
{
    feed_hungry(container_of(t, struct acp, restart));
}

/* ---- opening a session ---- */

static void session_failed(struct acp_session *s, const struct jsonrpc_result *r)
{
    char *why = acp_reason(s->host, r);
    struct agent_turn *t = s->turn;

    log_warn(NULL, "the agent refused: session_key=%s why=%s", s->conversation->key, why);
    s->turn = NULL;
    if (s->command != NULL) {
        BUF_LOCAL text = BUF_INIT;
        buf_printf(&text, "The agent could not do that: %s", why);
        conversation_tell(s->conversation, buf_str(&text));
        acp_drop_command(s);
    }
    if (t != NULL)
        turn_end(t, TURN_FAILED, why);
    free(why);
}

static void session_opened(struct acp_session *s, struct str id, struct json result)
{
    char *copy = str_dup(id);

    if (s->id != NULL && map_get(&s->host->by_id, str_of(s->id)) == s)
        map_del(&s->host->by_id, str_of(s->id)); /* the map borrows the bytes of the id */
    free(s->id);
    s->id = copy;
    s->state = ACP_OPEN;
    s->replaying = false;
    map_put(&s->host->by_id, str_of(s->id), s);
    kept_sessions_put(s->backend->kept, str_of(s->conversation->key), str_of(s->id),
                      conversation_person(s->conversation));
    acp_keep_state(s, result);
    go_on(s);
}

static void on_new(void *ctx, const struct jsonrpc_result *r)
{
    struct acp_session *s = ctx;
    struct str id = json_str(r->value, "sessionId");

    s->request = 0;
    timer_stop(s->backend->agent->clock, &s->patience);
    bool taken = r->ok && map_get(&s->host->by_id, id) != NULL;
    if (r->ok && id.n > 0 && !taken) {
        s->used = s->continued = false;
        session_opened(s, id, r->value);
        return;
    }
    session_failed(s,
                   r->ok ? &(struct jsonrpc_result){.message = STR("it gave no session of its own")}
                         : r);
    session_lost(s);
    feed_hungry(s->backend);
}

static void tell_new(struct acp_session *s)
{
    conversation_tell(s->conversation,
                      STR("[This is a new session: the agent does not remember what was said "
                          "before.]"));
}

static void open_new(struct acp_session *s, bool tell)
{
    BUF_LOCAL params = BUF_INIT;

    if (tell)
        tell_new(s);
    free(s->id); /* of a session that could not be continued */
    s->id = NULL;
    write_session(&params, s, true);
    s->request = jsonrpc_call(s->host->rpc, "session/new", buf_str(&params), on_new, s);
}

static void on_continued(void *ctx, const struct jsonrpc_result *r)
{
    struct acp_session *s = ctx;
    struct str key = str_of(s->conversation->key);

    s->request = 0;
    s->replaying = false;
    if (r->ok) {
        timer_stop(s->backend->agent->clock, &s->patience);
        s->used = s->continued = true;
        session_opened(s, str_of(s->id), r->value);
        return;
    }
    log_warn(NULL, "the agent could not continue a session: session_key=%s why=%.*s",
             s->conversation->key, (int)(r->message.n < 200 ? r->message.n : 200), r->message.p);
    if (r->code == AUTH_REQUIRED) { /* the session is still there, behind the login */
        session_failed(s, r);
        session_lost(s);
        feed_hungry(s->backend);
        return;
    }
    map_del(&s->host->by_id, str_of(s->id)); /* session_open() has put it */
    kept_sessions_forget(s->backend->kept, key);
    open_new(s, !s->fresh);
}

static void session_open(struct acp_session *s)
{
    struct acp_host *h = s->host;
    const char *id = kept_sessions_get(s->backend->kept, str_of(s->conversation->key));
    BUF_LOCAL params = BUF_INIT;

    s->state = ACP_OPENING;
    timer_set(s->backend->agent->clock, &s->patience, OPEN_MS);
    bool taken = id != NULL && map_get(&h->by_id, str_of(id)) != NULL;
    if (id == NULL || taken || (!h->can_resume && !h->can_load)) {
        open_new(s, id != NULL && !s->fresh);
        return;
    }
    s->id = xstrdup(id);
    s->replaying = !h->can_resume;
    map_put(&h->by_id, str_of(s->id), s);
    write_session(&params, s, true);
    s->request = jsonrpc_call(h->rpc, h->can_resume ? "session/resume" : "session/load",
                              buf_str(&params), on_continued, s);
}

/* ---- prompts ---- */

static void on_prompted(void *ctx, const struct jsonrpc_result *r);

static void send_prompt(struct acp_session *s, const struct turn_file *files, size_t n)
{
    BUF_LOCAL params = BUF_INIT;

    acp_write_prompt(&params, s, files, n);
    free(s->message);
    s->message = NULL;
    s->request = jsonrpc_call(s->host->rpc, "session/prompt", buf_str(&params), on_prompted, s);
    s->prompted = true;
    s->host->n_turns++;
    turn_alive(s->turn);
}

static void on_files(void *ctx, const struct turn_file *files, size_t n)
{
    struct acp_session *s = ctx;

    send_prompt(s, files, n);
    files_cancel(&s->files);
}

/* The prompt has ended: the session is free for the next turn. */
static struct agent_turn *prompt_over(struct acp_session *s)
{
    struct acp_host *h = s->host;
    struct agent_turn *t = s->turn;

    s->request = 0;
    s->turn = NULL;
    s->prompted = false;
    h->n_turns--;
    acp_drop_permissions(s, true);
    timer_stop(s->backend->agent->clock, &s->patience);
    list_move(&s->link, &h->sessions);
    list_move(&h->link, &s->backend->hosts);
    if (h->state == HOST_RETIRING)
        host_retire(h);
    else if (h->n_turns == 0)
        timer_set(s->backend->agent->clock, &h->idle, s->backend->agent->opt->chat_idle_ms);
    return t;
}

/* The agent does not have the session any more.  Hermes resumes a session that it does not know
 * without an error, and then refuses each prompt. */
static bool is_forgotten(const struct acp_session *s, const struct agent_turn *t,
                         const struct jsonrpc_result *r)
{
    if (!r->ok)
        return r->code == NO_RESOURCE && s->used;
    return s->continued && !t->asked && !answer_is_said(t->answer) &&
           str_eq(json_str(r->value, "stopReason"), STR("refusal"));
}

static void prompt_ended(struct acp_session *s, struct agent_turn *t, struct str stop)
{
    s->backend->failures = 0;
    s->used = true;
    s->fresh = s->continued = false;
    turn_paragraph(t);
    if (str_eq(stop, STR("max_tokens")))
        turn_text(t, STR("[The agent stopped: the limit of tokens is reached.]"));
    else if (str_eq(stop, STR("max_turn_requests")))
        turn_text(t, STR("[The agent stopped: it made too many requests in one turn.]"));
    else if (str_eq(stop, STR("refusal")))
        turn_text(t, STR("[The agent refuses to continue.]"));
    turn_end(t, str_eq(stop, STR("cancelled")) ? TURN_CANCELLED : TURN_DONE, NULL);
}

static void on_prompted(void *ctx, const struct jsonrpc_result *r)
{
    struct acp_session *s = ctx;
    struct acp *b = s->backend;
    char *why = r->ok ? xstrdup("it refuses to continue") : acp_reason(s->host, r);
    struct agent_turn *t = prompt_over(s);
    bool forgotten = is_forgotten(s, t, r);

    if (!r->ok || forgotten)
        log_warn(NULL, "a prompt failed: session_key=%s why=%s", s->conversation->key, why);
    if (forgotten || (!r->ok && r->code == NO_RESOURCE)) {
        kept_sessions_forget(b->kept, str_of(s->conversation->key));
        session_lost(s);
    }
    if (forgotten) {
        tell_new(s);
        turn_end(t, TURN_DIED, why); /* repeated in a new session if nothing was said */
    } else if (r->ok) {
        prompt_ended(s, t, json_str(r->value, "stopReason"));
    } else {
        turn_end(t, TURN_FAILED, why);
    }
    free(why);
    feed_hungry(b);
}

void acp_advance(struct acp_session *s)
{
    if (s->turn == NULL && s->command == NULL)
        return;
    if (s->host != NULL && s->host->state == HOST_RETIRING && !s->prompted &&
        s->host->useless == NULL)
        session_leave(s);
    if (s->host == NULL && !find_host(s))
        return;
    if (s->host->state != HOST_READY)
        return;
    if (s->state == ACP_OFF) {
        session_open(s);
    } else if (s->state == ACP_OPEN && s->command != NULL) {
        acp_obey(s);
    } else if (s->state == ACP_OPEN && !s->prompted && s->files == NULL) {
        s->files = files_fetch(s->backend->agent, s->turn, acp_wants_file, on_files, s);
        if (s->files == NULL)
            send_prompt(s, NULL, 0);
    }
}

static void on_again(struct timer *t)
{
    go_on(container_of(t, struct acp_session, again));
}

struct acp_session *acp_session_of(struct acp *b, struct conversation *c)
{
    struct acp_session *s = c->session;

    if (s == NULL) {
        s = xcalloc(1, sizeof *s);
        *s = (struct acp_session){.backend = b, .conversation = c};
        list_init(&s->link);
        list_init(&s->permissions);
        timer_init(&s->patience, on_session_patience);
        timer_init(&s->again, on_again);
        c->session = s;
    }
    return s;
}

/* The person of the session was erased: the next message begins a new one. */
static bool is_erased(const struct acp_session *s)
{
    return s->state == ACP_OPEN && s->command == NULL && strlen(s->id) <= KEPT_SESSION_BYTES &&
           kept_sessions_get(s->backend->kept, str_of(s->conversation->key)) == NULL;
}

static void acp_begin(struct backend *base, struct agent_turn *t)
{
    struct acp *b = acp_of(base);
    struct acp_session *s = acp_session_of(b, t->conversation);

    if (is_erased(s))
        session_close(s);
    s->turn = t;
    acp_advance(s);
}

/* ---- /stop ---- */

static void acp_cancel(struct backend *base, struct agent_turn *t)
{
    struct acp_session *s = t->conversation->session;
    BUF_LOCAL params = BUF_INIT;

    if (s == NULL || s->turn != t)
        return;
    if (!s->prompted) { /* it waits for a program, a session or a file */
        files_cancel(&s->files);
        s->turn = NULL;
        if (s->host == NULL && s->command == NULL)
            list_remove(&s->link);
        else if (s->state == ACP_OFF && s->command == NULL)
            session_lost(s); /* the program does not know it yet: its place is free */
        turn_end(t, TURN_CANCELLED, NULL);
        feed_hungry(acp_of(base));
        return;
    }
    acp_drop_permissions(s, true);
    write_session(&params, s, false);
    jsonrpc_notify(s->host->rpc, "session/cancel", buf_str(&params));
    timer_set(s->backend->agent->clock, &s->patience, CANCEL_MS);
}

/* The agent ignores the cancellation or a command, or does not open the session. */
static void on_session_patience(struct timer *timer)
{
    struct acp_session *s = container_of(timer, struct acp_session, patience);
    struct acp_host *h = s->host;
    struct agent_turn *t = s->turn;
    bool cancelled = s->prompted, commanded = s->command_request != 0;

    log_warn(NULL, "the agent does not answer %s: session_key=%s",
             cancelled   ? "session/cancel"
             : commanded ? "a command"
                         : "session/new",
             s->conversation->key);
    if (s->command != NULL) /* its session may not have opened */
        conversation_tell(s->conversation, STR("The agent did not answer the command."));
    acp_drop_command(s);
    session_leave(s);
    s->turn = NULL;
    host_retire(h);
    if (t != NULL && cancelled)
        turn_end(t, TURN_CANCELLED, NULL);
    else if (t != NULL)
        turn_end(t, TURN_FAILED,
                 commanded ? "it is busy with a command" : "it does not open a session");
}

/* ---- what the program says ---- */

static void on_request(void *ctx, uint64_t ticket, struct str method, struct json params)
{
    struct acp_host *h = ctx;
    struct acp_session *s = map_get(&h->by_id, json_str(params, "sessionId"));

    if (!str_eq(method, STR("session/request_permission")))
        jsonrpc_refuse(h->rpc, ticket, JSONRPC_NO_METHOD, "bellhop does not offer this method");
    else if (s == NULL)
        jsonrpc_refuse(h->rpc, ticket, JSONRPC_INVALID_PARAMS, "there is no such session");
    else
        acp_asked(s, ticket, params);
}

static void on_notified(void *ctx, struct str method, struct json params)
{
    struct acp_host *h = ctx;
    struct acp_session *s = map_get(&h->by_id, json_str(params, "sessionId"));

    if (str_eq(method, STR("session/update")) && s != NULL)
        acp_updated(s, json_get(params, "update"));
    else if (str_eq(method, STR("$/cancel_request")))
        acp_ask_cancelled(h, jsonrpc_ticket(h->rpc, json_get(params, "requestId")));
}

static void on_noise(void *ctx, struct str line, const char *why)
{
    struct acp_host *h = ctx;

    if (h->stray++ < LOGGED_LINES)
        log_warn(NULL, "ignored a line of the program (%zu bytes): %s", line.n, why);
}

static void on_write(void *ctx, struct str line)
{
    program_write(((struct acp_host *)ctx)->prog, line);
}

static const struct jsonrpc_ops rpc_ops = {.write = on_write,
                                           .request = on_request,
                                           .notified = on_notified,
                                           .noise = on_noise};

static void on_line(void *ctx, struct str line)
{
    jsonrpc_line(((struct acp_host *)ctx)->rpc, line);
}

static void on_complaint(void *ctx, struct str line)
{
    struct acp_host *h = ctx;
    BUF_LOCAL text = BUF_INIT;

    if (str_trim(line).n == 0 || h->complaints++ > LOGGED_LINES)
        return;
    buf_add_plain(&text, line);
    if (h->complaints > LOGGED_LINES)
        log_warn(NULL, "the program writes too much on standard error: the rest is not logged");
    else
        log_warn(NULL, "the program says: %s", buf_z(&text));
}

static void on_ended(void *ctx, bool well, const char *how)
{
    struct acp_host *h = ctx;
    struct acp *b = h->backend;
    struct agent *a = b->agent;
    bool expected = (h->state == HOST_RETIRING && h->useless == NULL) || b->ending;
    char *why = h->useless != NULL ? h->useless : xstrdup(how);
    enum turn_end end = h->useless != NULL ? TURN_FAILED : TURN_DIED;
    struct list left;

    if (clock_now_ms(a->clock) - h->started_ms > STEADY_MS || expected)
        b->failures = 0;
    if (!expected) {
        BUF_LOCAL line = BUF_INIT;
        buf_printf(&line, "the program ended: %s; unfinished turns: %zu", why, h->n_turns);
        fail_start(b, buf_z(&line));
    }
    h->useless = NULL;
    list_init(&left);
    while (!list_is_empty(&h->sessions)) {
        struct acp_session *s = list_first(&h->sessions, struct acp_session, link);
        if (s->command_request != 0) { /* else the next program would get the command too */
            conversation_tell(s->conversation,
                              STR("The agent ended before it answered the command."));
            acp_drop_command(s);
        }
        s->fresh = !s->used && s->state != ACP_OFF;
        session_leave(s);
        list_append(&left, &s->link);
    }
    host_free(h);
    while (!list_is_empty(&left)) {
        struct acp_session *s = list_first(&left, struct acp_session, link);
        struct agent_turn *t = s->turn;
        list_remove(&s->link);
        s->turn = NULL;
        if (t != NULL)
            turn_end(t, end, why);
        else
            acp_advance(s); /* a command may wait */
    }
    free(why);
    feed_hungry(b);
    agent_moved(a);
}

static const struct program_ops program_ops = {.line = on_line,
                                               .ended = on_ended,
                                               .complaint = on_complaint};

/* ---- the backend ---- */

static struct backend *acp_open(struct agent *a, char *ret_why)
{
    char cwd[PATH_MAX];

    if (getcwd(cwd, sizeof cwd) == NULL) {
        snprintf(ret_why, 256, "the working directory is gone");
        return NULL;
    }
    struct acp *b = xcalloc(1, sizeof *b);
    *b = (struct acp){.base.agent = a, .agent = a, .cwd = xstrdup(cwd)};
    list_init(&b->hosts);
    list_init(&b->hungry);
    timer_init(&b->restart, on_restart);
    b->kept = kept_sessions_open(a->opt->sessions_file);
    host_start(b); /* ready before the first message is, and complaints show at once */
    return &b->base;
}

static void acp_forget(struct backend *base, struct conversation *c)
{
    struct acp_session *s = c->session;

    acp_drop_command(s);
    timer_stop(base->agent->clock, &s->again);
    if (s->host != NULL)
        session_close(s);
    else
        session_leave(s);
    for (size_t i = 0; i < ACP_MAX_TOOLS; i++) {
        free(s->tools[i].id);
        free(s->tools[i].title);
    }
    free(s->modes);
    free(s->mode);
    free(s->models);
    free(s->model);
    free(s->options);
    free(s);
    c->session = NULL;
}

static void acp_close(struct backend *base)
{
    struct acp *b = acp_of(base);

    list_each (&b->agent->conversations, it, next) {
        struct conversation *c = list_entry(it, struct conversation, link);
        if (c->session != NULL)
            acp_forget(base, c);
    }
    while (!list_is_empty(&b->hosts))
        host_free(list_first(&b->hosts, struct acp_host, link));
    timer_stop(b->agent->clock, &b->restart);
    kept_sessions_close(b->kept);
    free(b->cwd);
    free(b);
}

static void acp_end(struct backend *base)
{
    struct acp *b = acp_of(base);

    b->ending = true;
    timer_stop(b->agent->clock, &b->restart);
    while (!list_is_empty(&b->hungry)) { /* no program will come for them */
        struct acp_session *s = list_first(&b->hungry, struct acp_session, link);
        struct agent_turn *t = s->turn;
        list_remove(&s->link);
        s->turn = NULL;
        if (t != NULL)
            turn_end(t, TURN_DIED, "it was shut down");
    }
    list_each (&b->hosts, it, next)
        program_end(list_entry(it, struct acp_host, link)->prog);
}

static bool acp_is_ended(const struct backend *base)
{
    return container_of(base, const struct acp, base)->n_hosts == 0;
}

const struct backend_ops acp_backend = {
    .name = "acp",
    .open = acp_open,
    .close = acp_close,
    .begin = acp_begin,
    .cancel = acp_cancel,
    .command = acp_command,
    .forget = acp_forget,
    .end = acp_end,
    .is_ended = acp_is_ended,
};
