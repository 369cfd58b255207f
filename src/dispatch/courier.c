/* courier.c - design.  (courier.h has the contract and the picture.)
 *
 * The wire only collects the frames that the relay sends.  A timer handles them when the turn ends,
 * so the courier never calls the relay from inside one of the relay's calls.  A frame stays in the
 * buffer until it is delivered.  The relay sends one message at a time (relay/in/inside.h), so the
 * buffer is small. */
#include "dispatch/courier.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/log.h"
#include "base/mem.h"
#include "core/event.h"
#include "core/frame.h"
#include "dispatch/call.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/payload.h"
#include "dispatch/substrate.h"
#include "relay/in/inside.h"

#define AWAY_FIRST_MS 100    /* backoff while the agent is away: short at first, ... */
#define AWAY_LONGEST_MS 5000 /* ... then every few seconds */

enum courier_state { CLOSED, OPEN, BRINGING, RESTING };

struct courier {
    struct wire wire;
    struct recipient *a; /* borrowed */
    struct session *session;
    struct errand_job *job; /* owned; BRINGING */
    struct buf in;          /* frames that are not delivered yet */
    struct timer turn, rest;
    enum courier_state state;
    unsigned failures; /* in a row */
    bool closing;      /* the relay closed the session; handled when the turn ends */
    char problem[256]; /* of the last attempt; "": none */
};

static struct clock *clock_of(const struct courier *c)
{
    return c->a->d->env.clock;
}

static void wake_up(struct courier *c)
{
    if (!timer_is_set(&c->turn))
        timer_set(clock_of(c), &c->turn, 0);
}

/* ---- the wire ---- */

static struct courier *courier_of(struct wire *w)
{
    return container_of(w, struct courier, wire);
}

static void wire_send(struct wire *w, struct str message)
{
    buf_add_str(&courier_of(w)->in, message);
    wake_up(courier_of(w));
}

static struct buf *wire_send_begin(struct wire *w)
{
    return &courier_of(w)->in;
}

static void wire_send_end(struct wire *w)
{
    wake_up(courier_of(w));
}

static void wire_ping(struct wire *w, uint32_t number)
{
    /* the relay does not ping sessions of couriers */
}

static void wire_close(struct wire *w, enum close_reason why)
{
    courier_of(w)->closing = true;
    wake_up(courier_of(w));
}

static const struct wire_ops wire_ops = {.send = wire_send,
                                         .send_begin = wire_send_begin,
                                         .send_end = wire_send_end,
                                         .ping = wire_ping,
                                         .close = wire_close};

/* ---- the session ---- */

static void leave(struct courier *c)
{
    struct session *s = c->session;

    c->session = NULL;
    c->closing = false;
    job_cancel(&c->job);
    buf_done(&c->in);
    c->state = CLOSED;
    if (s != NULL)
        session_closed(s, CLOSE_CODE_NORMAL);
}

static void enter(struct courier *c)
{
    c->session = session_open_inside(c->a->d->env.relay, &c->a->gw, &c->wire);
    if (c->session == NULL)
        return; /* the relay is shutting down */
    c->state = OPEN;
    session_data(c->session, STR("{\"type\":\"hello\",\"platform\":\"relay\"}\n"));
}

/* ---- backoff ---- */

static int64_t pause_ms(struct courier *c, int64_t first_ms, int64_t longest_ms)
{
    int64_t ms = clock_backoff_ms(c->failures, first_ms, longest_ms);

    /* Jitter of a quarter, so that couriers that failed together do not retry together. */
    return ms * 3 / 4 + (int64_t)rand_below(c->a->d->env.rand, (uint64_t)ms / 2 + 1);
}

static void rest(struct courier *c, int64_t ms)
{
    leave(c);
    c->state = RESTING;
    timer_set(clock_of(c), &c->rest, ms);
}

static void note_problem(struct courier *c, struct str why)
{
    bool news = *c->problem == '\0';

    snprintf(c->problem, sizeof c->problem, "%.*s", STR_FMT(why));
    if (news)
        log_warn(NULL, "agent not reached: tenant=%s agent=%s why=%s", c->a->tenant, c->a->id,
                 c->problem);
}

static void on_rested(struct timer *t)
{
    struct courier *c = container_of(t, struct courier, rest);

    c->state = CLOSED;
    enter(c);
}

/* ---- one delivery ---- */

static struct str first_line(const struct courier *c)
{
    struct str in = buf_str(&c->in);
    ptrdiff_t at = str_find(in, '\n');

    return at < 0 ? STR_NULL : str_make(in.p, (size_t)at);
}

static void forget_line(struct courier *c)
{
    buf_consume(&c->in, first_line(c).n + 1);
}

static void give_up(struct courier *c, struct str why, bool park)
{
    const struct dispatch_settings *s = c->a->d->env.settings;
    struct str id = delivery_id_in(first_line(c));

    note_problem(c, why);
    if (session_failed(c->session, id, why, park)) {
        forget_line(c);
        wake_up(c);
        return;
    }
    c->failures++;
    rest(c, pause_ms(c, s->retry_ms, s->retry_max_ms));
}

/* Reads the dispatch in a frame.  False: it is none. */
static bool read_dispatch(struct courier *c, struct str line, struct payload *ret)
{
    struct str body = frame_dispatch_body(line);
    struct fault fault = {0};
    struct json doc;
    bool good = body.p != NULL && json_parse(c->a->d->json, body, &doc) &&
                payload_read(doc, str_of(c->a->id), ret, &fault);

    fault_done(&fault);
    return good;
}

static void on_brought(void *ctx, const struct errand_end *e)
{
    struct courier *c = ctx;
    struct buf ack = BUF_INIT;
    struct payload p;

    c->job = NULL;
    c->state = OPEN;
    switch (e->result) {
    case ERRAND_DONE:
        if ((e->skipped || e->session.n > 0 || e->warnings.n > 0) &&
            read_dispatch(c, first_line(c), &p))
            delivery_told(c->a, str_of(payload_kind(&p)), p.dispatch_id, e);
        c->failures = 0;
        if (*c->problem != '\0')
            log_info(NULL, "agent reached again: tenant=%s agent=%s", c->a->tenant, c->a->id);
        *c->problem = '\0';
        buf_printf(&ack, "{\"type\":\"inbound_ack\",\"bufferId\":\"%.*s\"}\n",
                   STR_FMT(delivery_id_in(first_line(c))));
        forget_line(c);
        session_data(c->session, buf_str(&ack));
        buf_done(&ack);
        wake_up(c);
        return;
    case ERRAND_AWAY:
        note_problem(c, e->text);
        c->failures++;
        rest(c, pause_ms(c, AWAY_FIRST_MS, AWAY_LONGEST_MS));
        return;
    case ERRAND_FAILED:
    case ERRAND_REFUSED:
        give_up(c, e->text, e->result == ERRAND_REFUSED);
        return;
    }
}

/* Starts the delivery of the first frame.  False: not a dispatch; it is skipped or parked. */
static bool bring(struct courier *c, struct str line)
{
    struct str body = frame_dispatch_body(line);
    struct payload p;
    struct buf header = BUF_INIT, base = BUF_INIT;
    bool good = read_dispatch(c, line, &p);

    if (!good && delivery_id_in(line).p == NULL) {
        forget_line(c); /* the descriptor or a result: not for the agent */
        return false;
    }
    if (!good) {
        give_up(c, STR("it is no dispatch, and this agent takes nothing else"), true);
        return false;
    }
    payload_recall_wake(&p);
    if (dispatch_reply_base(c->a->d, &base))
        payload_recall_asks(&p, buf_str(&base));
    payload_write_header(&header, &p, true);
    struct errand e = {.kind = c->a->cfg->s.wake_on_deliver ? ERRAND_WAKE : ERRAND_DELIVER,
                       .body = body,
                       .dispatch_id = p.dispatch_id,
                       .word = str_of(payload_kind(&p)),
                       .header = buf_str(&header),
                       .text = p.text,
                       .session = p.session,
                       .trace = payload_trace(&p)};
    c->state = BRINGING;
    c->job = errand_run(c->a, &e, on_brought, c);
    buf_done(&header);
    buf_done(&base);
    return true;
}

static void on_turn(struct timer *t)
{
    struct courier *c = container_of(t, struct courier, turn);

    if (c->closing)
        leave(c);
    if (c->state == CLOSED)
        enter(c);
    while (c->state == OPEN) {
        struct str line = first_line(c);
        if (line.p == NULL || bring(c, line))
            return;
    }
}

/* ---- life ---- */

struct courier *courier_new(struct recipient *a)
{
    struct courier *c = xcalloc(1, sizeof *c);

    c->wire.ops = &wire_ops;
    c->a = a;
    timer_init(&c->turn, on_turn);
    timer_init(&c->rest, on_rested);
    wake_up(c);
    return c;
}

void courier_free(struct courier *c)
{
    if (c == NULL)
        return;
    timer_stop(clock_of(c), &c->turn);
    timer_stop(clock_of(c), &c->rest);
    leave(c);
    free(c);
}

void courier_look(struct courier *c)
{
    if (c->state == CLOSED)
        wake_up(c);
}

const char *courier_problem(const struct courier *c)
{
    return *c->problem != '\0' ? c->problem : NULL;
}
