/* frames.c - design.  (frames.h has the contract.)
 *
 * One handler per frame type.  The WebSocket upgrade has authenticated the gateway; no frame
 * changes its identity.  A closing session still processes acks: each ack saves a duplicate. */
#include "relay/session/frames.h"
#include <stdlib.h>
#include "base/buf.h"
#include "base/mem.h"
#include "relay/heart.h"
#include "relay/in/interrupt.h"
#include "relay/mailbox/delivery.h"
#include "relay/out/requests.h"
#include "relay/session/session.h"
#include "relay/sleep/instance.h"
#include "relay/sleep/sleep.h"
#include "store/store.h"
#include "tenancy/facts.h"

/* ---- line_reader ---- */

struct line_reader {
    struct buf part;
    bool too_long; /* bytes are discarded until the line ends */
};

void line_reader_free(struct line_reader *l)
{
    if (l == NULL)
        return;
    buf_done(&l->part);
    free(l);
}

size_t line_reader_bytes(const struct line_reader *l)
{
    return l != NULL ? l->part.cap : 0;
}

/* Appends @rest to the unfinished line.  Reports a line that becomes too long, once. */
static void keep(struct line_reader **ret_l, struct str rest, size_t max, line_cb *cb, void *ctx)
{
    if (rest.n == 0)
        return;
    if (*ret_l == NULL)
        *ret_l = xcalloc(1, sizeof **ret_l);
    struct line_reader *l = *ret_l;
    if (l->too_long)
        return;
    if (l->part.n + rest.n <= max) {
        buf_add_str(&l->part, rest);
        return;
    }
    l->too_long = true;
    buf_done(&l->part);
    cb(ctx, STR_NULL, false); /* the last line of the piece, so the result does not matter */
}

/* @line completes the buffered part of the line, if there is one. */
static bool finish(struct line_reader **ret_l, struct str line, size_t max, line_cb *cb, void *ctx)
{
    struct line_reader *l = *ret_l;
    bool go_on = true;

    *ret_l = NULL;
    if (l == NULL) {
        go_on = cb(ctx, line, line.n <= max);
    } else if (!l->too_long) {
        bool fits = l->part.n + line.n <= max;
        if (fits)
            buf_add_str(&l->part, line);
        go_on = cb(ctx, fits ? buf_str(&l->part) : STR_NULL, fits);
    }
    line_reader_free(l);
    return go_on;
}

void line_reader_feed(struct line_reader **l, struct str bytes, size_t max, line_cb *cb, void *ctx)
{
    for (;;) {
        const char *end = bytes.n != 0 ? memchr(bytes.p, '\n', bytes.n) : NULL;
        if (end == NULL)
            break;
        struct str line = str_make(bytes.p, (size_t)(end - bytes.p));
        bytes = str_skip(bytes, line.n + 1);
        if (!finish(l, line, max, cb, ctx))
            return;
    }
    keep(l, bytes, max, cb, ctx);
}

/* ---- personas ----
 *
 * One string per session, "platform \x1f bot \x1e" per identity: most sockets have one or two. */

enum { NAME_MAX_BYTES = 128 };

static bool name_ok(struct str s)
{
    return s.n <= NAME_MAX_BYTES && str_find(s, '\x1e') < 0 && str_find(s, '\x1f') < 0 &&
           (s.n == 0 || memchr(s.p, '\0', s.n) == NULL);
}

static bool next(struct str *rest, struct str *ret_platform, struct str *ret_bot)
{
    struct str pair;

    if (!str_split(rest, '\x1e', &pair) || pair.n == 0)
        return false;
    str_split(&pair, '\x1f', ret_platform);
    *ret_bot = pair;
    return true;
}

bool persona_find(const struct session *s, struct str platform, struct str bot, struct str *ret_bot)
{
    struct str rest = str_of(s->personas), p, b;

    while (next(&rest, &p, &b)) {
        if (str_eq(p, platform) && (bot.n == 0 || str_eq(b, bot))) {
            *ret_bot = b;
            return true;
        }
    }
    return false;
}

bool persona_default(const struct session *s, struct str *ret_platform, struct str *ret_bot)
{
    struct str rest = str_of(s->personas);

    return next(&rest, ret_platform, ret_bot);
}

void persona_add(struct session *s, struct str platform, struct str bot)
{
    struct str rest = str_of(s->personas), p, b;
    struct buf out = BUF_INIT;
    size_t n = 0;

    if (platform.n == 0 || !name_ok(platform) || !name_ok(bot))
        return;
    for (; next(&rest, &p, &b); n++)
        if (str_eq(p, platform) && str_eq(b, bot))
            return;
    if (n >= PERSONA_MAX)
        return;
    buf_add_str(&out, str_of(s->personas));
    buf_add_str(&out, platform);
    buf_add_c(&out, '\x1f');
    buf_add_str(&out, bot);
    buf_add_c(&out, '\x1e');
    free(s->personas);
    s->personas = buf_take(&out);
}

/* ---- frames ---- */

enum {
    MALFORMED_MAX = 10,
    MALFORMED_WINDOW_MS = 60000,
};

typedef void frame_f(struct session *s, const struct frame *f);

static void on_unknown(struct session *s, const struct frame *f)
{
    (void)f;
    s->inst->relay->n.frames_unknown++;
}

static void on_malformed(struct session *s, const struct frame *f)
{
    struct relay *r = s->inst->relay;
    int64_t now_ms = clock_now_ms(r->env.clock);
    uint64_t skipped;

    r->n.frames_malformed++;
    if (s->malformed == 0 || now_ms - s->malformed_since_ms > MALFORMED_WINDOW_MS) {
        s->malformed = 0;
        s->malformed_since_ms = now_ms;
    }
    s->malformed++;
    if (session_may_log(r, &skipped))
        log_warn(&s->log, "malformed frame: %s more=%llu", f->why, (unsigned long long)skipped);
    if (s->malformed >= MALFORMED_MAX)
        session_close(s, CLOSE_MALFORMED);
}

/* ---- hello ---- */

/* An unconfigured client names the platform "relay": it means the platform it was added for. */
static void claimed_identity(const struct session *s, const struct frame *f,
                             struct str *ret_platform, struct str *ret_bot)
{
    *ret_platform = f->platform;
    *ret_bot = f->bot;
    if (f->bot.n != 0 || s->gw->platform == NULL || !str_eq(f->platform, STR("relay")))
        return;
    *ret_platform = str_of(s->gw->platform);
    *ret_bot = str_of(s->gw->bot);
}

static const struct descriptor *descriptor_for(struct outside *o, struct str platform,
                                               struct str bot)
{
    const struct outlet *at = o->find(o, platform, bot);

    if (at == NULL && bot.n != 0)
        at = o->find(o, platform, STR_NULL);
    return at != NULL ? at->descriptor : &descriptor_relay;
}

/* Records that the gateway is of the newer generation.  Older gateways send one hello without a
 * manifest, and only sends that name neither an identity nor a person. */
static void is_newer(struct session *s)
{
    if (!s->gw->newer)
        facts_gateway_is_newer(s->inst->relay->env.facts, str_of(s->gw->id));
}

static void on_hello(struct session *s, const struct frame *f)
{
    struct outside *outside = s->inst->relay->env.outside;
    struct str platform, bot, known;

    claimed_identity(s, f, &platform, &bot);
    if (f->manifest.doc != NULL || (s->personas != NULL && !persona_find(s, platform, bot, &known)))
        is_newer(s);
    persona_add(s, platform, bot);
    if (f->manifest.doc != NULL && outside->announced != NULL && !s->inside)
        outside->announced(outside, str_of(s->gw->id), f->manifest);
    descriptor_write_frame(s->wire->ops->send_begin(s->wire),
                           descriptor_for(outside, platform, bot));
    s->wire->ops->send_end(s->wire);
    if (s->state == SESSION_NEW || s->state == SESSION_ASLEEP)
        session_receive(s);
}

/* ---- acks ---- */

static void on_ack(struct session *s, const struct frame *f)
{
    struct instance *i = s->inst;
    struct slot *slot = NULL;
    uint64_t id = 0, tag;

    if (f->buffer_id.n == 0) {
        on_unknown(s, f);
        return;
    }
    tag = hash64(&i->relay->env.store->dedup_key, f->buffer_id);
    /* An earlier copy that the store refused may have been sent under the same bufferId. */
    while (slot == NULL && (id = sent_ids_take(&i->sent, tag)) != 0)
        slot = mailbox_find(&i->mb, id);
    acking_on_ack(s, id);
    session_alive(s, true);
    if (slot == NULL)
        return; /* already settled, or a bufferId that was never sent */
    i->relay->n.acked++;
    delivery_settle(i, slot);
    mailbox_tidy(&i->mb);
}

/* ---- the rest ---- */

static void on_outbound(struct session *s, const struct frame *f)
{
    const struct action *a = &f->action;

    if (a->platform.n != 0 || a->user_id.n != 0 || a->op == ACTION_TYPING || a->op == ACTION_EDIT)
        is_newer(s);
    acking_on_action(s, a);
    requests_start(s, f);
}

static void on_interrupt(struct session *s, const struct frame *f)
{
    interrupt_from_gateway(s, f->session_key);
}

static void on_going_idle(struct session *s, const struct frame *f)
{
    (void)f;
    sleep_begin(s);
}

static frame_f *const handlers[] = {
    [FRAME_HELLO] = on_hello,         [FRAME_OUTBOUND] = on_outbound,
    [FRAME_INTERRUPT] = on_interrupt, [FRAME_GOING_IDLE] = on_going_idle,
    [FRAME_INBOUND_ACK] = on_ack,     [FRAME_UNKNOWN] = on_unknown,
    [FRAME_MALFORMED] = on_malformed,
};

static bool on_line(void *ctx, struct str line, bool whole)
{
    struct session *s = ctx;
    struct frame f;

    if (!whole) {
        session_close(s, CLOSE_TOO_LARGE);
        return false;
    }
    if (str_trim(line).n == 0)
        return true;
    frame_read(s->inst->relay->json, line, &f);
    if (s->state != SESSION_CLOSING || f.type == FRAME_INBOUND_ACK)
        handlers[f.type](s, &f);
    return true;
}

size_t session_unfinished(const struct session *s)
{
    return line_reader_bytes(s->reader);
}

void session_data(struct session *s, struct str bytes)
{
    line_reader_feed(&s->reader, bytes, s->inst->relay->lim.max_frame, on_line, s);
}
