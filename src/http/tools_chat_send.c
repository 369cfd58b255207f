/* tools_chat_send.c - chat_send: one action through a session without a socket.
 *
 *      chat_send -> session_open, outbound -> guard -> platform
 *                                    result -> wire -> the turn ends -> answer, session_closed
 *
 * Nothing is told from inside the relay: what the wire gets is looked at when the turn ends. */
#include <stdlib.h>
#include "base/clock.h"
#include "base/crypto.h"
#include "base/jw.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/rand.h"
#include "http/chat_tools.h"
#include "http/front.h"
#include "http/tools.h"
#include "net/loop.h"
#include "relay/relay.h"
#include "tenancy/facts.h"

#define CONTENT_MAX ((size_t)256 << 10)

struct send {
    struct wire wire;   /* first: what the session sees */
    struct list link;   /* front->chat_sends */
    struct front *f;    /* borrowed */
    struct mcp_call *c; /* NULL: nobody waits any more */
    struct session *session;
    const struct gateway *gw; /* borrowed from the facts, which keep tombstones */
    struct buf got;           /* what the relay said; lines */
    struct timer over;        /* look at it, when the turn ends */
    bool closed;              /* the relay wants no more of it */
};

static struct send *send_of(struct wire *w)
{
    return container_of(w, struct send, wire);
}

static void look_soon(struct send *d)
{
    timer_set(loop_clock(d->f->loop), &d->over, 0);
}

static void wire_send(struct wire *w, struct str message)
{
    struct send *d = send_of(w);

    buf_add_str(&d->got, message);
    look_soon(d);
}

static struct buf *wire_send_begin(struct wire *w)
{
    return &send_of(w)->got;
}

static void wire_send_end(struct wire *w)
{
    look_soon(send_of(w));
}

static void wire_ping(struct wire *w, uint32_t number)
{
    (void)w; /* it is gone long before anybody misses a pong */
    (void)number;
}

static void wire_close(struct wire *w, enum close_reason why)
{
    struct send *d = send_of(w);

    (void)why;
    d->closed = true;
    look_soon(d);
}

static const struct wire_ops wire_ops = {
    .send = wire_send,
    .send_begin = wire_send_begin,
    .send_end = wire_send_end,
    .ping = wire_ping,
    .close = wire_close,
};

static void send_free(struct send *d)
{
    timer_stop(loop_clock(d->f->loop), &d->over);
    if (d->session != NULL)
        session_closed(d->session, CLOSE_CODE_NORMAL);
    list_remove(&d->link);
    buf_done(&d->got);
    free(d);
}

void chat_sends_drop(struct front *f)
{
    if (f->chat_sends.next == NULL)
        return; /* it never opened */
    list_each (&f->chat_sends, it, nxt)
        send_free(list_entry(it, struct send, link));
}

size_t chat_sends_open(const struct front *f, struct str tenant, struct str instance)
{
    size_t n = 0;

    for (const struct list *it = f->chat_sends.next; it != &f->chat_sends; it = it->next) {
        const struct send *d = list_entry(it, const struct send, link);
        n += str_eq(str_of(d->gw->tenant), tenant) && str_eq(str_of(d->gw->instance), instance);
    }
    return n;
}

static void tell(struct send *d, struct json result)
{
    struct buf out = BUF_INIT;
    struct jw w = jw_begin(&out);
    struct str error = json_str(result, "error");

    if (json_as_bool(json_get(result, "success"), false)) {
        jw_obj(&w);
        jw_kbool(&w, "success", true);
        jw_kstr_opt(&w, "message_id", json_str(result, "message_id"));
        jw_end_obj(&w);
        mcp_answer(d->c, buf_str(&out));
    } else {
        mcp_refuse(d->c, FAULT_REFUSED, "not sent: %.*s",
                   STR_FMT(error.p != NULL ? error : STR("no reason given")));
    }
    buf_done(&out);
}

/* True: the result was among it. */
static bool find_result(struct send *d)
{
    struct json_parser *parser = json_parser_new();
    struct str rest = buf_str(&d->got), line;
    struct json doc;
    bool found = false;

    while (!found && rest.n > 0 && str_split(&rest, '\n', &line))
        if (json_parse(parser, line, &doc) &&
            str_eq(json_str(doc, "type"), STR("outbound_result"))) {
            found = true;
            if (d->c != NULL)
                tell(d, json_get(doc, "result"));
        }
    json_parser_free(parser);
    return found;
}

static void on_over(struct timer *t)
{
    struct send *d = container_of(t, struct send, over);
    bool found = find_result(d);

    if (!found && d->closed && d->c != NULL)
        mcp_refuse(d->c, FAULT_UNAVAILABLE, "not sent: this server is going down");
    buf_reset(&d->got);
    if (found || d->closed)
        send_free(d);
}

static void on_dropped(void *mine)
{
    struct send *d = mine;

    d->c = NULL; /* what was asked for goes its way */
}

static void write_outbound(struct buf *out, struct json args, struct str request_id)
{
    struct jw w = jw_begin(out);
    struct str thread_id = json_str(args, "thread_id");

    jw_obj(&w);
    jw_kstr(&w, "type", STR("outbound"));
    jw_kstr(&w, "requestId", request_id);
    jw_kstr_opt(&w, "platform", json_str(args, "platform"));
    jw_key(&w, "action");
    jw_obj(&w);
    jw_kstr(&w, "op", STR("send"));
    jw_kstr(&w, "chat_id", json_str(args, "chat_id"));
    jw_kstr(&w, "content", json_str(args, "content"));
    jw_kstr_opt(&w, "reply_to", json_str(args, "reply_to"));
    if (thread_id.p != NULL) {
        jw_key(&w, "metadata");
        jw_obj(&w);
        jw_kstr(&w, "thread_id", thread_id);
        jw_end_obj(&w);
    }
    jw_end_obj(&w);
    jw_end_obj(&w);
    buf_add_c(out, '\n');
}

static void start(struct send *d, struct json args)
{
    struct buf frame = BUF_INIT, id = BUF_INIT;
    struct rand rand = RAND_SYSTEM;
    uint8_t raw[8];

    rand_bytes(&rand, raw, sizeof raw);
    buf_add_z(&id, "mcp-");
    hex_add(&id, raw, sizeof raw);
    write_outbound(&frame, args, buf_str(&id));
    session_data(d->session, buf_str(&frame));
    buf_done(&frame);
    buf_done(&id);
}

void chat_send(void *ctx, struct mcp_call *c, struct json args)
{
    struct front *f = ctx;
    const struct mcp_who *who = mcp_call_who(c);
    const struct gateway *gw = facts_newest_gateway(f->facts, who->caller.tenant, who->instance);
    struct str chat_id, content;

    if (!tool_text(c, args, "chat_id", &chat_id) || !tool_text(c, args, "content", &content))
        return;
    if (content.n > CONTENT_MAX) {
        mcp_refuse(c, FAULT_INVALID, "content is longer than 256 KiB");
        return;
    }
    if (gw == NULL) {
        mcp_refuse(c, FAULT_REFUSED,
                   "this instance has no gateway; its operator makes one: bellhop gateway add");
        return;
    }
    struct send *d = xcalloc(1, sizeof *d);
    *d = (struct send){.wire.ops = &wire_ops, .f = f, .c = c, .gw = gw};
    timer_init(&d->over, on_over);
    list_init(&d->link);
    list_append(&f->chat_sends, &d->link);
    mcp_call_keep(c, d, on_dropped);
    d->session = session_open(f->relay, gw, &d->wire);
    if (d->session != NULL)
        start(d, args);
    else
        wire_close(&d->wire, CLOSE_TRY_LATER);
}
