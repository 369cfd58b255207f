/* ws.c - one accepted WebSocket on top of a connection.
 *
 *      OPEN --ws_close()--> CLOSING --peer's close, or 5 s--> gone
 *        '--peer's close, violation, slow reader--> CLOSING (our frame queued) -> flushed -> gone
 *
 * The size of a frame's header depends on the length of its payload.  ws_send_begin() reserves four
 * bytes, exact for 126 to 65535 bytes.  Otherwise ws_send_end() moves the payload by two or six
 * bytes; short payloads are cheap to move, and long ones are rare. */
#include "net/conn.h"

#include <assert.h>
#include <stdlib.h>

#include "base/crypto.h"
#include "core/contract.h"

enum { HEAD_ROOM = 4, PING_BYTES = 8 };

struct ws {
    struct conn *conn;                  /* borrowed; owns us */
    const struct ws_handlers *handlers; /* borrowed for good */
    void *ctx;
    size_t max_queued;
    struct ws_decoder decoder;
    uint32_t frame_at; /* where the frame begun by ws_send_begin() starts in the output */
    uint16_t code;     /* what on_closed will be told */
    bool writing;      /* between ws_send_begin() and ws_send_end() */
    bool was_high;     /* on_drained is owed */
    bool peer_closed;  /* its close frame came: cut as soon as ours has left */
};

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
                           const struct ws_options *opt, const struct ws_handlers *h, void *ctx)
{
    struct conn *c = http_find(s, offer->id);
    struct buf *out;
    struct ws *ws;

    if (c == NULL || c->state != CONN_HANDLING)
        return NULL;
    out = conn_out(c);
    buf_add_str(out, STR("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                         "Connection: Upgrade\r\nSec-WebSocket-Accept: "));
    buf_add(out, offer->accept, 28);
    buf_add_str(out, STR("\r\n\r\n"));
    conn_mark(c);

    ws = xcalloc(1, sizeof *ws);
    *ws = (struct ws){.conn = c, .handlers = h, .ctx = ctx, .max_queued = opt->max_queued};
    ws->code = CLOSE_CODE_LOST;
    ws_decoder_init(&ws->decoder, true, opt->max_message);
    c->ws = ws;
    conn_answered(c);
    conn_enter(c, CONN_WS);
    return ws;
}

struct ws *ws_accept(struct http_server *s, struct http_req *req, const struct ws_options *opt,
                     const struct ws_handlers *h, void *ctx)
{
    struct ws_offer offer;

    return ws_offer(s, req, &offer) ? ws_accept_offer(s, &offer, opt, h, ctx) : NULL;
}

void ws_let_in(struct ws *ws, struct party *credential, struct party *tenant)
{
    conn_let_in(ws->conn, credential, tenant);
}

/* ---- sending ---- */

size_t ws_queued(const struct ws *ws)
{
    return conn_queued(ws->conn);
}

bool ws_is_closing(const struct ws *ws)
{
    return ws->conn->state != CONN_WS;
}

/* Something was appended.  Whoever does not read is cut off before its queue grows further. */
static void check_queue(struct ws *ws)
{
    struct conn *c = ws->conn;

    conn_mark(c);
    if (conn_queued(c) <= ws->max_queued / 2)
        return;
    ws->was_high = true;
    if (conn_queued(c) <= ws->max_queued && !buf_failed(&c->out))
        return;
    ws->writing = true; /* keeps on_drained for the end of the turn */
    conn_flush(c);      /* perhaps the socket takes it */
    ws->writing = false;
    if (c->state == CONN_WS && (conn_queued(c) > ws->max_queued || buf_failed(&c->out)))
        ws_close(ws, contract_closes[CLOSE_TOO_SLOW].code, contract_closes[CLOSE_TOO_SLOW].text);
}

void ws_send(struct ws *ws, struct str text)
{
    struct conn *c = ws->conn;

    assert(!ws->writing);
    if (c->state != CONN_WS)
        return;
    ws_frame_head(conn_out(c), WS_TEXT, true, text.n, NULL);
    buf_add_str(&c->out, text);
    check_queue(ws);
}

struct buf *ws_send_begin(struct ws *ws)
{
    struct conn *c = ws->conn;
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
    struct conn *c = ws->conn;
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
    check_queue(ws);
}

static void send_control(struct ws *ws, enum ws_op op, struct str payload)
{
    ws_frame_head(conn_out(ws->conn), op, true, payload.n, NULL);
    buf_add_str(&ws->conn->out, payload);
    conn_mark(ws->conn);
}

void ws_ping(struct ws *ws, uint32_t number)
{
    char payload[PING_BYTES];

    assert(!ws->writing);
    if (ws->conn->state != CONN_WS)
        return;
    memcpy(payload, ws->conn->server->ping_tag, 4);
    memcpy(payload + 4, &number, 4);
    send_control(ws, WS_PING, str_make(payload, sizeof payload));
    check_queue(ws);
}

void ws_close(struct ws *ws, int code, const char *reason)
{
    struct conn *c = ws->conn;
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

/* ---- receiving ---- */

static void on_pong(struct ws *ws, struct str bytes)
{
    uint32_t number;

    if (bytes.n != PING_BYTES || memcmp(bytes.p, ws->conn->server->ping_tag, 4) != 0)
        return;
    memcpy(&number, bytes.p + 4, 4);
    if (ws->handlers->on_pong != NULL)
        ws->handlers->on_pong(ws->ctx, number);
}

/* The peer closes, or answers our close. */
static void on_peer_close(struct ws *ws, int code)
{
    if (ws->conn->state == CONN_WS)
        ws_close(ws, code, NULL); /* the echo */
    ws->peer_closed = true;
    conn_mark(ws->conn);
}

static void take_item(struct ws *ws, const struct ws_decoded *it)
{
    bool open = ws->conn->state == CONN_WS;

    switch (it->item) {
    case WS_ITEM_DATA:
        if (open)
            ws->handlers->on_data(ws->ctx, it->bytes, it->end);
        break;
    case WS_ITEM_PING:
        if (open) {
            send_control(ws, WS_PONG, it->bytes);
            check_queue(ws);
        }
        break;
    case WS_ITEM_PONG:
        if (open)
            on_pong(ws, it->bytes);
        break;
    case WS_ITEM_CLOSE:
        on_peer_close(ws, it->code);
        break;
    case WS_ITEM_BAD:
        ws_close(ws, it->code, "protocol violation");
        ws->peer_closed = true; /* nothing it says from here on can be understood */
        ws->conn->linger = true;
        break;
    case WS_ITEM_MORE:
        break;
    }
}

void ws_input(struct conn *c, char *p, size_t n)
{
    struct ws *ws = c->ws;
    struct ws_decoded it;

    do {
        it = ws_decode(&ws->decoder, &p, &n);
        take_item(ws, &it);
    } while (it.item != WS_ITEM_MORE && c->state != CONN_CLOSED && !ws->peer_closed);
}

/* ---- called by conn.c ---- */

void ws_flushed(struct conn *c)
{
    struct ws *ws = c->ws;

    if (ws->peer_closed && conn_queued(c) == 0) {
        conn_finish(c);
        return;
    }
    if (!ws->was_high || ws->writing || c->state != CONN_WS || conn_queued(c) > ws->max_queued / 2)
        return;
    ws->was_high = false;
    if (ws->handlers->on_drained != NULL)
        ws->handlers->on_drained(ws->ctx);
}

void ws_gone(struct conn *c)
{
    struct ws *ws = c->ws;

    ws->writing = false;
    ws->handlers->on_closed(ws->ctx, ws->code);
    ws_decoder_done(&ws->decoder);
    c->ws = NULL;
    free(ws);
}
