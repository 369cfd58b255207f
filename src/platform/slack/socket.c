/* socket.c - Socket Mode.  (slack_priv.h has the calls.)
 *
 *      apps.connections.open --address--> OPENING --open--> GREETING --hello--> LIVE
 *      LIVE --"disconnect": refresh--> another is opened; this one goes on meanwhile
 *      LIVE --another went live--> LEAVING --its envelopes are acknowledged--> closed
 *      every state --closed, too slow, deaf--> freed; without a live one, the next is opened
 *
 * Slack sends each event over any of the app's connections, and closes each after an hour or so.
 * So the next connection is live before the old one goes, and nothing falls between the two.  A
 * connection that was replaced is always closed: Slack allows ten, and an old one would swallow
 * events.
 *
 * An envelope is acknowledged once its event is safe, on the connection it came over.  If that is
 * gone, Slack sends the event again over another one, and the host drops the duplicate.
 *
 * A connection is deaf when Slack neither sends anything nor answers pings for DEAF_MS.  After a
 * stall of this process the answers may still be unread, so a late tick judges nothing.  Where
 * everything answers but no event has come for ten times the usual gap, the connection is replaced
 * once, in case Slack has lost track of it. */
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "base/rand.h"
#include "net/ws_client.h"
#include "platform/slack/slack_priv.h"

enum {
    TICK_MS = 5000,
    PING_MS = 10000,
    DEAF_MS = 30000,
    BEAT_MS = 40000,  /* the bot counts as deaf so long after the last sign of life */
    HELLO_MS = 20000, /* from the address to hello */
    LEAVE_MS = 1000,  /* a replaced connection stays so long, for what is on its way */
    LEAVE_MAX_MS = 10000,
    FIRST_RETRY_MS = 500,
    MAX_RETRY_MS = 60000,
    DISABLED_MS = 60000,
    MAX_CONNS = 3,
    MAX_WAITING = 4096,
    MAX_FRAME = 4 << 20,
    ENVELOPE_MAX = 127,
};

enum slack_conn_state { SLACK_OPENING, SLACK_GREETING, SLACK_LIVE, SLACK_LEAVING };

struct slack_conn {
    struct list link;
    struct slack *s;      /* borrowed */
    struct ws_client *ws; /* owned */
    uint64_t number;
    enum slack_conn_state state;
    int64_t since_ms;            /* monotonic: of the state */
    int64_t heard_ms, pinged_ms; /* monotonic */
    size_t n_waiting;            /* envelopes that are not acknowledged yet */
};

struct waiting_envelope { /* its event is being made safe */
    uint64_t conn;
    char id[ENVELOPE_MAX + 1];
};

static int64_t now_ms(const struct slack *s)
{
    return clock_now_ms(s->base.env->clock);
}

static void enter(struct slack_conn *c, enum slack_conn_state next)
{
    c->state = next;
    c->since_ms = now_ms(c->s);
}

static size_t count(const struct slack *s, enum slack_conn_state state)
{
    size_t n = 0;

    for (const struct list *it = s->sockets.conns.next; it != &s->sockets.conns; it = it->next)
        n += list_entry(it, const struct slack_conn, link)->state == state;
    return n;
}

size_t slack_sockets_live(const struct slack *s)
{
    return count(s, SLACK_LIVE);
}

static struct slack_conn *find_conn(struct slack *s, uint64_t number)
{
    list_each (&s->sockets.conns, it, nxt) {
        struct slack_conn *c = list_entry(it, struct slack_conn, link);
        if (c->number == number)
            return c;
    }
    return NULL;
}

static void conn_free(struct slack_conn *c)
{
    list_remove(&c->link);
    ws_client_free(c->ws);
    free(c);
}

/* ---- opening ---- */

static void want(struct slack *s);

static void retry_in(struct slack *s, int64_t ms)
{
    if (!timer_is_set(&s->sockets.retry))
        timer_set(s->base.env->clock, &s->sockets.retry, ms);
}

/* Half a second, doubled up to a minute, with jitter: many apps may have lost Slack together. */
static void retry(struct slack *s)
{
    unsigned n = s->sockets.failures < 8 ? s->sockets.failures : 8;
    int64_t ms = (int64_t)FIRST_RETRY_MS << n;

    s->sockets.failures++;
    ms = ms < MAX_RETRY_MS ? ms : MAX_RETRY_MS;
    retry_in(s, ms / 2 + (int64_t)rand_below(s->base.env->rand, (uint64_t)ms));
}

static void on_retry(struct timer *t)
{
    want(container_of(t, struct slack, sockets.retry));
}

static void lost(struct slack_conn *c, const char *why)
{
    struct slack *s = c->s;
    bool was_live = c->state == SLACK_LIVE;

    if (c->state != SLACK_LEAVING) {
        s->sockets.lost++;
        log_info(&s->base.log, "a connection to Slack ended: %s", why);
    }
    conn_free(c);
    if (was_live && slack_sockets_live(s) == 0 && s->sockets.failures == 0)
        retry_in(s, (int64_t)rand_below(s->base.env->rand, FIRST_RETRY_MS));
    else if (slack_sockets_live(s) == 0)
        retry(s);
}

/* ---- envelopes ---- */

void slack_socket_ack(struct slack *s, const struct slack_asker *to)
{
    struct slack_conn *c = find_conn(s, to->conn);
    BUF_LOCAL text = BUF_INIT;
    struct jw w = jw_begin(&text);

    if (c == NULL || to->envelope.n == 0)
        return;
    jw_obj(&w);
    jw_kstr(&w, "envelope_id", to->envelope);
    jw_end_obj(&w);
    ws_client_send(c->ws, buf_str(&text));
}

static void on_safe(struct platform *p, void *with, enum bh_err err)
{
    const struct waiting_envelope *x = with;
    struct slack *s = slack_of(p);
    struct slack_conn *c = find_conn(s, x->conn);

    if (c != NULL)
        c->n_waiting--;
    s->sockets.n_waiting--;
    if (err != BH_BUSY && err != BH_UNAVAILABLE) /* else Slack is to send it again */
        slack_socket_ack(s, &(struct slack_asker){.conn = x->conn, .envelope = str_of(x->id)});
}

void slack_socket_accept(struct slack *s, const struct slack_asker *to,
                         const struct webhook_delivery *d)
{
    struct slack_conn *c = find_conn(s, to->conn);
    struct waiting_envelope x = {.conn = to->conn};

    memcpy(x.id, to->envelope.p, to->envelope.n);
    s->sockets.n_waiting++;
    if (c != NULL)
        c->n_waiting++;
    await_event(&s->base, d, &x, sizeof x, on_safe);
}

/* Slash commands come as an object of what the form would have. */
static void take_command(struct slack *s, const struct slack_asker *to, struct json payload)
{
    BUF_LOCAL text = BUF_INIT;

    for (struct json_iter it = {0}; json_next(payload, &it);)
        if (json_type(it.value) == JSON_STRING)
            form_add_str(&text, it.key, json_as_str(it.value));
    if (form_parse(&s->form, buf_str(&text)))
        slack_take_command(s, to, &s->form);
    else
        slack_refuse(s, to);
}

static void take_envelope(struct slack_conn *c, struct str type, struct json frame)
{
    struct slack *s = c->s;
    struct json payload = json_get(frame, "payload");
    struct slack_asker to = {.path = STR("/webhooks/slack"),
                             .conn = c->number,
                             .envelope = json_str(frame, "envelope_id")};

    if (to.envelope.n == 0 || to.envelope.n > ENVELOPE_MAX) {
        s->base.n.malformed++;
        return;
    }
    if (s->sockets.n_waiting >= MAX_WAITING)
        return; /* not acknowledged: Slack sends it again */
    if (str_eq(type, STR("events_api")))
        slack_take_event(s, &to, payload);
    else if (str_eq(type, STR("interactive")))
        slack_take_interaction(s, &to, payload);
    else if (str_eq(type, STR("slash_commands")))
        take_command(s, &to, payload);
    else
        slack_socket_ack(s, &to);
}

/* ---- frames ---- */

/* The other connections were replaced by @c. */
static void on_hello(struct slack_conn *c)
{
    struct slack *s = c->s;

    if (c->state != SLACK_GREETING)
        return;
    enter(c, SLACK_LIVE);
    s->sockets.failures = 0;
    s->sockets.fresh_ms = now_ms(s);
    slack_well(s);
    platform_beat(&s->base, clock_wall_ms(s->base.env->clock), BEAT_MS);
    log_info(&s->base.log, "connected to Slack");
    list_each (&s->sockets.conns, it, nxt) {
        struct slack_conn *other = list_entry(it, struct slack_conn, link);
        if (other != c && other->state == SLACK_LIVE) {
            enter(other, SLACK_LEAVING);
            timer_set(s->base.env->clock, &s->sockets.tick, LEAVE_MS);
        }
    }
}

static void on_disconnect(struct slack_conn *c, struct str reason)
{
    struct slack *s = c->s;

    log_debug(&s->base.log, "Slack will close a connection: %.*s",
              reason.n < 40 ? (int)reason.n : 40, reason.p != NULL ? reason.p : "");
    if (str_eq(reason, STR("link_disabled"))) {
        platform_set_problem(&s->base, "Socket Mode is switched off for this app: switch it on "
                                       "(Settings, Socket Mode), or set mode: webhook");
        conn_free(c);
        retry_in(s, DISABLED_MS);
    } else if (str_eq(reason, STR("too_many_websockets"))) {
        platform_set_problem(&s->base, "Slack allows ten connections for this app, and other "
                                       "programs hold them: stop them, or make an app of its own");
        conn_free(c);
        retry_in(s, DISABLED_MS);
    } else if (c->state == SLACK_LIVE) {
        s->sockets.refreshed++;
        want(s);
    } else if (c->state != SLACK_LEAVING) {
        lost(c, "Slack took it back");
    }
}

static void heard(struct slack_conn *c)
{
    c->heard_ms = now_ms(c->s);
    if (c->state == SLACK_LIVE)
        platform_beat(&c->s->base, clock_wall_ms(c->s->base.env->clock), BEAT_MS);
}

static void on_message(void *ctx, struct str message, bool text)
{
    struct slack_conn *c = ctx;
    struct slack *s = c->s;
    struct json frame;

    heard(c);
    if (!text || !json_parse(s->sockets.frames, message, &frame) || !json_is_object(frame)) {
        s->base.n.malformed++;
        return;
    }
    struct str type = json_str(frame, "type");
    if (str_eq(type, STR("hello")))
        on_hello(c);
    else if (str_eq(type, STR("disconnect")))
        on_disconnect(c, json_str(frame, "reason"));
    else
        take_envelope(c, type, frame);
}

static void on_open(void *ctx)
{
    struct slack_conn *c = ctx;

    heard(c);
    if (c->state == SLACK_OPENING)
        c->state = SLACK_GREETING; /* one time limit for both */
}

static void on_alive(void *ctx)
{
    heard(ctx);
}

static void on_closed(void *ctx, int code, const char *why)
{
    struct slack_conn *c = ctx;

    c->ws = NULL; /* it frees itself */
    lost(c, why);
}

/* ---- asking for an address ---- */

static void on_address(void *ctx, const struct sender_verdict *v)
{
    static const struct ws_client_handlers handlers = {.on_open = on_open,
                                                       .on_message = on_message,
                                                       .on_closed = on_closed,
                                                       .on_alive = on_alive};
    struct slack *s = ctx;
    struct str url = json_str(v->answer, "url");

    s->sockets.asking = false;
    if (v->end == SENDER_REFUSED) {
        retry_in(s, DISABLED_MS);
        return;
    }
    if (v->end != SENDER_DONE) {
        retry(s);
        return;
    }
    if (!slack_is_own_socket(url, str_of(s->cfg->base.api_base))) {
        platform_set_problem(&s->base, "Slack named an address that is not Slack's");
        retry(s);
        return;
    }
    struct slack_conn *c = xcalloc(1, sizeof *c);
    char *address = str_dup(url);
    *c = (struct slack_conn){.s = s, .number = ++s->sockets.numbered, .heard_ms = now_ms(s)};
    enter(c, SLACK_OPENING);
    list_append(&s->sockets.conns, &c->link);
    s->sockets.opened++;
    c->ws = ws_client_open(s->base.env->loop,
                           &(struct ws_client_options){.url = address, .max_message = MAX_FRAME},
                           &handlers, c);
    free(address);
}

/* Opens a connection, unless one is being opened. */
static void want(struct slack *s)
{
    size_t n = 0;

    for (const struct list *it = s->sockets.conns.next; it != &s->sockets.conns; it = it->next)
        n++;
    if (s->sockets.asking || timer_is_set(&s->sockets.retry) || n >= MAX_CONNS ||
        count(s, SLACK_OPENING) + count(s, SLACK_GREETING) > 0)
        return;
    s->sockets.asking = true;
    slack_ask(s->sockets.app, SLACK_CONNECT, STR_NULL,
              &(struct sender_question){.lane = STR("socket"), .told = on_address, .ctx = s});
}

/* ---- every few seconds ---- */

static void check_conn(struct slack_conn *c, bool on_time)
{
    struct slack *s = c->s;
    int64_t now = now_ms(s), since_ms = now - c->since_ms, silent_ms = now - c->heard_ms;

    if ((c->state == SLACK_OPENING || c->state == SLACK_GREETING) && since_ms > HELLO_MS) {
        lost(c, "Slack sent no hello in time");
    } else if (c->state == SLACK_LEAVING &&
               ((since_ms >= LEAVE_MS && c->n_waiting == 0) || since_ms > LEAVE_MAX_MS)) {
        ws_client_close(c->ws, 1000); /* on_closed() follows within seconds, whatever Slack does */
    } else if (on_time && silent_ms > DEAF_MS) {
        s->sockets.deaf++;
        lost(c, "it was deaf");
    } else if (c->state != SLACK_OPENING && now - c->pinged_ms >= PING_MS) {
        c->pinged_ms = now;
        ws_client_ping(c->ws);
    }
}

/* Replaces a connection that answers but has brought nothing for ten times the usual gap. */
static void check_rhythm(struct slack *s)
{
    int64_t usual_ms = platform_usual_gap_ms(&s->base), now = now_ms(s);
    int64_t most_ms = 10 * usual_ms > PLATFORM_DEAF_MS ? 10 * usual_ms : PLATFORM_DEAF_MS;

    if (usual_ms > 0 && now - s->sockets.fresh_ms > most_ms &&
        clock_wall_ms(s->base.env->clock) - s->base.last_event_ms > most_ms &&
        slack_sockets_live(s) > 0) {
        s->sockets.fresh_ms = now;
        log_info(&s->base.log, "no event for long: the connection to Slack is replaced");
        want(s);
    }
}

static void on_tick(struct timer *t)
{
    struct slack *s = container_of(t, struct slack, sockets.tick);
    bool on_time = now_ms(s) - s->sockets.tick_ms < 2 * TICK_MS;

    s->sockets.tick_ms = now_ms(s);
    list_each (&s->sockets.conns, it, nxt)
        check_conn(list_entry(it, struct slack_conn, link), on_time);
    if (slack_sockets_live(s) == 0)
        want(s);
    check_rhythm(s);
    timer_set(s->base.env->clock, t, count(s, SLACK_LEAVING) > 0 ? LEAVE_MS : TICK_MS);
}

void slack_sockets_start(struct slack *s)
{
    s->sockets.frames = json_parser_new();
    timer_init(&s->sockets.retry, on_retry);
    timer_init(&s->sockets.tick, on_tick);
    s->sockets.tick_ms = now_ms(s);
    timer_set(s->base.env->clock, &s->sockets.tick, TICK_MS);
    want(s);
}

void slack_sockets_stop(struct slack *s)
{
    timer_stop(s->base.env->clock, &s->sockets.retry);
    timer_stop(s->base.env->clock, &s->sockets.tick);
    list_each (&s->sockets.conns, it, nxt)
        conn_free(list_entry(it, struct slack_conn, link));
    json_parser_free(s->sockets.frames);
}
