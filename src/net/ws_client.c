/* ws_client.c - design.  (ws_client.h has the contract.)
 *
 *      CONNECTING --on_connected()--> UPGRADING --101--> OPEN --ws_client_close()--> CLOSING
 *      every state --failure, peer's close, time-out--> ENDED: on_closed() is owed
 *
 * The bytes travel over a tcp_client.  A failure or close only sets the state and arms the timer.
 * The timer calls on_closed() and frees the client, outside of our callers; what was queued before
 * leaves first. */
#include "net/ws_client.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "core/contract.h"
#include "net/loop.h"
#include "net/tcp_client.h"
#include "net/ws_codec.h"

enum {
    CLOSE_MS = 5000,
    DEFAULT_CONNECT_MS = 10000,
    DEFAULT_MESSAGE = 16 << 20,
};

enum ws_state { CONNECTING, UPGRADING, OPEN, CLOSING, ENDED };

struct ws_client {
    struct loop *loop;      /* borrowed */
    struct tcp_client *tcp; /* owned; NULL: it has ended */
    struct timer timer;     /* connect, close, or "now" in ENDED */
    struct ws_client_handlers handlers;
    void *ctx;
    enum ws_state state;
    struct buf request; /* owned; the upgrade request */
    struct buf in;      /* owned; the answer's head, then the message being collected */
    struct ws_decoder decoder;
    char key[WS_DIAL_KEY_BYTES];
    int code;  /* for on_closed */
    bool busy; /* a handler may be running: free later */
    bool dead; /* ws_client_free() was called meanwhile */
    char why[256];
};

/* ---- the end ---- */

void ws_client_free(struct ws_client *c)
{
    if (c == NULL)
        return;
    c->dead = true;
    if (c->busy)
        return;
    timer_stop(loop_clock(c->loop), &c->timer);
    tcp_client_free(c->tcp);
    ws_decoder_done(&c->decoder);
    buf_wipe(&c->request);
    buf_done(&c->in);
    free(c);
}

static void enter_ended(struct ws_client *c, int code, const char *why)
{
    if (c->state == ENDED)
        return;
    c->code = c->state < OPEN ? 0 : code;
    snprintf(c->why, sizeof c->why, "%s", why);
    c->state = ENDED;
    timer_set(loop_clock(c->loop), &c->timer, 0);
}

static void on_lost(void *ctx, const char *why)
{
    struct ws_client *c = ctx;

    c->tcp = NULL; /* it frees itself */
    enter_ended(c, c->state == CLOSING ? c->code : CLOSE_CODE_LOST, why);
}

/* ---- writing ---- */

static void send_frame(struct ws_client *c, enum ws_op op, struct str payload)
{
    struct buf out = BUF_INIT;

    ws_dial_frame(&out, op, payload);
    if (c->tcp != NULL)
        tcp_client_send(c->tcp, buf_str(&out));
    buf_done(&out);
}

static void send_close(struct ws_client *c, int code)
{
    char payload[2] = {(char)(code >> 8), (char)code};

    send_frame(c, WS_CLOSE, str_make(payload, code == CLOSE_CODE_NONE ? 0 : sizeof payload));
}

void ws_client_send(struct ws_client *c, struct str text)
{
    if (c->state == OPEN)
        send_frame(c, WS_TEXT, text);
}

void ws_client_close(struct ws_client *c, int code)
{
    if (c->state == CLOSING || c->state == ENDED)
        return;
    if (c->state != OPEN) {
        enter_ended(c, 0, "closed before it was open");
        return;
    }
    c->state = CLOSING;
    c->code = code;
    timer_set(loop_clock(c->loop), &c->timer, CLOSE_MS);
    send_close(c, code);
}

/* ---- reading ---- */

static void on_peer_close(struct ws_client *c, const struct ws_decoded *it)
{
    char why[sizeof c->why];
    int code = c->state == CLOSING ? c->code : it->code;

    snprintf(why, sizeof why, "closed by the peer: %.*s", STR_FMT(it->bytes));
    if (c->state == OPEN)
        send_close(c, it->code);
    enter_ended(c, code, why);
}

static void hand_on(struct ws_client *c, struct str message, bool text)
{
    if (!text || utf8_valid(message)) {
        c->handlers.on_message(c->ctx, message, text);
        return;
    }
    ws_client_close(c, CLOSE_CODE_NOT_UTF8);
    enter_ended(c, CLOSE_CODE_NOT_UTF8, "the peer's text is not UTF-8");
}

/* A piece of a message: hand it on if it is whole, else collect. */
static void on_piece(struct ws_client *c, const struct ws_decoded *it)
{
    if (c->in.n == 0 && it->end) {
        hand_on(c, it->bytes, it->text);
        return;
    }
    buf_add_str(&c->in, it->bytes);
    if (!it->end)
        return;
    struct buf whole = c->in;
    c->in = BUF_INIT;
    hand_on(c, buf_str(&whole), it->text);
    buf_done(&whole);
}

static void take_item(struct ws_client *c, const struct ws_decoded *it)
{
    switch (it->item) {
    case WS_ITEM_DATA:
        if (c->state == OPEN)
            on_piece(c, it);
        break;
    case WS_ITEM_PING:
        if (c->state == OPEN)
            send_frame(c, WS_PONG, it->bytes);
        break;
    case WS_ITEM_CLOSE:
        on_peer_close(c, it);
        break;
    case WS_ITEM_BAD:
        ws_client_close(c, it->code);
        enter_ended(c, it->code, "the peer violates the WebSocket protocol");
        break;
    case WS_ITEM_PONG:
    case WS_ITEM_MORE:
        break;
    }
}

static void take_frames(struct ws_client *c, char *p, size_t n)
{
    struct ws_decoded it;

    do {
        it = ws_decode(&c->decoder, &p, &n);
        take_item(c, &it);
    } while (it.item != WS_ITEM_MORE && c->state != ENDED && !c->dead);
}

/* NULL when the server agrees. */
static const char *upgrade_fault(const struct ws_client *c, struct str head, char *text,
                                 size_t text_n)
{
    struct str line = STR_NULL;
    int status;

    if (ws_dial_accepted(head, str_of(c->key), &status))
        return NULL;
    str_split(&head, '\n', &line);
    line = str_trim(line);
    if (status == 0)
        return "the server's answer to the upgrade is not a WebSocket's";
    snprintf(text, text_n, "the server answered \"%.*s\"", line.n < 100 ? (int)line.n : 100,
             line.p);
    return text;
}

static void take_head(struct ws_client *c, struct str bytes)
{
    char text[160];
    struct buf all;
    const char *fault;

    buf_add_str(&c->in, bytes);
    size_t head_n = ws_dial_head_bytes(buf_str(&c->in));
    if (head_n == 0) {
        if (c->in.n > WS_DIAL_HEAD_MAX)
            enter_ended(c, 0, "the server's answer to the upgrade is too long");
        return;
    }
    all = c->in;
    c->in = BUF_INIT;
    fault = upgrade_fault(c, str_make(all.p, head_n), text, sizeof text);
    if (fault != NULL) {
        enter_ended(c, 0, fault);
    } else {
        c->state = OPEN;
        timer_stop(loop_clock(c->loop), &c->timer);
        c->handlers.on_open(c->ctx);
        if (all.n > head_n && c->state != ENDED && !c->dead)
            take_frames(c, all.p + head_n, all.n - head_n);
    }
    buf_done(&all);
}

/* The bytes are unmasked in place: they are the tcp_client's, which needs them no more. */
static void on_bytes(void *ctx, struct str bytes)
{
    struct ws_client *c = ctx;

    if (c->state == ENDED)
        return;
    c->busy = true;
    if (c->state == UPGRADING)
        take_head(c, bytes);
    else
        take_frames(c, (char *)(uintptr_t)bytes.p, bytes.n);
    c->busy = false;
    if (c->dead)
        ws_client_free(c);
}

/* ---- connecting ---- */

static void on_connected(void *ctx)
{
    struct ws_client *c = ctx;

    if (c->state != CONNECTING)
        return;
    c->state = UPGRADING;
    tcp_client_send(c->tcp, buf_str(&c->request));
    buf_wipe(&c->request);
}

static void on_timer(struct timer *t)
{
    struct ws_client *c = container_of(t, struct ws_client, timer);

    if (c->state == CLOSING) {
        enter_ended(c, c->code, "the peer did not answer our close");
        return;
    }
    if (c->state != ENDED) {
        enter_ended(c, 0, "the server took too long");
        return;
    }
    c->busy = true;
    c->handlers.on_closed(c->ctx, c->code, c->why);
    c->busy = false;
    ws_client_free(c);
}

/* "wss://host:1/a?b#c" -> "https://host:1/a?b#c", the authority and the target.  False: not a URL
 * of ours. */
static bool split_url(struct str url, struct buf *ret_http, struct str *ret_host,
                      struct str *ret_target)
{
    bool secure = str_starts(url, STR("wss://"));
    struct str rest = str_skip(url, secure ? 6 : 5);
    size_t n = 0;
    ptrdiff_t mark;

    if (!secure && !str_starts(url, STR("ws://")))
        return false;
    while (n < rest.n && rest.p[n] != '/' && rest.p[n] != '?' && rest.p[n] != '#')
        n++;
    *ret_host = str_make(rest.p, n);
    *ret_target = str_skip(rest, n);
    mark = str_find(*ret_target, '#');
    if (mark >= 0)
        ret_target->n = (size_t)mark;
    mark = str_find(*ret_host, '@');
    if (mark >= 0)
        *ret_host = str_skip(*ret_host, (size_t)mark + 1);
    buf_add_z(ret_http, secure ? "https://" : "http://");
    buf_add_str(ret_http, rest);
    for (size_t i = 0; i < url.n; i++) {
        if ((unsigned char)url.p[i] <= ' ' || url.p[i] == 0x7f)
            return false; /* nothing that could end our request line */
    }
    return ret_host->n > 0;
}

struct ws_client *ws_client_open(struct loop *loop, const struct ws_client_options *opt,
                                 const struct ws_client_handlers *h, void *ctx)
{
    static const struct tcp_client_handlers bytes = {on_connected, on_bytes, on_lost};
    struct ws_client *c = xcalloc(1, sizeof *c);
    int64_t timeout = opt->connect_timeout_ms > 0 ? opt->connect_timeout_ms : DEFAULT_CONNECT_MS;
    struct str host, target;
    struct buf url = BUF_INIT;

    *c = (struct ws_client){.loop = loop, .handlers = *h, .ctx = ctx};
    timer_init(&c->timer, on_timer);
    ws_decoder_init(&c->decoder, false, opt->max_message != 0 ? opt->max_message : DEFAULT_MESSAGE);
    timer_set(loop_clock(loop), &c->timer, timeout);
    if (split_url(str_of(opt->url), &url, &host, &target)) {
        ws_dial_request(&c->request,
                        &(struct ws_dial){.target = target,
                                          .host = host,
                                          .user_agent = STR("bellhop/" BELLHOP_VERSION),
                                          .headers = opt->headers},
                        c->key);
        c->tcp = tcp_client_open(loop,
                                 &(struct tcp_client_options){.url = buf_z(&url),
                                                              .ca_path = opt->ca_path,
                                                              .connect_timeout_ms = timeout},
                                 &bytes, c);
    } else {
        enter_ended(c, 0, "the address is not a ws:// or wss:// URL");
    }
    buf_done(&url);
    return c;
}
