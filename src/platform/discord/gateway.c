/* gateway.c - design.  (gateway.h has the contract.)
 *
 *            .------------------ closed, op 7, op 9, zombie, silence -----------------.
 *            v                                                                         |
 *      IDLE -> WAITING --session--> CONNECTING -> GREETING --hello--> RESUMING --RESUMED--> LIVE
 *                 |                     ^              '----hello--> IDENTIFYING -READY-----^
 *                 '--none--> QUEUED ----' granted
 *      every state --fatal close code--> STOPPED
 *
 * Heartbeats run from hello until the socket goes, whatever the state.  A beat that is due is sent
 * before the next message is looked at: after a stall of the whole process the backlog of events
 * may take long, and Discord must hear from us first.  For the same reason a missing
 * acknowledgement counts as death only when our own timer was on time: if we were the ones asleep,
 * the acknowledgement may lie unread in the socket. */
#include "platform/discord/gateway.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rand.h"

enum {
    OP_DISPATCH = 0,
    OP_HEARTBEAT = 1,
    OP_IDENTIFY = 2,
    OP_RESUME = 6,
    OP_RECONNECT = 7,
    OP_INVALID_SESSION = 9,
    OP_HELLO = 10,
    OP_HEARTBEAT_ACK = 11,
};

enum {
    CONNECT_MS = 20000, /* the socket itself gives up earlier */
    HELLO_MS = 20000,
    FIRST_RETRY_MS = 1000,
    MAX_RETRY_MS = 60000,
    STALL_MS = 2000,            /* a timer this late means that we stood still */
    RESUME_URL_FAILURES = 3,    /* then the general address, with the same session */
    MAX_SENDS_PER_MINUTE = 110, /* Discord closes at 120 */
    MIN_BEAT_MS = 100,
    MAX_BEAT_MS = 600000,
};

struct dgateway {
    unsigned magic;
#define DGATEWAY_MAGIC 0x64677779u
    struct dgateway_options opt;
    struct log log;
    enum dgateway_state state;
    char *url; /* owned */
    /* the session; session_id "" means there is none */
    char session_id[128], resume_url[256];
    uint64_t confirmed, received;
    /* the socket */
    bool socket;                /* there is one, open or being opened */
    struct json_parser *parser; /* owned */
    struct timer patience, beat;
    int64_t beat_ms, beat_due_ms, beat_sent_ms, latency_ms;
    bool beat_acked;
    unsigned failures; /* attempts since the last time we were LIVE */
    int64_t minute_ms; /* when the minute of @sends began */
    unsigned sends;
};

static timer_cb on_patience, on_beat;

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
    timer_init(&g->beat, on_beat);
    return g;
}

static int64_t now_ms(const struct dgateway *g)
{
    return clock_now_ms(g->opt.clock);
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
static void dgateway_enter(struct dgateway *g, enum dgateway_state next)
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

static void wait_for(struct dgateway *g, int64_t ms)
{
    drop_socket(g);
    dgateway_enter(g, DGATEWAY_WAITING);
    timer_set(g->opt.clock, &g->patience, ms);
}

/* The socket is gone or given up: try again, with the session if there is one. */
static void retry(struct dgateway *g, const char *why)
{
    g->failures++;
    int64_t ms = backoff_ms(g);
    log_info(&g->log, "lost the gateway: %s; again in %lld ms", why, (long long)ms);
    wait_for(g, ms);
}

static void forget_session(struct dgateway *g)
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
    wait_for(g, 0);
}

static void on_patience(struct timer *t)
{
    struct dgateway *g = container_of(t, struct dgateway, patience);

    if (g->state != DGATEWAY_WAITING) {
        retry(g, g->state == DGATEWAY_GREETING ? "no hello" : "no connection in time");
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
    wait_for(g, after_ms);
}

/* ---- sending ---- */

static bool may_send(struct dgateway *g)
{
    if (now_ms(g) - g->minute_ms >= 60000) {
        g->minute_ms = now_ms(g);
        g->sends = 0;
    }
    return ++g->sends <= MAX_SENDS_PER_MINUTE;
}

static void send_beat(struct dgateway *g)
{
    char text[64];

    if (g->confirmed > 0)
        snprintf(text, sizeof text, "{\"op\":1,\"d\":%llu}", (unsigned long long)g->confirmed);
    else
        snprintf(text, sizeof text, "{\"op\":1,\"d\":null}");
    g->beat_sent_ms = now_ms(g);
    g->beat_acked = false;
    if (may_send(g))
        g->opt.wire->send(g->opt.ctx, g, str_of(text));
}

static void arm_beat(struct dgateway *g, int64_t after_ms)
{
    g->beat_due_ms = now_ms(g) + after_ms;
    timer_set(g->opt.clock, &g->beat, after_ms);
}

static void on_beat(struct timer *t)
{
    struct dgateway *g = container_of(t, struct dgateway, beat);

    if (!g->beat_acked && now_ms(g) - g->beat_due_ms < STALL_MS) {
        retry(g, "no answer to the last heartbeat");
        return;
    }
    send_beat(g);
    arm_beat(g, g->beat_ms);
}

static void send_identify(struct dgateway *g)
{
    struct buf b = BUF_INIT;
    struct jw w = jw_begin(&b);

    jw_obj(&w);
    jw_ki64(&w, "op", OP_IDENTIFY);
    jw_key(&w, "d");
    jw_obj(&w);
    jw_kstr(&w, "token", str_of(g->opt.token));
    jw_ki64(&w, "intents", (int64_t)g->opt.intents);
    jw_key(&w, "properties");
    jw_raw(&w, STR("{\"os\":\"linux\",\"browser\":\"bellhop\",\"device\":\"bellhop\"}"));
    jw_key(&w, "shard");
    jw_arr(&w);
    jw_u64(&w, g->opt.shard);
    jw_u64(&w, g->opt.n_shards);
    jw_end_arr(&w);
    jw_end_obj(&w);
    jw_end_obj(&w);
    may_send(g);
    g->opt.wire->send(g->opt.ctx, g, buf_str(&b));
    buf_wipe(&b);
}

static void send_resume(struct dgateway *g)
{
    struct buf b = BUF_INIT;
    struct jw w = jw_begin(&b);

    jw_obj(&w);
    jw_ki64(&w, "op", OP_RESUME);
    jw_key(&w, "d");
    jw_obj(&w);
    jw_kstr(&w, "token", str_of(g->opt.token));
    jw_kstr(&w, "session_id", str_of(g->session_id));
    jw_ki64(&w, "seq", (int64_t)g->confirmed);
    jw_end_obj(&w);
    jw_end_obj(&w);
    may_send(g);
    g->opt.wire->send(g->opt.ctx, g, buf_str(&b));
    buf_wipe(&b);
}

/* ---- receiving ---- */

static void on_hello(struct dgateway *g, struct json d)
{
    int64_t ms = 0;

    if (g->state != DGATEWAY_GREETING)
        return;
    if (!json_as_i64(json_get(d, "heartbeat_interval"), &ms) || ms < MIN_BEAT_MS ||
        ms > MAX_BEAT_MS) {
        retry(g, "hello without a sensible heartbeat interval");
        return;
    }
    g->beat_ms = ms;
    g->beat_acked = true;
    arm_beat(g, (int64_t)rand_below(g->opt.rand, (uint64_t)ms));
    if (g->session_id[0] != '\0') {
        dgateway_enter(g, DGATEWAY_RESUMING);
        send_resume(g);
    } else {
        dgateway_enter(g, DGATEWAY_IDENTIFYING);
        send_identify(g);
    }
}

static void on_ready(struct dgateway *g, struct json d)
{
    struct str id = json_str(d, "session_id"), url = json_str(d, "resume_gateway_url");

    if (g->state != DGATEWAY_IDENTIFYING || id.n == 0 || id.n >= sizeof g->session_id) {
        retry(g, "a READY that makes no sense");
        return;
    }
    memcpy(g->session_id, id.p, id.n);
    g->session_id[id.n] = '\0';
    g->resume_url[0] = '\0';
    if (url.n < sizeof g->resume_url && str_starts(url, STR("ws"))) {
        memcpy(g->resume_url, url.p, url.n);
        g->resume_url[url.n] = '\0';
    }
    g->failures = 0;
    dgateway_enter(g, DGATEWAY_LIVE);
    log_info(&g->log, "a new session");
    g->opt.handlers->live(g->opt.ctx, g, d);
}

static void on_resumed(struct dgateway *g)
{
    if (g->state != DGATEWAY_RESUMING)
        return;
    g->failures = 0;
    dgateway_enter(g, DGATEWAY_LIVE);
    log_info(&g->log, "resumed the session");
    g->opt.handlers->live(g->opt.ctx, g, (struct json){0});
}

static void on_dispatch(struct dgateway *g, struct json doc, struct json d)
{
    struct str type = json_str(doc, "t");
    uint64_t seq = 0;

    if (g->state != DGATEWAY_IDENTIFYING && g->state != DGATEWAY_RESUMING &&
        g->state != DGATEWAY_LIVE)
        return;
    json_as_u64(json_get(doc, "s"), &seq);
    if (seq > g->received)
        g->received = seq;
    if (str_eq(type, STR("READY")))
        on_ready(g, d);
    else if (str_eq(type, STR("RESUMED")))
        on_resumed(g);
    if (g->socket) /* those two may have ended it */
        g->opt.handlers->dispatch(g->opt.ctx, g, type, d, seq);
}

static void on_invalid_session(struct dgateway *g, bool resumable)
{
    /* Discord asks for a random wait of 1 to 5 seconds before the next attempt. */
    int64_t ms = 1000 + (int64_t)rand_below(g->opt.rand, 4000);

    if (g->state == DGATEWAY_WAITING || g->state == DGATEWAY_STOPPED)
        return;
    log_info(&g->log, "the session is invalid, %s", resumable ? "resuming" : "starting a new one");
    g->failures++;
    if (!resumable)
        forget_session(g);
    wait_for(g, ms);
}

static void on_ack(struct dgateway *g)
{
    g->beat_acked = true;
    g->latency_ms = now_ms(g) - g->beat_sent_ms;
}

static void on_reconnect(struct dgateway *g)
{
    log_info(&g->log, "asked to reconnect");
    wait_for(g, (int64_t)rand_below(g->opt.rand, 500));
}

void dgateway_message(struct dgateway *g, struct str text)
{
    struct json doc;
    int64_t op = -1;

    if (!g->socket)
        return;
    if (timer_is_set(&g->beat) && now_ms(g) >= g->beat_due_ms) {
        send_beat(g);
        arm_beat(g, g->beat_ms);
    }
    if (!json_parse(g->parser, text, &doc) || !json_as_i64(json_get(doc, "op"), &op)) {
        retry(g, "something that is no gateway message");
        return;
    }
    struct json d = json_get(doc, "d");
    switch (op) {
    case OP_DISPATCH:
        on_dispatch(g, doc, d);
        break;
    case OP_HEARTBEAT:
        send_beat(g);
        break;
    case OP_RECONNECT:
        on_reconnect(g);
        break;
    case OP_INVALID_SESSION:
        on_invalid_session(g, json_as_bool(d, false));
        break;
    case OP_HELLO:
        on_hello(g, d);
        break;
    case OP_HEARTBEAT_ACK:
        on_ack(g);
        break;
    default:
        break; /* what Discord adds later is not for us */
    }
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
        forget_session(g);
    }
    snprintf(text, sizeof text, "close code %d %s", code, why != NULL ? why : "");
    retry(g, text);
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
