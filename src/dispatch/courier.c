/* courier.c - design.  (courier.h has the contract and the picture.)
 *
 * The courier reads the frames on its wire when the turn ends (relay/wire.h).  A frame stays in the
 * wire's buffer until it is delivered.  The relay sends one message at a time (relay/in/inside.h),
 * so the buffer is small. */
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
    struct inner_wire wire;
    struct recipient *a; /* borrowed */
    struct session *session;
    struct errand_job *job; /* owned; BRINGING */
    struct timer rest;
    enum courier_state state;
    unsigned failures; /* in a row */
    char problem[256]; /* of the last attempt; "": none */
};

static struct clock *clock_of(const struct courier *c)
{
    return c->a->d->env.clock;
}

/* ---- the session ---- */

static void leave(struct courier *c)
{
    struct session *s = c->session;

    c->session = NULL;
    c->wire.closed = false;
    job_cancel(&c->job);
    buf_done(&c->wire.got);
    c->state = CLOSED;
    if (s != NULL)
        session_closed(s, CLOSE_CODE_NORMAL);
}

static void enter(struct courier *c)
{
    c->session = session_open_inside(c->a->d->env.relay, &c->a->gw, &c->wire.wire);
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
    struct str in = buf_str(&c->wire.got);
    ptrdiff_t at = str_find(in, '\n');

    return at < 0 ? STR_NULL : str_make(in.p, (size_t)at);
}

static void forget_line(struct courier *c)
{
    buf_consume(&c->wire.got, first_line(c).n + 1);
}

static void give_up(struct courier *c, struct str why, bool park)
{
    const struct dispatch_settings *s = c->a->d->env.settings;
    struct str id = delivery_id_in(first_line(c));

    note_problem(c, why);
    if (session_failed(c->session, id, why, park)) {
        forget_line(c);
        inner_wire_wake(&c->wire);
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
        inner_wire_wake(&c->wire);
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

static void on_turn(struct inner_wire *w)
{
    struct courier *c = container_of(w, struct courier, wire);

    if (c->wire.closed)
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

    c->a = a;
    inner_wire_init(&c->wire, clock_of(c), on_turn);
    timer_init(&c->rest, on_rested);
    inner_wire_wake(&c->wire);
    return c;
}

void courier_free(struct courier *c)
{
    if (c == NULL)
        return;
    timer_stop(clock_of(c), &c->rest);
    leave(c);
    inner_wire_done(&c->wire);
    free(c);
}

void courier_look(struct courier *c)
{
    if (c->state == CLOSED)
        inner_wire_wake(&c->wire);
}

const char *courier_problem(const struct courier *c)
{
    return *c->problem != '\0' ? c->problem : NULL;
}
