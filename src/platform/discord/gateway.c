/* gateway.c - design.  (gateway.h has the contract.)
 *
 *            .------------------ closed, op 7, op 9, zombie, silence -----------------.
 *            v                                                                         |
 *      IDLE -> WAITING --session--> CONNECTING -> GREETING --hello--> RESUMING --RESUMED--> LIVE
 *                 |                     ^              '----hello--> IDENTIFYING -READY-----^
 *                 '--none--> QUEUED ----' granted
 *      every state --fatal close code--> STOPPED
 *
 * Here are the states and the socket; what is said over it is in gateway_talk.c. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"
#include "base/rand.h"
#include "platform/discord/gateway_priv.h"

enum {
    CONNECT_MS = 20000, /* the socket itself gives up earlier */
    HELLO_MS = 20000,
    FIRST_RETRY_MS = 1000,
    MAX_RETRY_MS = 60000,
    RESUME_URL_FAILURES = 3, /* then the general address, with the same session */
};

static timer_cb on_patience;

static void log_prefix(const struct log *log, struct buf *out)
{
    const struct dgateway *g = container_of(log, struct dgateway, log);

    buf_printf(out, "platform=discord shard=%u/%u ", g->opt.shard, g->opt.n_shards);
}

struct dgateway *dgateway_new(const struct dgateway_options *opt)
{
    struct dgateway *g = xcalloc(1, sizeof *g);

    g->magic = DGATEWAY_MAGIC;
    g->opt = *opt;
    g->log.prefix = log_prefix;
    g->url = xstrdup(opt->url);
    g->parser = json_parser_new();
    g->latency_ms = -1;
    timer_init(&g->patience, on_patience);
    timer_init(&g->beat, dgateway_on_beat);
    return g;
}

static void drop_socket(struct dgateway *g)
{
    timer_stop(g->opt.clock, &g->beat);
    if (!g->socket)
        return;
    g->socket = false;
    g->opt.wire->drop(g->opt.ctx, g);
}

void dgateway_free(struct dgateway *g)
{
    if (g == NULL)
        return;
    drop_socket(g);
    timer_stop(g->opt.clock, &g->patience);
    json_parser_free(g->parser);
    free(g->url);
    g->magic = 0;
    free(g);
}

/* ---- states ---- */

#define B(state) (1u << DGATEWAY_##state)
static const struct {
    const char *name;
    unsigned next;
    int64_t timeout_ms; /* 0: none, or set by who enters */
} states[] = {
    [DGATEWAY_IDLE] = {"idle", B(WAITING), 0},
    [DGATEWAY_WAITING] = {"waiting", B(QUEUED) | B(CONNECTING) | B(WAITING), 0},
    [DGATEWAY_QUEUED] = {"queued", B(CONNECTING), 0},
    [DGATEWAY_CONNECTING] = {"connecting", B(GREETING) | B(WAITING) | B(STOPPED), CONNECT_MS},
    [DGATEWAY_GREETING] = {"greeting", B(IDENTIFYING) | B(RESUMING) | B(WAITING) | B(STOPPED),
                           HELLO_MS},
    /* No time-outs here: while Discord has an outage it acknowledges heartbeats and answers late.
     */
    [DGATEWAY_IDENTIFYING] = {"identifying", B(LIVE) | B(WAITING) | B(STOPPED), 0},
    [DGATEWAY_RESUMING] = {"resuming", B(LIVE) | B(WAITING) | B(STOPPED), 0},
    [DGATEWAY_LIVE] = {"live", B(WAITING) | B(STOPPED), 0},
    [DGATEWAY_STOPPED] = {"stopped", 0, 0},
};

/* The only writer of g->state. */
void dgateway_enter(struct dgateway *g, enum dgateway_state next)
{
    assert(states[g->state].next & (1u << next));
    log_debug(&g->log, "%s -> %s", states[g->state].name, states[next].name);
    g->state = next;
    timer_stop(g->opt.clock, &g->patience);
    if (states[next].timeout_ms > 0)
        timer_set(g->opt.clock, &g->patience, states[next].timeout_ms);
}

/* Doubling from one second to a minute, each with up to its half on top: a fleet that lost Discord
 * together does not come back together. */
static int64_t backoff_ms(struct dgateway *g)
{
    int64_t ms = FIRST_RETRY_MS;

    for (unsigned i = 1; i < g->failures && ms < MAX_RETRY_MS; i++)
        ms *= 2;
    if (ms > MAX_RETRY_MS)
        ms = MAX_RETRY_MS;
    return ms + (int64_t)rand_below(g->opt.rand, (uint64_t)ms / 2);
}

void dgateway_wait(struct dgateway *g, int64_t ms)
{
    drop_socket(g);
    dgateway_enter(g, DGATEWAY_WAITING);
    timer_set(g->opt.clock, &g->patience, ms);
}

/* The socket is gone or given up: try again, with the session if there is one. */
void dgateway_retry(struct dgateway *g, const char *why)
{
    g->failures++;
    int64_t ms = backoff_ms(g);
    log_info(&g->log, "lost the gateway: %s; again in %lld ms", why, (long long)ms);
    dgateway_wait(g, ms);
}

void dgateway_forget_session(struct dgateway *g)
{
    bool had = g->session_id[0] != '\0';

    g->session_id[0] = g->resume_url[0] = '\0';
    g->confirmed = g->received = 0;
    if (had)
        g->opt.handlers->session_lost(g->opt.ctx, g);
}

static void stop(struct dgateway *g, int code, const char *problem)
{
    log_error(&g->log, "stopped by close code %d: %s", code, problem);
    drop_socket(g);
    dgateway_enter(g, DGATEWAY_STOPPED);
    g->opt.handlers->stopped(g->opt.ctx, g, code, problem);
}

/* ---- connecting ---- */

static const char *next_url(const struct dgateway *g)
{
    bool use_resume = g->session_id[0] != '\0' && g->resume_url[0] != '\0' &&
                      !g->opt.ignore_resume_url && g->failures <= RESUME_URL_FAILURES;

    return use_resume ? g->resume_url : g->url;
}

static void open_socket(struct dgateway *g)
{
    struct buf url = BUF_INIT;
    const char *base = next_url(g);
    size_t n = strlen(base);

    while (n > 0 && base[n - 1] == '/')
        n--;
    buf_add(&url, base, n);
    buf_add_z(&url, "/?v=10&encoding=json");
    dgateway_enter(g, DGATEWAY_CONNECTING);
    g->socket = true;
    g->opt.wire->open(g->opt.ctx, g, buf_z(&url));
    buf_done(&url);
}

void dgateway_set_session(struct dgateway *g, struct str session_id, struct str resume_url,
                          uint64_t seq)
{
    assert(g->state == DGATEWAY_IDLE);
    if (session_id.n == 0 || session_id.n >= sizeof g->session_id ||
        resume_url.n >= sizeof g->resume_url || seq == 0)
        return;
    memcpy(g->session_id, session_id.p, session_id.n);
    if (resume_url.n > 0)
        memcpy(g->resume_url, resume_url.p, resume_url.n);
    g->confirmed = g->received = seq;
}

void dgateway_start(struct dgateway *g)
{
    dgateway_wait(g, 0);
}

static void on_patience(struct timer *t)
{
    struct dgateway *g = container_of(t, struct dgateway, patience);

    if (g->state != DGATEWAY_WAITING) {
        dgateway_retry(g, g->state == DGATEWAY_GREETING ? "no hello" : "no connection in time");
    } else if (g->session_id[0] != '\0') {
        open_socket(g);
    } else {
        dgateway_enter(g, DGATEWAY_QUEUED);
        g->opt.handlers->wants_identify(g->opt.ctx, g);
    }
}

void dgateway_identify(struct dgateway *g)
{
    if (g->state == DGATEWAY_QUEUED)
        open_socket(g);
}

void dgateway_opened(struct dgateway *g)
{
    if (g->state == DGATEWAY_CONNECTING)
        dgateway_enter(g, DGATEWAY_GREETING);
}

void dgateway_replay(struct dgateway *g, int64_t after_ms)
{
    if (g->state == DGATEWAY_STOPPED || g->state == DGATEWAY_IDLE || g->state == DGATEWAY_QUEUED)
        return;
    dgateway_wait(g, after_ms);
}

void dgateway_confirm(struct dgateway *g, uint64_t seq)
{
    if (seq > g->confirmed && seq <= g->received)
        g->confirmed = seq;
}

/* ---- close codes ---- */

enum after_close { AFTER_RESUME, AFTER_IDENTIFY, AFTER_RESHARD, AFTER_STOP };

static const struct {
    int code;
    enum after_close then;
    const char *problem; /* what to do about it */
} closes[] = {
    {4003, AFTER_IDENTIFY, NULL}, /* not authenticated, or the session is invalid */
    {4004, AFTER_STOP,
     "Discord refuses the bot's token: copy the current one from the Developer Portal (Bot, Reset "
     "Token) into the config and restart bellhop"},
    {4007, AFTER_IDENTIFY, NULL}, /* invalid sequence */
    {4009, AFTER_IDENTIFY, NULL}, /* session timed out */
    {4010, AFTER_STOP,
     "Discord refuses this shard number: restart bellhop so that it asks Discord again how many "
     "there are"},
    {4011, AFTER_RESHARD, NULL},
    {4012, AFTER_STOP, "Discord no longer speaks gateway version 10: update bellhop"},
    {4013, AFTER_STOP,
     "Discord does not know one of the bot's intents: correct `intents` in the config and restart "
     "bellhop"},
    {4014, AFTER_STOP,
     "the bot may not use an intent it asks for: switch on Message Content Intent (and any other "
     "privileged one in `intents`) in the Developer Portal under Bot, then restart bellhop"},
};

void dgateway_closed(struct dgateway *g, int code, const char *why)
{
    char text[200];

    if (!g->socket)
        return;
    for (size_t i = 0; i < ARRAY_LEN(closes); i++) {
        if (closes[i].code != code)
            continue;
        if (closes[i].then == AFTER_STOP) {
            stop(g, code, closes[i].problem);
            return;
        }
        if (closes[i].then == AFTER_RESHARD) {
            drop_socket(g);
            dgateway_enter(g, DGATEWAY_STOPPED);
            g->opt.handlers->wants_shards(g->opt.ctx, g);
            return;
        }
        dgateway_forget_session(g);
    }
    snprintf(text, sizeof text, "close code %d %s", code, why != NULL ? why : "");
    dgateway_retry(g, text);
}

/* ---- looking ---- */

enum dgateway_state dgateway_state(const struct dgateway *g)
{
    return g->state;
}

const char *dgateway_state_name(enum dgateway_state s)
{
    return states[s].name;
}

unsigned dgateway_shard(const struct dgateway *g)
{
    return g->opt.shard;
}

int64_t dgateway_latency_ms(const struct dgateway *g)
{
    return g->latency_ms;
}

struct dgateway_session dgateway_session(const struct dgateway *g)
{
    return (struct dgateway_session){g->session_id, g->resume_url, g->confirmed};
}
