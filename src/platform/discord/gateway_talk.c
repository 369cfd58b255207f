/* gateway_talk.c - what is said over a gateway's socket.  (gateway.h has the contract.)
 *
 * Heartbeats run from hello until the socket goes, whatever the state.  A beat that is due is sent
 * before the next message is looked at: after a stall of the whole process the backlog of events
 * may take long, and Discord must hear from us first.  For the same reason a missing
 * acknowledgement counts as death only when our own timer was on time: if we were the ones asleep,
 * the acknowledgement may lie unread in the socket. */
#include <stdio.h>
#include "base/jw.h"
#include "base/mem.h"
#include "base/rand.h"
#include "platform/discord/gateway_priv.h"

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
    STALL_MS = 2000,            /* a timer this late means that we stood still */
    MAX_SENDS_PER_MINUTE = 110, /* Discord closes at 120 */
    MIN_BEAT_MS = 100,
    MAX_BEAT_MS = 600000,
};

/* ---- sending ---- */

static bool may_send(struct dgateway *g)
{
    if (dgateway_now_ms(g) - g->minute_ms >= 60000) {
        g->minute_ms = dgateway_now_ms(g);
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
    g->beat_sent_ms = dgateway_now_ms(g);
    g->beat_acked = false;
    if (may_send(g))
        g->opt.wire->send(g->opt.ctx, g, str_of(text));
}

static void arm_beat(struct dgateway *g, int64_t after_ms)
{
    g->beat_due_ms = dgateway_now_ms(g) + after_ms;
    timer_set(g->opt.clock, &g->beat, after_ms);
}

void dgateway_on_beat(struct timer *t)
{
    struct dgateway *g = container_of(t, struct dgateway, beat);

    if (!g->beat_acked && dgateway_now_ms(g) - g->beat_due_ms < STALL_MS) {
        dgateway_retry(g, "no answer to the last heartbeat");
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
        dgateway_retry(g, "hello without a sensible heartbeat interval");
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
        dgateway_retry(g, "a READY that makes no sense");
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
        dgateway_forget_session(g);
    dgateway_wait(g, ms);
}

static void on_ack(struct dgateway *g)
{
    g->beat_acked = true;
    g->latency_ms = dgateway_now_ms(g) - g->beat_sent_ms;
}

static void on_reconnect(struct dgateway *g)
{
    log_info(&g->log, "asked to reconnect");
    dgateway_wait(g, (int64_t)rand_below(g->opt.rand, 500));
}

void dgateway_message(struct dgateway *g, struct str text)
{
    struct json doc;
    int64_t op = -1;

    if (!g->socket)
        return;
    if (timer_is_set(&g->beat) && dgateway_now_ms(g) >= g->beat_due_ms) {
        send_beat(g);
        arm_beat(g, g->beat_ms);
    }
    if (!json_parse(g->parser, text, &doc) || !json_as_i64(json_get(doc, "op"), &op)) {
        dgateway_retry(g, "something that is no gateway message");
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
