/* trunk_edge.c - the edge's end of a trunk: dialling, and sockets whose requests are carried.
 *
 *      DIALLING --101--> CHALLENGED --WELCOME from the expected heart--> UP
 *         every state --anything else, or silence--> lost: on_lost(), and freed
 *
 * A request is parsed here and travels whole; a long body follows its head in pieces.  The heart's
 * NEXT lets the connection read its next request.  A WebSocket is decoded here: its pings are
 * answered here, its texts and acks travel.
 *
 * The loss of a trunk does not affect connections between two requests.  The edge parks a
 * gateway's WebSocket: the edge answers its pings and holds its messages until the next
 * heart has them (net/kept.h). */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/crypto.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rand.h"
#include "core/contract.h"
#include "net/redis_hop.h"
#include "net/tcp_client.h"
#include "net/trunk_priv.h"

enum {
    MAX_ANSWER_BYTES = 4096,
    DIAL_MS = 5000,
    MAX_UNSENT = 64 << 20,
    PRESENTS_PER_TURN = 256,
    STREAM_KERNEL_BYTES = 16 * 1024, /* as http_answer.c has it */
    MAX_HELD_BYTES = 64 * 1024,
};

/* ---- the proof ---- */

static void prove(struct trunk *t, struct str challenge)
{
    struct rand r = RAND_SYSTEM;

    if (challenge.n != sizeof t->challenge) {
        trunk_fail(t, "the other side speaks another protocol");
        return;
    }
    memcpy(t->challenge, challenge.p, sizeof t->challenge);
    rand_bytes(&r, t->answer, sizeof t->answer);
    trunk_send_proof(t, MSG_PROOF, "edge", str_make(t->answer, sizeof t->answer));
}

/* Oldest first, so each held request is looked at once, however small the steps in which the trunk
 * drains.  Half of the room is left for connections whose requests are being sent. */
void edge_go_on(struct trunk *t)
{
    struct list *held = &t->server->by_state[CONN_HELD];
    size_t leave = trunk_room(t) / 2;
    bool sent = t->server->carrier == t;

    t->holds = false;
    while (sent && !list_is_empty(held) && trunk_room(t) > leave) {
        struct conn *c = list_first(held, struct conn, link);
        conn_enter(c, CONN_IDLE);
        http_resume(c);
        conn_mark(c);                 /* it may read on */
        sent = c->state != CONN_HELD; /* else the trunk takes no connection */
    }
    t->holds = sent && !list_is_empty(held);
    edge_present_soon(t->server);
}

static void take_welcome(struct trunk *t, struct str payload)
{
    uint8_t mac[TRUNK_MAC_BYTES];

    trunk_mac(t, "heart", str_of(t->other), mac);
    if (payload.n < sizeof mac || !str_eq(str_skip(payload, sizeof mac), str_of(t->other))) {
        trunk_fail(t, "another process answers there than the one that serves");
    } else if (!ct_equal(mac, payload.p, sizeof mac)) {
        trunk_fail(t, "who answers there does not know the master key");
    } else {
        t->up = true;
        secret_wipe(t->key, sizeof t->key);
        t->server->carrier = t;
        t->holds = !list_is_empty(&t->server->by_state[CONN_HELD]);
        timer_set(t->server->clock, &t->go_on, 0);
        edge_present_soon(t->server);
        t->handlers.on_up(t->ctx);
    }
}

/* New requests wait for the next trunk. */
static void lose_carrier(struct trunk *t)
{
    if (t->server->carrier != t)
        return;
    t->server->carrier = NULL;
    t->server->carrier_lost_ms = clock_now_ms(t->server->clock);
}

/* ---- requests ---- */

bool trunk_is_ours(struct str head)
{
    static const struct str ours[] = {STR("GET /healthz"), STR("GET /metrics"),
                                      STR("GET /admin/nodes"), STR("POST /admin/drain ")};

    for (size_t i = 0; i < ARRAY_LEN(ours); i++)
        if (str_starts(head, ours[i]))
            return true;
    return false;
}

bool edge_carries(const struct conn *c, struct str head)
{
    const struct http_server *s = c->server;

    if (s->in_process)
        return true;
    if (c->no_socket || (s->carrier == NULL && s->timeout_ms[CONN_HELD] == 0) ||
        trunk_is_ours(head))
        return false;
    /* This node answers itself whether it is ready, when it goes or has no heart. */
    return !(s->leaving || s->carrier == NULL) || !str_starts(head, STR("GET /readyz"));
}

/* NULL: there is no trunk, or no room on it. */
static struct carried *carry(struct conn *c)
{
    struct trunk *t = c->server->carrier;
    struct carried *k = c->carried;
    char payload[1 + sizeof c->peer.bytes];

    if (t == NULL || t->lost)
        return NULL;
    if (k != NULL && k->trunk == t)
        return k;
    if (k != NULL)
        carried_let_go(c); /* on a trunk whose heart goes */
    k = carried_new(t, 0);
    if (k == NULL)
        return NULL;
    payload[0] = (char)((c->is_tls ? CONNECT_TLS : 0) | (conn_lacks_cert(c) ? CONNECT_NO_CERT : 0) |
                        (c->reserved ? CONNECT_ADMIN : 0));
    memcpy(payload + 1, c->peer.bytes, c->peer.n);
    k->conn = c;
    c->carried = k;
    carried_say(k, MSG_CONNECT, str_make(payload, 1u + c->peer.n));
    return k;
}

bool edge_send_request(struct conn *c, struct http_req *r, bool whole)
{
    struct carried *k = carry(c);
    struct msg_request m = {.head = &r->head,
                            .head_bytes = str_make(r->base, r->head.bytes),
                            .body = whole ? http_body(r) : STR_NULL,
                            .signer = r->signer,
                            .checked = r->checked,
                            .expects = !whole && r->head.expects_continue && !r->body_came};

    if (k == NULL)
        return false;
    batch_add_request(trunk_out(k->trunk), k->number, whole ? MSG_REQUEST : MSG_HEAD, &m);
    k->asked = true;
    k->has_body = !whole;
    k->is_stream = false;
    conn_enter(c, CONN_CARRIED);
    return true;
}

size_t edge_holds(const struct carried *k)
{
    return k->kept != NULL ? k->kept->line.cap + k->held.cap : 0;
}

size_t edge_may_take(struct carried *k)
{
    const struct conn *c = k->conn;

    if (k->trunk == NULL)
        return k->held.n < MAX_HELD_BYTES ? MAX_HELD_BYTES - k->held.n : 0;
    if (k->kept != NULL || k->has_body)
        return carried_may_write(k) ? k->credit : 0;
    return k->is_stream && c->in->n < HTTP_READ_BYTES ? HTTP_READ_BYTES - c->in->n : 0;
}

static void spend(struct carried *k, size_t n)
{
    k->credit -= n < k->credit ? (uint32_t)n : k->credit;
}

void edge_send_body(struct conn *c, struct str piece, bool end)
{
    struct carried *k = c->carried;

    for (; piece.n > 0;
         piece = str_skip(piece, piece.n < KEPT_PIECE_BYTES ? piece.n : KEPT_PIECE_BYTES)) {
        size_t n = piece.n < KEPT_PIECE_BYTES ? piece.n : KEPT_PIECE_BYTES;
        carried_say(k, MSG_BODY, str_make(piece.p, n));
        spend(k, n);
    }
    if (!end)
        return;
    carried_say(k, MSG_END, STR_NULL);
    k->has_body = false;
}

/* ---- WebSockets ---- */

static struct kept_out out_of(struct carried *k)
{
    struct trunk *t = k->trunk;
    struct http_server *s = t->server;

    if (s->json == NULL)
        s->json = json_parser_new();
    return (struct kept_out){trunk_out(t), k->number, &t->acks, s->json};
}

/* Of a socket that is no gateway's: its messages as they come. */
static void pass_text(struct carried *k, struct str text, bool end)
{
    do {
        size_t n = text.n < KEPT_PIECE_BYTES ? text.n : KEPT_PIECE_BYTES;
        struct buf *out = trunk_out(k->trunk);
        size_t begun = batch_add_begin(out, k->number, MSG_TEXT);
        buf_add_c(out, end && n == text.n);
        buf_add(out, text.p, n);
        batch_add_end(out, begun);
        spend(k, n + 1);
        text = str_skip(text, n);
    } while (text.n > 0);
}

static void pass_up(struct carried *k, const struct ws_decoded *it)
{
    if (k->trunk != NULL && !k->is_gateway) {
        pass_text(k, it->bytes, it->end);
        return;
    }
    if (k->trunk == NULL) {
        buf_add_str(&k->held, it->bytes);
    } else {
        struct kept_out out = out_of(k);
        kept_committed(k->kept, k->trunk->committed);
        spend(k, kept_up(k->kept, it->bytes, &out));
    }
    if (edge_holds(k) != k->conn->in_counted)
        conn_mark(k->conn); /* counted when the turn ends */
}

static void add_frame(struct conn *c, enum ws_op op, struct str payload)
{
    ws_frame_head(conn_out(c), op, true, payload.n, NULL);
    buf_add_str(&c->out, payload);
    conn_mark(c);
}

/* Closes the socket when its output has left.  A close frame goes first, unless one did. */
static void say_goodbye(struct conn *c, int code, const char *why)
{
    char payload[2 + 64] = {(char)(code >> 8), (char)code};
    size_t n = strnlen(why, sizeof payload - 2);

    memcpy(payload + 2, why, n);
    if (!c->carried->kept->closed && c->carried->before == 0)
        add_frame(c, WS_CLOSE, str_make(payload, code == CLOSE_CODE_NONE ? 0 : 2 + n));
    carried_free(c->carried);
    conn_enter(c, CONN_LAST);
    conn_mark(c);
}

/* The client has said its last. */
static void hang_up(struct conn *c, int code, const char *why)
{
    char bytes[2];

    put_u16(bytes, (uint16_t)code);
    if (c->carried->trunk != NULL)
        carried_say(c->carried, MSG_GONE, str_make(bytes, sizeof bytes));
    say_goodbye(c, code, why);
}

static void ws_bytes(struct conn *c, char *p, size_t n)
{
    struct carried *k = c->carried;
    struct ws_decoder fresh, *d = k->decoder;
    struct ws_decoded it;

    if (d == NULL) {
        d = &fresh;
        ws_decoder_init(d, true, k->max_message);
    }
    do {
        it = ws_decode(d, &p, &n);
        if (it.item == WS_ITEM_DATA && !k->kept->closed)
            pass_up(k, &it);
        else if (it.item == WS_ITEM_PING && !k->kept->closed)
            add_frame(c, WS_PONG, it.bytes);
        else if (it.item == WS_ITEM_PONG && k->trunk != NULL)
            carried_say(k, MSG_PONG, it.bytes);
    } while (it.item != WS_ITEM_MORE && it.item != WS_ITEM_CLOSE && it.item != WS_ITEM_BAD);
    ws_decoder_keep(&k->decoder, d);
    if (it.item == WS_ITEM_CLOSE) {
        hang_up(c, it.code, "");
    } else if (it.item == WS_ITEM_BAD) {
        c->linger = true;
        hang_up(c, it.code, "protocol violation");
    }
}

void edge_input(struct conn *c, char *p, size_t n)
{
    struct carried *k = c->carried;

    if (k->kept != NULL)
        ws_bytes(c, p, n);
    else if (k->has_body)
        http_input(c, p, n);
    else
        buf_add(conn_in(c), p, n);
}

static bool begin_ws(struct carried *k, struct str payload)
{
    struct conn *c = k->conn;
    struct msg_ws w;

    if (!batch_read_ws(payload, &w) || k->kept != NULL || !k->asked || k->has_body)
        return false;
    k->kept = xcalloc(1, sizeof *k->kept);
    k->kept->remote = k->trunk->ring == NULL;
    k->is_gateway = w.gateway;
    k->max_message = w.max_message;
    k->before = w.before;
    struct buf early = BUF_INIT; /* frames that did not wait for the answer */
    if (c->in->n > 0)
        buf_add_str(&early, buf_str(c->in));
    conn_in_done(c);
    conn_mark(c); /* it may read on */
    if (early.n > 0)
        ws_bytes(c, early.p, early.n);
    buf_done(&early);
    return true;
}

static void let_in(struct conn *c, struct str payload)
{
    struct ledger *l = c->server->ledger;
    struct msg_let_in who;
    struct party *credential, *tenant;

    if (l == NULL || !batch_read_texts(payload, (struct str *)(void *)&who, 2))
        return;
    credential = ledger_party(l, PER_CREDENTIAL, who.credential);
    tenant = ledger_party(l, PER_TENANT, who.tenant);
    conn_let_in(c, credential, tenant);
    party_drop(credential);
    party_drop(tenant);
}

/* ---- a heart is lost, the next one comes ---- */

void edge_close_parked(struct conn *c)
{
    const struct contract_close *why = &contract_closes[CLOSE_RESTARTING];

    say_goodbye(c, why->code, why->text);
}

/* The heart has ended its session, or is lost. */
static void park(struct carried *k)
{
    struct conn *c = k->conn;

    carried_leave(k);
    k->owed = 0;
    if (!kept_lost(k->kept) || !k->is_gateway || k->before > 0)
        edge_close_parked(c);
    else
        conn_enter(c, CONN_PARKED);
    conn_mark(c); /* it may read on */
}

static void present(struct conn *c)
{
    struct carried *old = c->carried, *k;

    c->carried = NULL;
    k = carry(c);
    if (k == NULL) {
        c->carried = old;
        edge_close_parked(c);
        return;
    }
    k->kept = old->kept;
    k->decoder = old->decoder;
    k->max_message = old->max_message;
    k->is_gateway = true;
    k->asked = true;
    conn_enter(c, CONN_CARRIED);
    struct kept_out out = out_of(k);
    kept_present(k->kept, &out);
    spend(k, kept_up(k->kept, buf_str(&old->held), &out));
    conn_mark(c); /* it may read on */
    buf_done(&old->held);
    free(old);
}

/* The socket becomes one of this process: what an edge would send another one is taken at once. */
static void adopt(struct conn *c)
{
    struct carried *k = c->carried;
    struct kept_socket *kept = k->kept;
    struct ws_decoder *decoder = k->decoder;
    struct buf batch = BUF_INIT, held = k->held;
    struct shown shown = {{0}};
    uint64_t acks = 0;
    struct str messages;
    struct msg m = {0};
    bool bad;

    k->kept = NULL;
    k->decoder = NULL;
    k->held = BUF_INIT;
    carried_free(k);
    batch_begin(&batch);
    kept_present(kept, &(struct kept_out){&batch, 1, &acks, NULL});
    messages = str_skip(buf_str(&batch), BATCH_HEAD_BYTES);
    while (batch_next(&messages, &m, &bad) && m.what != MSG_ACKS)
        (void)heart_take_shown(c, &shown, &m);
    if (c->top == TOP_WS)
        c->ws.decoder = decoder;
    else if (decoder != NULL)
        ws_decoder_done(decoder);
    if (c->top != TOP_WS)
        free(decoder);
    for (bool more = m.what == MSG_ACKS && c->top == TOP_WS; more;
         more = batch_next(&messages, &m, &bad))
        for (struct str ids = m.payload; ids.n > 0; ids = str_skip(ids, MSG_ID_BYTES))
            if (c->state == CONN_WS && c->ws.handlers->on_ack != NULL)
                c->ws.handlers->on_ack(c->ws.ctx, str_make(ids.p, MSG_ID_BYTES));
    if (kept->line.n > 0 && c->state == CONN_WS)
        c->ws.handlers->on_data(c->ws.ctx, buf_str(&kept->line), false);
    if (held.n > 0 && c->state == CONN_WS)
        c->ws.handlers->on_data(c->ws.ctx, buf_str(&held), false);
    if (c->state != CONN_CLOSED)
        conn_mark(c); /* it may read on */
    shown_done(&shown);
    kept_done(kept);
    free(kept);
    buf_done(&held);
    buf_done(&batch);
}

/* Some in each turn, so that a heart with many takes turns with its other work. */
void edge_on_present(struct timer *timer)
{
    struct http_server *s = container_of(timer, struct http_server, presents);
    size_t n = 0;

    list_each (&s->by_state[CONN_PARKED], it, nxt) {
        struct conn *c = list_entry(it, struct conn, link);
        bool awaited = s->carrier != NULL ? s->carrier->lost : !s->adopts;
        if (awaited || !edge_has_room(s) || n++ == PRESENTS_PER_TURN)
            break;
        if (s->carrier != NULL)
            present(c);
        else
            adopt(c);
    }
    if (n > PRESENTS_PER_TURN)
        timer_set(s->clock, timer, 1);
}

void edge_present_soon(struct http_server *s)
{
    timer_set(s->clock, &s->presents, 0);
}

void trunk_adopt(struct http_server *s)
{
    s->adopts = true;
    edge_present_soon(s);
}

/* The trunk of this connection is lost. */
static void lose_heart(struct carried *k)
{
    struct conn *c = k->conn;

    if (k->kept != NULL) {
        park(k);
    } else if (c->state == CONN_CARRIED) {
        carried_free(k);
        conn_close(c);
    } else {
        carried_free(k); /* between two requests, or in one that the heart has not seen */
    }
}

/* ---- messages of one connection ---- */

/* What the heart may send before the client has taken it is bounded by the window. */
static bool take_data(struct carried *k, struct str bytes)
{
    struct conn *c = k->conn;
    size_t plain = bytes.n;

    if (k->owed + bytes.n > TRUNK_WINDOW || !k->asked)
        return false;
    k->owed += (uint32_t)bytes.n;
    if (k->kept != NULL)
        plain = k->before < bytes.n ? k->before : bytes.n;
    buf_add(conn_out(c), bytes.p, plain);
    if (k->kept != NULL) {
        k->before -= (uint32_t)plain;
        kept_down(k->kept, str_skip(bytes, plain), &c->out);
    }
    conn_mark(c);
    return true;
}

void edge_flushed(struct carried *k)
{
    size_t waits = conn_queued(k->conn);

    carried_pay(k, waits < k->owed ? k->owed - (uint32_t)waits : 0);
}

static void take_close(struct carried *k)
{
    struct conn *c = k->conn;

    carried_free(k);
    if (c->state != CONN_CARRIED)
        return; /* the heart has forgotten it between two requests */
    http_req_free(c);
    c->linger = true; /* earlier bytes are still sent to the client */
    conn_enter(c, CONN_LAST);
    conn_mark(c);
}

static bool take_next(struct carried *k)
{
    struct conn *c = k->conn;

    if (!k->asked || k->has_body || k->kept != NULL)
        return false;
    k->asked = false;
    k->is_stream = false;
    conn_enter(c, CONN_IDLE);
    conn_mark(c); /* the next request may be here already */
    return true;
}

static bool take_order(struct carried *k, const struct msg *m)
{
    struct kept_socket *kept = k->kept;

    if (kept == NULL)
        return false;
    switch (m->what) {
    case MSG_KEEP:
        return kept_keep(kept, m->payload);
    case MSG_LET_GO:
        buf_reset(&kept->keep);
        return true;
    case MSG_SENT:
        kept_committed(kept, k->trunk->committed);
        return kept_sent(kept, m->payload);
    case MSG_RESULT:
        return kept_result(kept, m->payload);
    case MSG_PARK:
        park(k);
        return true;
    default:
        return false;
    }
}

static void take_for_one(struct trunk *t, struct carried *k, const struct msg *m)
{
    struct conn *c = k->conn;
    int kernel = STREAM_KERNEL_BYTES;
    bool ok = true;

    switch (m->what) {
    case MSG_DATA:
        ok = take_data(k, m->payload);
        break;
    case MSG_CREDIT:
        ok = carried_take_credit(k, m->payload);
        break;
    case MSG_CLOSE:
        take_close(k);
        break;
    case MSG_NEXT:
        ok = take_next(k);
        break;
    case MSG_STREAM:
        k->is_stream = true;
        setsockopt(c->io.fd, SOL_SOCKET, SO_SNDBUF, &kernel, sizeof kernel);
        conn_mark(c); /* it reads, to notice that the client has gone */
        break;
    case MSG_WS:
        ok = begin_ws(k, m->payload);
        break;
    case MSG_LET_IN:
        let_in(c, m->payload);
        break;
    default:
        ok = take_order(k, m);
    }
    if (!ok)
        trunk_fail(t, "a message makes no sense");
}

/* ---- messages of the trunk ---- */

static void take_early(struct trunk *t, const struct msg *m)
{
    if (m->what == MSG_CHALLENGE)
        prove(t, m->payload);
    else if (m->what == MSG_WELCOME)
        take_welcome(t, m->payload);
    else
        trunk_fail(t, "the other side speaks another protocol");
}

static void edge_take(struct trunk *t, const struct msg *m)
{
    struct carried *k;

    if (!t->up) {
        take_early(t, m);
        return;
    }
    switch (m->what) {
    case MSG_QUESTION:
    case MSG_ASK:
    case MSG_UNASK:
        trunk_take_question(t, m);
        break;
    case MSG_COMMITTED:
        if (m->payload.n == 8)
            t->committed = get_u64(m->payload.p);
        break;
    case MSG_GOING:
        if (t->ring != NULL)
            http_server_drain(t->server);
        else
            lose_carrier(t);
        batch_add(trunk_out(t), 0, MSG_GOING, STR_NULL);
        break;
    case MSG_BEAT:
        break;
    case MSG_SIGNER:
    case MSG_UNSIGN:
        if (!signer_take(t, m))
            trunk_fail(t, "a signer makes no sense");
        break;
    default:
        k = carried_find(t, m->number);
        if (k != NULL) /* else we closed it, and that is on its way */
            take_for_one(t, k, m);
    }
}

/* ---- the connection to the heart ---- */

static void on_open(void *ctx)
{
    struct trunk *t = ctx;

    tcp_client_send(t->tcp, STR("GET /cluster/trunk HTTP/1.1\r\nHost: localhost\r\n"
                                "Connection: Upgrade\r\nUpgrade: " TRUNK_PROTOCOL "\r\n\r\n"));
}

/* The answer to that, which has no body when it is the right one. */
static struct str take_answer(struct trunk *t, struct str bytes)
{
    static const struct str right = STR("HTTP/1.1 101 ");
    size_t before = t->in.n, end;
    struct str all;

    buf_add_str(&t->in, bytes);
    all = buf_str(&t->in);
    for (end = 4; end <= all.n && memcmp(all.p + end - 4, "\r\n\r\n", 4) != 0;)
        end++;
    if (end > all.n && all.n <= MAX_ANSWER_BYTES)
        return STR_NULL;
    if (end > all.n || !str_starts(all, right)) {
        trunk_fail(t, str_starts(all, STR("HTTP/1.1 426 "))
                          ? "the node that serves runs another version of bellhop, with another "
                            "protocol between nodes: this node stands by"
                          : "the process that serves takes no trunks from this version of bellhop "
                            "(" TRUNK_PROTOCOL ")");
        return STR_NULL;
    }
    t->upgraded = true;
    buf_done(&t->in);
    return str_skip(bytes, end - before);
}

static void on_data(void *ctx, struct str bytes)
{
    struct trunk *t = ctx;

    if (!t->upgraded)
        bytes = take_answer(t, bytes);
    if (bytes.n > 0 && !t->lost)
        trunk_input(t, bytes);
}

static void on_closed(void *ctx, const char *why)
{
    struct trunk *t = ctx;

    t->tcp = NULL;
    t->line = NULL;
    trunk_fail(t, why);
}

static void on_line_open(void *ctx)
{
}

/* Over Redis there is no upgrade: HELLO names the protocol, and the heart speaks first. */
static void open_line(struct trunk *t, struct redis_hop *hop)
{
    static const struct tcp_client_handlers handlers = {.on_open = on_line_open,
                                                        .on_data = on_data,
                                                        .on_closed = on_closed};

    t->upgraded = true;
    t->line = hop_line_open(hop, t->other, &handlers, t);
}

/* ---- its life ---- */

static void finish(struct trunk *t)
{
    void *k;

    t->lost = true; /* nothing is sent any more */
    lose_carrier(t);
    for (size_t at = 0; map_next(&t->carried, &at, &k);)
        lose_heart(k);
    tcp_client_free(t->tcp);
    hop_line_free(t->line);
    trunk_done(t);
}

static void on_edge_beat(struct timer *timer)
{
    struct trunk *t = container_of(timer, struct trunk, beat);
    int64_t silent_ms = clock_now_ms(t->server->clock) - t->heard_ms;

    if (!t->lost && silent_ms > (t->up ? TRUNK_SILENT_MS : DIAL_MS))
        trunk_fail(t, "the process that serves does not answer");
    if (t->lost) {
        struct trunk_handlers h = t->handlers;
        void *h_ctx = t->ctx;
        char why[sizeof t->why];
        memcpy(why, t->why, sizeof why);
        finish(t);
        free(t);
        h.on_lost(h_ctx, why);
        return;
    }
    if (t->up)
        batch_add(trunk_out(t), 0, MSG_BEAT, STR_NULL);
    timer_set(t->server->clock, timer, TRUNK_BEAT_MS);
}

struct trunk *trunk_open(struct loop *loop, struct http_server *s, const struct trunk_dial *d,
                         const struct trunk_handlers *h, void *ctx)
{
    static const struct tcp_client_handlers handlers = {.on_open = on_open,
                                                        .on_data = on_data,
                                                        .on_closed = on_closed};
    struct trunk *t = xcalloc(1, sizeof *t);

    trunk_init(t, s);
    timer_init(&t->beat, on_edge_beat);
    t->take = edge_take;
    t->handlers = *h;
    t->ctx = ctx;
    memcpy(t->key, d->key, sizeof t->key);
    snprintf(t->name, sizeof t->name, "%s", d->name);
    snprintf(t->other, sizeof t->other, "%s", d->heart);
    timer_set(s->clock, &t->beat, TRUNK_BEAT_MS);
    if (d->hop != NULL) {
        open_line(t, d->hop);
        return t;
    }
    t->high = TCP_HIGH_BYTES;
    t->tcp = tcp_client_open(loop,
                             &(struct tcp_client_options){.host = d->host,
                                                          .port = d->port,
                                                          .tls = d->tls,
                                                          .ca_path = d->ca_path,
                                                          .connect_timeout_ms = DIAL_MS,
                                                          .max_unsent = MAX_UNSENT},
                             &handlers, t);
    return t;
}

struct trunk *edge_open_ring(struct http_server *s, struct ring *to, size_t n)
{
    struct trunk *t = xcalloc(1, sizeof *t);

    trunk_init(t, s);
    t->up = true;
    t->ring = to;
    t->high = RING_HIGH_BYTES / n;
    t->take = edge_take;
    s->carrier = t;
    s->in_process = true;
    return t;
}

bool trunk_is_up(const struct trunk *t)
{
    return t != NULL && t->up && !t->lost;
}

size_t trunk_connections(const struct trunk *t)
{
    return t != NULL ? map_count(&t->carried) : 0;
}

void trunk_leave(struct trunk *t)
{
    if (trunk_is_up(t))
        batch_add(trunk_out(t), 0, MSG_LEAVING, STR_NULL);
}

void trunk_free(struct trunk *t)
{
    if (t == NULL)
        return;
    finish(t);
    free(t);
}

/* ---- what waits for a trunk ---- */

bool trunk_is_awaited(const struct http_server *s)
{
    return s->carrier == NULL && s->carrier_lost_ms != 0 && !s->leaving &&
           clock_now_ms(s->clock) - s->carrier_lost_ms < s->timeout_ms[CONN_HELD];
}

void edge_release(struct conn *c)
{
    c->req->here = true;
    conn_enter(c, CONN_IDLE);
    conn_mark(c); /* what it said is looked at when the turn ends */
}

void trunk_hold(struct http_server *s, int64_t ms)
{
    s->timeout_ms[CONN_HELD] = ms;
    if (ms > 0)
        s->timeout_ms[CONN_PARKED] = ms;
    list_each (&s->by_state[CONN_HELD], it, nxt)
        if (ms == 0)
            edge_release(list_entry(it, struct conn, link));
}
