/* socket.c - design.  (socket.h has the contract.)
 *
 *            .------------------ closed, op 7, op 9, missed beat, timeout ------------.
 *            v                                                                         |
 *      IDLE -> WAITING --session--> CONNECTING -> GREETING --hello--> RESUMING --RESUMED--> LIVE
 *                 |                     ^              '----hello--> IDENTIFYING -READY-----^
 *                 '--none--> QUEUED ----' granted
 *      every state --fatal close code--> STOPPED
 *
 * Heartbeats run from hello until the WebSocket goes, whatever the state.  A heartbeat that is due
 * is sent before the next message is read: after a stall of this process the backlog may take long
 * to read, and Discord must hear from the socket first.  For the same reason a missing
 * acknowledgement ends the connection only if the heartbeat timer was on time: after a stall the
 * acknowledgement may still be unread. */
#include "platform/discord/socket.h"
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
    RESUME_URL_FAILURES = 3,    /* then resume at the general address */
    STALL_MS = 2000,            /* a timer this late means that this process stalled */
    MAX_SENDS_PER_MINUTE = 110, /* Discord closes at 120 */
    MIN_BEAT_MS = 100,
    MAX_BEAT_MS = 600000,
};

struct dsocket {
    struct dsocket_options opt;
    struct log log;
    enum dsocket_state state;
    char *url;                             /* owned */
    char session_id[128], resume_url[256]; /* "": no session */
    uint64_t confirmed, received;          /* sequence numbers of that session */
    bool connected;                        /* the wire has a WebSocket, open or being opened */
    struct json_parser *parser;            /* owned */
    struct timer patience, beat;
    int64_t beat_ms, beat_due_ms, beat_sent_ms, latency_ms;
    bool beat_acked;
    unsigned failures; /* attempts since the last LIVE */
    int64_t minute_ms; /* when the minute of @sends began */
    unsigned sends;
};

static timer_cb on_patience, on_beat;

static void log_prefix(const struct log *log, struct buf *out)
{
    const struct dsocket *s = container_of(log, struct dsocket, log);

    buf_printf(out, "platform=discord shard=%u/%u ", s->opt.shard, s->opt.n_shards);
}

struct dsocket *dsocket_new(const struct dsocket_options *opt)
{
    struct dsocket *s = xcalloc(1, sizeof *s);

    s->opt = *opt;
    s->log.prefix = log_prefix;
    s->url = xstrdup(opt->url);
    s->parser = json_parser_new();
    s->latency_ms = -1;
    timer_init(&s->patience, on_patience);
    timer_init(&s->beat, on_beat);
    return s;
}

static void drop_socket(struct dsocket *s)
{
    timer_stop(s->opt.clock, &s->beat);
    if (!s->connected)
        return;
    s->connected = false;
    s->opt.wire->drop(s->opt.ctx, s);
}

void dsocket_free(struct dsocket *s)
{
    if (s == NULL)
        return;
    drop_socket(s);
    timer_stop(s->opt.clock, &s->patience);
    json_parser_free(s->parser);
    free(s->url);
    free(s);
}

/* ---- states ---- */

#define B(state) (1u << DSOCKET_##state)
static const struct {
    const char *name;
    unsigned next;
    int64_t timeout_ms; /* 0: none, or wait_to_connect() sets it */
} states[] = {
    [DSOCKET_IDLE] = {"idle", B(WAITING), 0},
    [DSOCKET_WAITING] = {"waiting", B(QUEUED) | B(CONNECTING) | B(WAITING), 0},
    [DSOCKET_QUEUED] = {"queued", B(CONNECTING), 0},
    [DSOCKET_CONNECTING] = {"connecting", B(GREETING) | B(WAITING) | B(STOPPED), CONNECT_MS},
    [DSOCKET_GREETING] = {"greeting", B(IDENTIFYING) | B(RESUMING) | B(WAITING) | B(STOPPED),
                          HELLO_MS},
    /* No time-outs here: while Discord has an outage it acknowledges heartbeats and answers late.
     */
    [DSOCKET_IDENTIFYING] = {"identifying", B(LIVE) | B(WAITING) | B(STOPPED), 0},
    [DSOCKET_RESUMING] = {"resuming", B(LIVE) | B(WAITING) | B(STOPPED), 0},
    [DSOCKET_LIVE] = {"live", B(WAITING) | B(STOPPED), 0},
    [DSOCKET_STOPPED] = {"stopped", 0, 0},
};

/* The only writer of s->state. */
static void enter(struct dsocket *s, enum dsocket_state next)
{
    assert(states[s->state].next & (1u << next));
    log_debug(&s->log, "%s -> %s", states[s->state].name, states[next].name);
    s->state = next;
    timer_stop(s->opt.clock, &s->patience);
    if (states[next].timeout_ms > 0)
        timer_set(s->opt.clock, &s->patience, states[next].timeout_ms);
}

static void wait_to_connect(struct dsocket *s, int64_t ms)
{
    drop_socket(s);
    enter(s, DSOCKET_WAITING);
    timer_set(s->opt.clock, &s->patience, ms);
}

/* Reconnects, with the session if there is one, after a backoff from a second to a minute.  Up to
 * half of it comes on top as jitter, so that many shards that lost Discord together do not
 * reconnect together. */
static void retry(struct dsocket *s, const char *why)
{
    int64_t ms = FIRST_RETRY_MS;

    for (unsigned i = 0; i < s->failures && ms < MAX_RETRY_MS; i++)
        ms *= 2;
    s->failures++;
    if (ms > MAX_RETRY_MS)
        ms = MAX_RETRY_MS;
    ms += (int64_t)rand_below(s->opt.rand, (uint64_t)ms / 2);
    log_info(&s->log, "connection lost: %s; reconnecting in %lld ms", why, (long long)ms);
    wait_to_connect(s, ms);
}

static void forget_session(struct dsocket *s)
{
    bool had = s->session_id[0] != '\0';

    s->session_id[0] = s->resume_url[0] = '\0';
    s->confirmed = s->received = 0;
    if (had)
        s->opt.handlers->session_lost(s->opt.ctx, s);
}

/* ---- connecting ---- */

static void open_socket(struct dsocket *s)
{
    bool use_resume = s->session_id[0] != '\0' && s->resume_url[0] != '\0' &&
                      !s->opt.ignore_resume_url && s->failures <= RESUME_URL_FAILURES;
    const char *base = use_resume ? s->resume_url : s->url;
    BUF_LOCAL url = BUF_INIT;
    size_t n = strlen(base);

    while (n > 0 && base[n - 1] == '/')
        n--;
    buf_add(&url, base, n);
    buf_add_z(&url, "/?v=10&encoding=json");
    enter(s, DSOCKET_CONNECTING);
    s->connected = true;
    s->opt.wire->open(s->opt.ctx, s, buf_z(&url));
}

void dsocket_set_session(struct dsocket *s, struct str session_id, struct str resume_url,
                         uint64_t seq)
{
    assert(s->state == DSOCKET_IDLE);
    if (session_id.n == 0 || session_id.n >= sizeof s->session_id ||
        resume_url.n >= sizeof s->resume_url || seq == 0)
        return;
    memcpy(s->session_id, session_id.p, session_id.n);
    if (resume_url.n > 0)
        memcpy(s->resume_url, resume_url.p, resume_url.n);
    s->confirmed = s->received = seq;
}

void dsocket_start(struct dsocket *s)
{
    wait_to_connect(s, 0);
}

static void on_patience(struct timer *t)
{
    struct dsocket *s = container_of(t, struct dsocket, patience);

    if (s->state != DSOCKET_WAITING) {
        retry(s, s->state == DSOCKET_GREETING ? "Discord sent no hello in time"
                                              : "no connection in time");
    } else if (s->session_id[0] != '\0') {
        open_socket(s);
    } else {
        enter(s, DSOCKET_QUEUED);
        s->opt.handlers->wants_identify(s->opt.ctx, s);
    }
}

void dsocket_identify(struct dsocket *s)
{
    if (s->state == DSOCKET_QUEUED)
        open_socket(s);
}

void dsocket_opened(struct dsocket *s)
{
    if (s->state == DSOCKET_CONNECTING)
        enter(s, DSOCKET_GREETING);
}

void dsocket_replay(struct dsocket *s, int64_t after_ms)
{
    if (s->state == DSOCKET_STOPPED || s->state == DSOCKET_IDLE || s->state == DSOCKET_QUEUED)
        return;
    wait_to_connect(s, after_ms);
}

void dsocket_confirm(struct dsocket *s, uint64_t seq)
{
    if (seq > s->confirmed && seq <= s->received)
        s->confirmed = seq;
}

/* ---- close codes ---- */

enum after_close { AFTER_RESUME, AFTER_IDENTIFY, AFTER_RESHARD, AFTER_STOP };

static const struct {
    int code;
    enum after_close then;
    const char *problem; /* what to do about it */
} closes[] = {
    {4003, AFTER_IDENTIFY, NULL}, /* not authenticated, or an invalid session */
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

void dsocket_closed(struct dsocket *s, int code, const char *why)
{
    char text[200];

    if (!s->connected)
        return;
    for (size_t i = 0; i < ARRAY_LEN(closes); i++) {
        if (closes[i].code != code)
            continue;
        if (closes[i].then == AFTER_STOP) {
            log_error(&s->log, "Discord closed the connection for good, code %d: %s", code,
                      closes[i].problem);
            drop_socket(s);
            enter(s, DSOCKET_STOPPED);
            s->opt.handlers->stopped(s->opt.ctx, s, code, closes[i].problem);
            return;
        }
        if (closes[i].then == AFTER_RESHARD) {
            drop_socket(s);
            enter(s, DSOCKET_STOPPED);
            s->opt.handlers->wants_shards(s->opt.ctx, s);
            return;
        }
        forget_session(s);
    }
    snprintf(text, sizeof text, "close code %d %s", code, why != NULL ? why : "");
    retry(s, text);
}

/* ---- sending ---- */

static bool may_send(struct dsocket *s)
{
    if (clock_now_ms(s->opt.clock) - s->minute_ms >= 60000) {
        s->minute_ms = clock_now_ms(s->opt.clock);
        s->sends = 0;
    }
    return ++s->sends <= MAX_SENDS_PER_MINUTE;
}

static void send_beat(struct dsocket *s)
{
    char text[64];

    if (s->confirmed > 0)
        snprintf(text, sizeof text, "{\"op\":1,\"d\":%llu}", (unsigned long long)s->confirmed);
    else
        snprintf(text, sizeof text, "{\"op\":1,\"d\":null}");
    s->beat_sent_ms = clock_now_ms(s->opt.clock);
    s->beat_acked = false;
    if (may_send(s))
        s->opt.wire->send(s->opt.ctx, s, str_of(text));
}

static void arm_beat(struct dsocket *s, int64_t after_ms)
{
    s->beat_due_ms = clock_now_ms(s->opt.clock) + after_ms;
    timer_set(s->opt.clock, &s->beat, after_ms);
}

static void on_beat(struct timer *t)
{
    struct dsocket *s = container_of(t, struct dsocket, beat);

    if (!s->beat_acked && clock_now_ms(s->opt.clock) - s->beat_due_ms < STALL_MS) {
        retry(s, "no answer to the last heartbeat");
        return;
    }
    send_beat(s);
    arm_beat(s, s->beat_ms);
}

/* ---- receiving ---- */

static void on_hello(struct dsocket *s, struct json d)
{
    int64_t ms = 0;

    if (s->state != DSOCKET_GREETING)
        return;
    if (!json_as_i64(json_get(d, "heartbeat_interval"), &ms) || ms < MIN_BEAT_MS ||
        ms > MAX_BEAT_MS) {
        retry(s, "Discord sent a hello without a usable heartbeat interval");
        return;
    }
    s->beat_ms = ms;
    s->beat_acked = true;
    arm_beat(s, (int64_t)rand_below(s->opt.rand, (uint64_t)ms));
    /* Asks for the old session if there is one, else for a new one. */
    bool resume = s->session_id[0] != '\0';
    BUF_SECRET b = BUF_INIT;
    struct jw w = jw_begin(&b);
    enter(s, resume ? DSOCKET_RESUMING : DSOCKET_IDENTIFYING);
    jw_obj(&w);
    jw_ki64(&w, "op", resume ? OP_RESUME : OP_IDENTIFY);
    jw_kobj(&w, "d");
    jw_kstr(&w, "token", str_of(s->opt.token));
    if (resume) {
        jw_kstr(&w, "session_id", str_of(s->session_id));
        jw_ki64(&w, "seq", (int64_t)s->confirmed);
    } else {
        jw_ki64(&w, "intents", (int64_t)s->opt.intents);
        jw_kraw(&w, "properties",
                STR("{\"os\":\"linux\",\"browser\":\"bellhop\",\"device\":\"bellhop\"}"));
        jw_karr(&w, "shard");
        jw_u64(&w, s->opt.shard);
        jw_u64(&w, s->opt.n_shards);
        jw_end_arr(&w);
    }
    jw_end_obj(&w);
    jw_end_obj(&w);
    may_send(s);
    s->opt.wire->send(s->opt.ctx, s, buf_str(&b));
}

static void on_ready(struct dsocket *s, struct json d)
{
    struct str id = json_str(d, "session_id"), url = json_str(d, "resume_gateway_url");

    if (s->state != DSOCKET_IDENTIFYING || id.n == 0 || id.n >= sizeof s->session_id) {
        retry(s, "Discord sent a READY without a session id");
        return;
    }
    memcpy(s->session_id, id.p, id.n);
    s->session_id[id.n] = '\0';
    s->resume_url[0] = '\0';
    if (url.n < sizeof s->resume_url && str_starts(url, STR("ws"))) {
        memcpy(s->resume_url, url.p, url.n);
        s->resume_url[url.n] = '\0';
    }
    s->failures = 0;
    enter(s, DSOCKET_LIVE);
    log_info(&s->log, "started a new session");
    s->opt.handlers->live(s->opt.ctx, s, d);
}

static void on_invalid_session(struct dsocket *s, bool resumable)
{
    /* Discord asks for a random wait of 1 to 5 seconds before the next attempt. */
    int64_t ms = 1000 + (int64_t)rand_below(s->opt.rand, 4000);

    if (s->state == DSOCKET_WAITING || s->state == DSOCKET_STOPPED)
        return;
    log_info(&s->log, "Discord says the session is invalid: %s",
             resumable ? "resuming" : "starting a new one");
    s->failures++;
    if (!resumable)
        forget_session(s);
    wait_to_connect(s, ms);
}

void dsocket_message(struct dsocket *s, struct str text)
{
    struct json doc;
    int64_t op = -1;
    uint64_t seq = 0;

    if (!s->connected)
        return;
    if (timer_is_set(&s->beat) && clock_now_ms(s->opt.clock) >= s->beat_due_ms) {
        send_beat(s);
        arm_beat(s, s->beat_ms);
    }
    if (!json_parse(s->parser, text, &doc) || !json_as_i64(json_get(doc, "op"), &op)) {
        retry(s, "Discord sent something other than a gateway message");
        return;
    }
    struct json d = json_get(doc, "d");
    struct str type = json_str(doc, "t");
    switch (op) {
    case OP_DISPATCH:
        if (s->state != DSOCKET_IDENTIFYING && s->state != DSOCKET_RESUMING &&
            s->state != DSOCKET_LIVE)
            break;
        json_as_u64(json_get(doc, "s"), &seq);
        if (seq > s->received)
            s->received = seq;
        if (str_eq(type, STR("READY")))
            on_ready(s, d);
        if (str_eq(type, STR("RESUMED")) && s->state == DSOCKET_RESUMING) {
            s->failures = 0;
            enter(s, DSOCKET_LIVE);
            log_info(&s->log, "resumed the session");
            s->opt.handlers->live(s->opt.ctx, s, (struct json){0});
        }
        if (s->connected) /* an unusable READY ends the connection */
            s->opt.handlers->dispatch(s->opt.ctx, s, type, d, seq);
        break;
    case OP_HEARTBEAT:
        send_beat(s);
        break;
    case OP_RECONNECT:
        log_info(&s->log, "Discord asked for a reconnect");
        wait_to_connect(s, (int64_t)rand_below(s->opt.rand, 500));
        break;
    case OP_INVALID_SESSION:
        on_invalid_session(s, json_as_bool(d, false));
        break;
    case OP_HELLO:
        on_hello(s, d);
        break;
    case OP_HEARTBEAT_ACK:
        s->beat_acked = true;
        s->latency_ms = clock_now_ms(s->opt.clock) - s->beat_sent_ms;
        break;
    default:
        break; /* an opcode that bellhop does not know */
    }
}

/* ---- status ---- */

enum dsocket_state dsocket_state(const struct dsocket *s)
{
    return s->state;
}

const char *dsocket_state_name(enum dsocket_state s)
{
    return states[s].name;
}

unsigned dsocket_shard(const struct dsocket *s)
{
    return s->opt.shard;
}

int64_t dsocket_latency_ms(const struct dsocket *s)
{
    return s->latency_ms;
}

struct dsocket_session dsocket_session(const struct dsocket *s)
{
    return (struct dsocket_session){s->session_id, s->resume_url, s->confirmed};
}
