/* ws.c - WebSockets: accepted ones (ws.h) and dialled ones (ws_client.h).
 *
 * An accepted one lives on top of a connection:
 *
 *      OPEN --ws_close()--> CLOSING --peer's close, or 5 s--> gone
 *        '--peer's close, violation, slow reader--> CLOSING (our frame queued) -> flushed -> gone
 *
 * The size of a frame's header depends on the length of its payload.  ws_send_begin() reserves four
 * bytes, exact for 126 to 65535 bytes.  Otherwise ws_send_end() moves the payload by two or six
 * bytes; short payloads are cheap to move, and long ones are rare.
 *
 * A dialled one lives on top of a tcp_client:
 *
 *      CONNECTING --on_connected()--> UPGRADING --101--> OPEN --ws_client_close()--> CLOSING
 *      every state --failure, peer's close, time-out--> ENDED: on_closed() is owed
 *
 * A failure or close only sets the state and arms the timer.  The timer calls on_closed() and frees
 * the client, outside of our callers; what was queued before leaves first. */
#include "net/conn.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/crypto.h"
#include "base/url.h"
#include "core/contract.h"
#include "net/tcp_client.h"
#include "net/trunk_priv.h"
#include "net/ws_client.h"

enum { HEAD_ROOM = 4, PING_BYTES = 8 };

static struct conn *conn_of(const struct ws *ws)
{
    return container_of(ws, struct conn, ws);
}

/* ---- the handshake ---- */

static bool key_is_valid(struct str key)
{
    struct buf raw = BUF_INIT;
    bool ok = key.n == 24 && base64_decode(key, &raw) && raw.n == 16;
    buf_done(&raw);
    return ok;
}

static const char *handshake_fault(const struct http_req *req)
{
    if (!http_is_upgrade(req))
        return "this address speaks WebSocket: send an upgrade request";
    if (req->head.minor == 0)
        return "a WebSocket needs HTTP/1.1";
    if (!str_eq(http_header(req, "sec-websocket-version"), STR("13")))
        return "Sec-WebSocket-Version must be 13";
    if (!key_is_valid(http_header(req, "sec-websocket-key")))
        return "Sec-WebSocket-Key must be 16 bytes in base64";
    return NULL;
}

bool ws_offer(struct http_server *s, const struct http_req *req, struct ws_offer *ret)
{
    const char *fault = handshake_fault(req);

    if (req->conn->state != CONN_HANDLING)
        return false; /* answered already */
    if (fault != NULL) {
        http_answer_error(s, http_req_id(req), 400, "bad_upgrade", "%s", fault);
        return false;
    }
    ret->id = http_req_id(req);
    ws_accept_key(http_header(req, "sec-websocket-key"), ret->accept);
    struct str host = http_header(req, "Host");
    ret->tls = http_is_tls(req);
    snprintf(ret->host, sizeof ret->host, "%.*s", host.n < sizeof ret->host ? (int)host.n : 0,
             host.n > 0 ? host.p : "");
    return true;
}

struct ws *ws_accept_offer(struct http_server *s, const struct ws_offer *offer,
                           const struct ws_handlers *h, void *ctx)
{
    struct conn *c = http_find(s, offer->id);
    struct buf *out;

    if (c == NULL || c->state != CONN_HANDLING)
        return NULL;
    out = conn_out(c);
    buf_add_str(out, STR("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                         "Connection: Upgrade\r\nSec-WebSocket-Accept: "));
    buf_add(out, offer->accept, 28);
    buf_add_str(out, STR("\r\n\r\n"));
    conn_mark(c);

    assert(c->req == NULL && c->upload == NULL && c->top == TOP_NONE);
    c->ws = (struct ws){.handlers = h, .ctx = ctx, .code = CLOSE_CODE_LOST};
    c->top = TOP_WS;
    conn_answered(c);
    conn_enter(c, CONN_WS);
    if (c->no_socket) {
        c->carried->next_owed = false;
        batch_add_ws(trunk_out(c->carried->trunk), c->carried->number,
                     &(struct msg_ws){.gateway = h->on_ack != NULL,
                                      .max_message = h->max_message,
                                      .before = (uint32_t)conn_queued(c)});
    }
    return &c->ws;
}

struct ws *ws_accept(struct http_server *s, struct http_req *req, const struct ws_handlers *h,
                     void *ctx)
{
    struct ws_offer offer;

    return ws_offer(s, req, &offer) ? ws_accept_offer(s, &offer, h, ctx) : NULL;
}

void ws_let_in(struct ws *ws, struct party *credential, struct party *tenant)
{
    conn_let_in(conn_of(ws), credential, tenant);
}

/* ---- sending ---- */

size_t ws_queued(const struct ws *ws)
{
    return conn_queued(conn_of(ws));
}

bool ws_is_closing(const struct ws *ws)
{
    return conn_of(ws)->state != CONN_WS;
}

/* Something was appended.  Whoever does not read is cut off before its queue grows further. */
static void check_queue(struct ws *ws)
{
    struct conn *c = conn_of(ws);

    conn_mark(c);
    if (conn_queued(c) <= ws->handlers->max_queued / 2)
        return;
    ws->was_high = true;
    if (conn_queued(c) <= ws->handlers->max_queued && !buf_failed(&c->out))
        return;
    ws->writing = true; /* keeps on_drained for the end of the turn */
    conn_flush(c);      /* perhaps the socket takes it */
    ws->writing = false;
    if (c->state == CONN_WS && (conn_queued(c) > ws->handlers->max_queued || buf_failed(&c->out)))
        ws_close(ws, contract_closes[CLOSE_TOO_SLOW].code, contract_closes[CLOSE_TOO_SLOW].text);
}

static void count_frame(struct conn *c)
{
    if (c->carried != NULL)
        c->carried->frames++;
}

void ws_send(struct ws *ws, struct str text)
{
    struct conn *c = conn_of(ws);

    assert(!ws->writing);
    if (c->state != CONN_WS)
        return;
    ws_frame_head(conn_out(c), WS_TEXT, true, text.n, NULL);
    buf_add_str(&c->out, text);
    count_frame(c);
    check_queue(ws);
}

struct buf *ws_send_begin(struct ws *ws)
{
    struct conn *c = conn_of(ws);
    struct buf *out;

    assert(!ws->writing);
    ws->writing = true;
    if (c->state != CONN_WS) {
        buf_reset(&c->server->void_out);
        return &c->server->void_out;
    }
    out = conn_out(c);
    ws->frame_at = (uint32_t)out->n;
    buf_add(out, "\0\0\0\0", HEAD_ROOM);
    return out;
}

void ws_send_end(struct ws *ws)
{
    struct conn *c = conn_of(ws);
    uint8_t head[14];
    size_t n, head_n;

    assert(ws->writing);
    ws->writing = false;
    if (c->state != CONN_WS)
        return;
    if (buf_failed(&c->out)) {
        check_queue(ws);
        return;
    }
    n = c->out.n - ws->frame_at - HEAD_ROOM;
    head_n = ws_frame_head_bytes(head, WS_TEXT, true, n, NULL);
    if (head_n > HEAD_ROOM && buf_room(&c->out, head_n - HEAD_ROOM) == NULL) {
        check_queue(ws);
        return;
    }
    if (head_n != HEAD_ROOM)
        memmove(c->out.p + ws->frame_at + head_n, c->out.p + ws->frame_at + HEAD_ROOM, n);
    memcpy(c->out.p + ws->frame_at, head, head_n);
    c->out.n = ws->frame_at + head_n + n;
    count_frame(c);
    check_queue(ws);
}

static void send_control(struct ws *ws, enum ws_op op, struct str payload)
{
    ws_frame_head(conn_out(conn_of(ws)), op, true, payload.n, NULL);
    buf_add_str(&conn_of(ws)->out, payload);
    count_frame(conn_of(ws));
    conn_mark(conn_of(ws));
}

void ws_ping(struct ws *ws, uint32_t number)
{
    char payload[PING_BYTES];

    assert(!ws->writing);
    if (conn_of(ws)->state != CONN_WS)
        return;
    memcpy(payload, conn_of(ws)->server->ping_tag, 4);
    memcpy(payload + 4, &number, 4);
    send_control(ws, WS_PING, str_make(payload, sizeof payload));
    check_queue(ws);
}

void ws_close(struct ws *ws, int code, const char *reason)
{
    struct conn *c = conn_of(ws);
    struct str why = str_of(reason);
    char payload[125] = {(char)(code >> 8), (char)code};

    assert(!ws->writing);
    if (c->state != CONN_WS)
        return;
    ws->code = (uint16_t)code;
    if (why.n > sizeof payload - 2) {
        why.n = sizeof payload - 2;
        while (why.n > 0 && (why.p[why.n] & 0xc0) == 0x80)
            why.n--; /* not in the middle of a character */
    }
    if (why.n > 0)
        memcpy(payload + 2, why.p, why.n);
    bool travels = code != CLOSE_CODE_NONE && code != CLOSE_CODE_LOST;
    send_control(ws, WS_CLOSE, str_make(payload, travels ? 2 + why.n : 0));
    conn_enter(c, CONN_WS_CLOSING);
}

/* ---- a socket of an edge on another node ---- */

bool ws_is_remote(const struct ws *ws)
{
    const struct carried *k = conn_of(ws)->carried;

    return k != NULL && k->trunk->ring == NULL;
}

/* Begins a message about the frame that is being written, or else the last one. */
static size_t begin_note(const struct ws *ws, struct buf *out, enum msg_what what)
{
    const struct carried *k = conn_of(ws)->carried;
    size_t begun = batch_add_begin(out, k->number, what);
    char frame[4];

    put_u32(frame, k->frames + ws->writing);
    buf_add(out, frame, sizeof frame);
    return begun;
}

void ws_sent(struct ws *ws, uint64_t row, struct str id)
{
    const struct carried *k = conn_of(ws)->carried;

    if (!ws_is_remote(ws))
        return;
    struct buf *out = trunk_out(k->trunk);
    size_t begun = begin_note(ws, out, MSG_SENT);
    batch_put_row(out, &(struct msg_row){row, id});
    batch_add_end(out, begun);
}

void ws_answered(struct ws *ws, struct str request_id)
{
    const struct carried *k = conn_of(ws)->carried;

    if (!ws_is_remote(ws))
        return;
    struct buf *out = trunk_out(k->trunk);
    size_t begun = begin_note(ws, out, MSG_RESULT);
    buf_add_str(out, request_id);
    batch_add_end(out, begun);
}

void ws_keep(struct ws *ws, const struct ws_name *name)
{
    const struct carried *k = conn_of(ws)->carried;

    if (!ws_is_remote(ws))
        return;
    struct buf *out = trunk_out(k->trunk);
    size_t begun = batch_add_begin(out, k->number, name != NULL ? MSG_KEEP : MSG_LET_GO);
    if (name != NULL)
        batch_put_texts(out,
                        (const struct str[]){name->gateway, name->tenant, name->instance,
                                             name->since, name->rank},
                        5);
    batch_add_end(out, begun);
}

void ws_park(struct ws *ws)
{
    struct conn *c = conn_of(ws);

    if (!ws_is_remote(ws) || c->state != CONN_WS)
        return;
    ws->code = CLOSE_CODE_RESTART;
    carried_say(c->carried, MSG_PARK, STR_NULL);
    carried_free(c->carried);
    conn_close(c);
}

struct ws *ws_resume(const struct ws_past *past, const struct ws_handlers *h, void *ctx)
{
    struct conn *c = past->conn;

    assert(c->req == NULL && c->upload == NULL && c->top == TOP_NONE);
    c->ws = (struct ws){.handlers = h, .ctx = ctx, .code = CLOSE_CODE_LOST};
    c->top = TOP_WS;
    conn_answered(c);
    conn_enter(c, CONN_WS);
    return &c->ws;
}

/* ---- receiving ---- */

void ws_ponged(struct ws *ws, struct str bytes)
{
    uint32_t number;

    if (bytes.n != PING_BYTES || memcmp(bytes.p, conn_of(ws)->server->ping_tag, 4) != 0)
        return;
    memcpy(&number, bytes.p + 4, 4);
    if (ws->handlers->on_pong != NULL)
        ws->handlers->on_pong(ws->ctx, number);
}

void ws_decoder_keep(struct ws_decoder **held, struct ws_decoder *used)
{
    if (*held != NULL && ws_decoder_is_idle(*held)) {
        ws_decoder_done(*held);
        free(*held);
        *held = NULL;
    } else if (*held == NULL && ws_decoder_is_idle(used)) {
        ws_decoder_done(used);
    } else if (*held == NULL) {
        *held = xmalloc(sizeof *used);
        **held = *used;
    }
}

void ws_input(struct conn *c, char *p, size_t n)
{
    struct ws *ws = &c->ws;
    struct ws_decoder fresh, *d = ws->decoder;
    struct ws_decoded it;

    if (d == NULL) {
        d = &fresh;
        ws_decoder_init(d, true, ws->handlers->max_message);
    }
    do {
        bool open = c->state == CONN_WS;
        it = ws_decode(d, &p, &n);
        if (it.item == WS_ITEM_DATA && open) {
            ws->handlers->on_data(ws->ctx, it.bytes, it.end);
        } else if (it.item == WS_ITEM_PING && open) {
            send_control(ws, WS_PONG, it.bytes);
            check_queue(ws);
        } else if (it.item == WS_ITEM_PONG && open) {
            ws_ponged(ws, it.bytes);
        } else if (it.item == WS_ITEM_CLOSE) {
            ws_close(ws, it.code, NULL); /* the echo, unless it answers our close */
            ws->peer_closed = true;
            conn_mark(c);
        } else if (it.item == WS_ITEM_BAD) {
            ws_close(ws, it.code, "protocol violation");
            ws->peer_closed = true; /* nothing it says from here on can be understood */
            c->linger = true;
        }
    } while (it.item != WS_ITEM_MORE && c->state != CONN_CLOSED && !ws->peer_closed);
    ws_decoder_keep(&ws->decoder, d);
}

/* ---- called by conn.c ---- */

void ws_flushed(struct conn *c)
{
    struct ws *ws = &c->ws;

    if (ws->peer_closed && conn_queued(c) == 0) {
        conn_finish(c);
        return;
    }
    if (!ws->was_high || ws->writing || c->state != CONN_WS ||
        conn_queued(c) > ws->handlers->max_queued / 2)
        return;
    ws->was_high = false;
    if (ws->handlers->on_drained != NULL)
        ws->handlers->on_drained(ws->ctx);
}

void ws_gone(struct conn *c)
{
    struct ws *ws = &c->ws;

    ws->writing = false;
    ws->handlers->on_closed(ws->ctx, ws->code);
    if (ws->decoder != NULL)
        ws_decoder_done(ws->decoder);
    free(ws->decoder);
    c->ws = (struct ws){0};
    c->top = TOP_NONE;
}

/* ---- dialled ones ---- */

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

void ws_client_ping(struct ws_client *c)
{
    if (c->state == OPEN)
        send_frame(c, WS_PING, STR("bellhop"));
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

/* A piece of a message: handed on if it is whole, else collected. */
static void on_piece(struct ws_client *c, const struct ws_decoded *it)
{
    struct buf whole = BUF_INIT;
    struct str message = it->bytes;

    if (c->in.n > 0 || !it->end)
        buf_add_str(&c->in, it->bytes);
    if (!it->end)
        return;
    if (c->in.n > 0) {
        whole = c->in;
        c->in = BUF_INIT;
        message = buf_str(&whole);
    }
    if (!it->text || utf8_valid(message)) {
        c->handlers.on_message(c->ctx, message, it->text);
    } else {
        ws_client_close(c, CLOSE_CODE_NOT_UTF8);
        enter_ended(c, CLOSE_CODE_NOT_UTF8, "the peer's text is not UTF-8");
    }
    buf_done(&whole);
}

static void take_frames(struct ws_client *c, char *p, size_t n)
{
    struct ws_decoded it;

    do {
        bool open = c->state == OPEN;
        it = ws_decode(&c->decoder, &p, &n);
        if (it.item == WS_ITEM_DATA && open) {
            on_piece(c, &it);
        } else if (it.item == WS_ITEM_PING && open) {
            send_frame(c, WS_PONG, it.bytes);
        } else if (it.item == WS_ITEM_CLOSE) {
            on_peer_close(c, &it);
        } else if (it.item == WS_ITEM_BAD) {
            ws_client_close(c, it.code);
            enter_ended(c, it.code, "the peer violates the WebSocket protocol");
        }
        if ((it.item == WS_ITEM_PING || it.item == WS_ITEM_PONG) && open &&
            c->handlers.on_alive != NULL)
            c->handlers.on_alive(c->ctx);
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

/* "wss://..." -> "https://...", as libcurl is asked for it.  False: not a URL of ours. */
static bool read_url(struct str text, struct url *ret, struct buf *ret_http)
{
    if (url_split(text, ret) != NULL ||
        (!str_eq(ret->scheme, STR("ws")) && !str_eq(ret->scheme, STR("wss"))))
        return false;
    buf_add_z(ret_http, ret->scheme.n == 3 ? "https" : "http");
    buf_add_str(ret_http, str_skip(text, ret->scheme.n));
    return true;
}

struct ws_client *ws_client_open(struct loop *loop, const struct ws_client_options *opt,
                                 const struct ws_client_handlers *h, void *ctx)
{
    static const struct tcp_client_handlers bytes = {on_connected, on_bytes, on_lost};
    struct ws_client *c = xcalloc(1, sizeof *c);
    int64_t timeout = opt->connect_timeout_ms > 0 ? opt->connect_timeout_ms : DEFAULT_CONNECT_MS;
    struct url to;
    struct buf url = BUF_INIT;

    *c = (struct ws_client){.loop = loop, .handlers = *h, .ctx = ctx};
    timer_init(&c->timer, on_timer);
    ws_decoder_init(&c->decoder, false, opt->max_message != 0 ? opt->max_message : DEFAULT_MESSAGE);
    timer_set(loop_clock(loop), &c->timer, timeout);
    if (read_url(str_of(opt->url), &to, &url)) {
        ws_dial_request(&c->request,
                        &(struct ws_dial){.target = to.target,
                                          .host = to.authority,
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
