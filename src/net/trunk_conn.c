/* trunk_conn.c - connections over a trunk, at both of its ends.
 *
 * The keeper checks who asks for a trunk, and gives its server connections without sockets.  The
 * porter dials the keeper, and forwards the bytes of its sockets:
 *
 *      DIALLING --101--> CHALLENGED --WELCOME from the expected keeper--> UP
 *         every state --anything else, or silence--> lost: on_lost(), and freed
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/crypto.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rand.h"
#include "core/contract.h"
#include "net/tcp_client.h"
#include "net/trunk_priv.h"

/* ---- the proof ---- */

void trunk_mac(const struct trunk *t, const char *role, struct str name, uint8_t ret_mac[32])
{
    struct buf text = BUF_INIT;

    buf_printf(&text, "%s %s ", TRUNK_PROTOCOL, role);
    buf_add(&text, t->challenge, sizeof t->challenge);
    buf_add(&text, t->answer, sizeof t->answer);
    buf_add_str(&text, name);
    hmac_sha256(str_make((const char *)t->key, sizeof t->key), buf_str(&text), ret_mac);
    buf_done(&text);
}

/* @before, the HMAC of this side, and its name. */
static void send_proof(struct trunk *t, enum trunk_what what, const char *role, struct str before)
{
    uint8_t mac[TRUNK_MAC_BYTES];
    struct buf text = BUF_INIT;

    trunk_mac(t, role, str_of(t->name), mac);
    buf_add_str(&text, before);
    buf_add(&text, mac, sizeof mac);
    buf_add_z(&text, t->name);
    trunk_send(t, 0, what, buf_str(&text));
    buf_done(&text);
}

/* ---- frames of one connection ---- */

/* What the peer may send before the other side has taken it is bounded by the window. */
static void take_data(struct trunk *t, struct carried *k, struct str bytes)
{
    bool keeper = k->conn->no_socket;

    if (k->in.n + k->owed + bytes.n > TRUNK_WINDOW || (keeper && k->ended)) {
        trunk_fail(t, "more than was asked for");
        return;
    }
    if (keeper) {
        buf_add_str(&k->in, bytes);
        k->can |= EV_READ;
        carried_settle(k);
    } else {
        k->owed += (uint32_t)bytes.n;
        buf_add_str(conn_out(k->conn), bytes);
        conn_mark(k->conn);
    }
}

static void take_close(struct carried *k)
{
    struct conn *c = k->conn;

    carried_free(k);
    if (c->no_socket) {
        conn_close(c);
        return;
    }
    c->linger = true; /* earlier bytes are still sent to the client */
    conn_enter(c, CONN_LAST);
    conn_mark(c);
}

static void take_for_one(struct trunk *t, struct carried *k, const struct trunk_frame *f)
{
    bool keeper = k->conn->no_socket;

    if (f->what == TRUNK_DATA) {
        take_data(t, k, f->payload);
    } else if (f->what == TRUNK_CLOSE) {
        take_close(k);
    } else if (f->what == TRUNK_END && keeper) {
        k->ended = true;
        k->can |= EV_READ;
        carried_settle(k);
    } else if (f->what == TRUNK_LET_IN && !keeper) {
        conn_uncount(k->conn);
    } else if (f->what != TRUNK_CREDIT || !carried_take_credit(k, f->payload)) {
        trunk_fail(t, "a frame makes no sense");
    }
}

/* ---- the keeper: proof, and connections without sockets ---- */

enum { WARN_MS = 60000 };

/* ---- who asks ---- */

static void on_keep_beat(struct timer *timer)
{
    struct trunk *t = container_of(timer, struct trunk, beat);

    if (clock_now_ms(t->server->clock) - t->heard_ms > TRUNK_SILENT_MS)
        trunk_fail(t, "it was silent for too long");
    else
        timer_set(t->server->clock, timer, TRUNK_BEAT_MS);
}

static void welcome(struct trunk *t, struct str name)
{
    send_proof(t, TRUNK_WELCOME, "keeper", STR_NULL);
    snprintf(t->other, sizeof t->other, "%.*s", STR_FMT(name));
    secret_wipe(t->key, sizeof t->key);
    t->up = true;
    conn_uncount(t->conn);
    conn_enter(t->conn, CONN_TRUNK);
    timer_set(t->server->clock, &t->beat, TRUNK_BEAT_MS);
    log_info(NULL, "cluster: %s forwards connections to this node", t->other);
}

static bool name_is_plain(struct str name)
{
    bool ok = name.n > 0 && name.n <= TRUNK_NAME_BYTES;

    for (size_t i = 0; i < name.n; i++)
        ok &= (unsigned char)name.p[i] > ' ' && (unsigned char)name.p[i] < 0x7f;
    return ok;
}

/* Logs strangers at a limited rate, so that they cannot fill the log. */
static void warn_of_stranger(struct http_server *s)
{
    int64_t now_ms = clock_now_ms(s->clock);

    if (s->stranger_ms != 0 && now_ms - s->stranger_ms < WARN_MS)
        return;
    s->stranger_ms = now_ms;
    log_warn(NULL, "cluster: refused a trunk: the other node has another master key");
}

static void take_proof(struct trunk *t, const struct trunk_frame *f)
{
    uint8_t mac[TRUNK_MAC_BYTES];
    struct str p = f->payload;
    size_t head = TRUNK_NONCE_BYTES + TRUNK_MAC_BYTES;

    if (f->what != TRUNK_PROOF || p.n <= head || !name_is_plain(str_skip(p, head))) {
        trunk_fail(t, "it did not say who it is");
        return;
    }
    memcpy(t->answer, p.p, sizeof t->answer);
    trunk_mac(t, "porter", str_skip(p, head), mac);
    if (ct_equal(mac, p.p + TRUNK_NONCE_BYTES, sizeof mac)) {
        welcome(t, str_skip(p, head));
    } else {
        warn_of_stranger(t->server);
        trunk_fail(t, "it does not know the key");
    }
}

/* ---- connections ---- */

static void take_connect(struct trunk *t, const struct trunk_frame *f)
{
    uint8_t flags = f->payload.n > 0 ? (uint8_t)f->payload.p[0] : 0;
    struct listener *l = (flags & TRUNK_ADMIN) != 0 ? &t->admin : &t->public;
    struct addr peer = {.n = (uint8_t)(f->payload.n - 1)};
    struct carried *k;
    struct party *party;

    if (f->payload.n == 0 || (peer.n != 0 && peer.n != 4 && peer.n != 16)) {
        trunk_fail(t, "a connection without an address");
        return;
    }
    memcpy(peer.bytes, f->payload.p + 1, peer.n);
    if (!conn_count_in(l, &peer, &party)) {
        trunk_send(t, f->number, TRUNK_CLOSE, STR_NULL);
        return;
    }
    k = carried_new(t, f->number);
    if (k == NULL) {
        trunk_fail(t, "a number was used twice");
        conn_count_out(l, party);
        return;
    }
    k->conn = conn_new(l, -1, &peer, party);
    k->conn->carried = k;
    k->conn->is_tls = (flags & TRUNK_TLS) != 0;
    k->conn->no_cert = (flags & TRUNK_NO_CERT) != 0;
    t->server->n_carried += !k->conn->reserved;
    carried_settle(k);
}

/* The porter goes: its WebSockets are told to come back elsewhere. */
static void end_in_good_order(struct trunk *t)
{
    const struct contract_close *why = &contract_closes[CLOSE_RESTARTING];

    void *k;

    for (size_t at = 0; map_next(&t->carried, &at, &k);) {
        struct conn *c = ((struct carried *)k)->conn;
        if (c->top == TOP_WS)
            ws_close(c->ws, why->code, why->text);
        else if ((c->state == CONN_IDLE || c->state == CONN_HEAD) && c->req == NULL)
            conn_close(c);
    }
}

static void keep_take(struct trunk *t, const struct trunk_frame *f)
{
    struct carried *k;

    if (!t->up) {
        take_proof(t, f);
    } else if (f->what == TRUNK_CONNECT) {
        take_connect(t, f);
    } else if (f->what == TRUNK_ANSWER || f->what == TRUNK_TOLD) {
        trunk_take_answer(t, f);
    } else if (f->what == TRUNK_PING) {
        trunk_send(t, 0, TRUNK_PONG, STR_NULL);
    } else if (f->what == TRUNK_LEAVING) {
        end_in_good_order(t);
    } else if (f->what == TRUNK_GOING) {
        t->quiet = true;
    } else {
        k = carried_find(t, f->number);
        if (k != NULL) /* else we closed it, and that is on its way */
            take_for_one(t, k, f);
    }
}

/* ---- its life ---- */

void trunk_tell_going(struct http_server *s)
{
    list_each (&s->trunks, it, nxt)
        trunk_send(list_entry(it, struct trunk, link), 0, TRUNK_GOING, STR_NULL);
}

size_t trunk_count_idle(const struct http_server *s)
{
    size_t n = 0;

    list_each (&s->trunks, it, nxt) {
        const struct trunk *t = list_entry(it, struct trunk, link);
        n += t->quiet || !s->draining;
    }
    return n;
}

bool trunk_all_quiet(const struct http_server *s)
{
    int64_t now_ms = clock_now_ms(s->clock);

    list_each (&s->trunks, it, nxt) {
        const struct trunk *t = list_entry(it, struct trunk, link);
        if (t->up && !t->quiet && now_ms - t->heard_ms < 3 * TRUNK_BEAT_MS)
            return false;
    }
    return true;
}

void trunk_accept(struct http_server *s, struct http_req *req, const struct trunk_keeper *keeper)
{
    struct conn *c = req->conn;
    struct trunk *t;
    struct rand r = RAND_SYSTEM;

    if (c->carried != NULL || c->state != CONN_HANDLING || req->head.minor == 0 || s->draining ||
        !str_eq_ci(http_header(req, "Upgrade"), STR(TRUNK_PROTOCOL))) {
        http_answer_error(s, http_req_id(req), 404, "not_found", "There is nothing here.");
        return;
    }
    t = xcalloc(1, sizeof *t);
    trunk_init(t, s);
    timer_init(&t->beat, on_keep_beat);
    t->conn = c;
    t->take = keep_take;
    t->public = (struct listener){.server = s};
    t->admin =
        (struct listener){.server = s,
                          .opt = {.tag = keeper->admin_tag, .reserved = true, .any_host = true}};
    memcpy(t->key, keeper->key, sizeof t->key);
    snprintf(t->name, sizeof t->name, "%s", keeper->name);
    rand_bytes(&r, t->challenge, sizeof t->challenge);
    list_append(&s->trunks, &t->link);
    c->trunk = t;
    c->top = TOP_TRUNK;
    buf_add_str(conn_out(c), STR("HTTP/1.1 101 Switching Protocols\r\nUpgrade: " TRUNK_PROTOCOL
                                 "\r\nConnection: Upgrade\r\n\r\n"));
    conn_answered(c);
    conn_enter(c, CONN_TRUNK_NEW);
    trunk_send(t, 0, TRUNK_CHALLENGE, str_make((const char *)t->challenge, TRUNK_NONCE_BYTES));
}

void trunk_gone(struct conn *c)
{
    struct trunk *t = c->trunk;

    if (t->up)
        log_info(NULL, "cluster: %s forwards no connections any more%s%s", t->other,
                 t->lost ? ": " : "", t->why);
    t->lost = true;
    carried_cut_all(t);
    trunk_lose_asks(t);
    list_remove(&t->link);
    trunk_done(t);
    c->top = TOP_NONE;
    free(t);
}

struct trunk_tally trunk_tally(const struct http_server *s)
{
    struct trunk_tally all = {.connections = trunk_connections(s->carrier)};

    list_each (&s->trunks, it, nxt) {
        const struct trunk *t = list_entry(it, struct trunk, link);
        all.trunks += t->up;
        all.connections += map_count(&t->carried);
    }
    return all;
}

/* ---- the porter: dialling, and sockets that are carried ---- */

enum { MAX_ANSWER_BYTES = 4096, DIAL_MS = 5000, MAX_UNSENT = 64 << 20 };

static void prove(struct trunk *t, struct str challenge)
{
    struct rand r = RAND_SYSTEM;

    if (challenge.n != sizeof t->challenge) {
        trunk_fail(t, "the other side speaks another protocol");
        return;
    }
    memcpy(t->challenge, challenge.p, sizeof t->challenge);
    rand_bytes(&r, t->answer, sizeof t->answer);
    send_proof(t, TRUNK_PROOF, "porter", str_make(t->answer, sizeof t->answer));
}

static void carry_held(struct http_server *s);

static void take_welcome(struct trunk *t, struct str payload)
{
    uint8_t mac[TRUNK_MAC_BYTES];

    trunk_mac(t, "keeper", str_of(t->other), mac);
    if (payload.n < sizeof mac || !str_eq(str_skip(payload, sizeof mac), str_of(t->other))) {
        trunk_fail(t, "another process answers there than the one that serves");
    } else if (!ct_equal(mac, payload.p, sizeof mac)) {
        trunk_fail(t, "who answers there does not know the master key");
    } else {
        t->up = true;
        secret_wipe(t->key, sizeof t->key);
        t->server->carrier = t;
        carry_held(t->server);
        t->handlers.on_up(t->ctx);
    }
}

/* New connections wait for the next trunk. */
static void lose_carrier(struct trunk *t)
{
    if (t->server->carrier != t)
        return;
    t->server->carrier = NULL;
    t->server->carrier_lost_ms = clock_now_ms(t->server->clock);
}

static void carry_take(struct trunk *t, const struct trunk_frame *f)
{
    bool asked = f->what >= TRUNK_QUESTION; /* its number is none of a connection */
    struct carried *k = t->up && !asked ? carried_find(t, f->number) : NULL;

    if (t->up && asked) {
        trunk_take_question(t, f);
    } else if (k != NULL) {
        take_for_one(t, k, f);
    } else if (!t->up && f->what == TRUNK_CHALLENGE) {
        prove(t, f->payload);
    } else if (!t->up && f->what == TRUNK_WELCOME) {
        take_welcome(t, f->payload);
    } else if (!t->up) {
        trunk_fail(t, "the other side speaks another protocol");
    } else if (f->what == TRUNK_GOING) {
        lose_carrier(t);
        trunk_send(t, 0, TRUNK_GOING, STR_NULL);
    }
}

/* ---- the connection to the keeper ---- */

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

    buf_add_str(&t->in, bytes);
    for (end = 4; end <= t->in.n && memcmp(t->in.p + end - 4, "\r\n\r\n", 4) != 0;)
        end++;
    if (!str_starts(buf_str(&t->in), str_make(right.p, t->in.n < right.n ? t->in.n : right.n)) ||
        (end > t->in.n && t->in.n > MAX_ANSWER_BYTES))
        trunk_fail(t, "the process that serves takes no trunks");
    if (end > t->in.n)
        return STR_NULL;
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
    trunk_fail(t, why);
}

/* ---- its life ---- */

static void finish(struct trunk *t)
{
    t->lost = true; /* nothing is sent any more */
    lose_carrier(t);
    carried_cut_all(t);
    tcp_client_free(t->tcp);
    trunk_done(t);
}

static void on_carry_beat(struct timer *timer)
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
        trunk_send(t, 0, TRUNK_PING, STR_NULL);
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
    timer_init(&t->beat, on_carry_beat);
    t->take = carry_take;
    t->handlers = *h;
    t->ctx = ctx;
    memcpy(t->key, d->key, sizeof t->key);
    snprintf(t->name, sizeof t->name, "%s", d->name);
    snprintf(t->other, sizeof t->other, "%s", d->keeper);
    t->tcp = tcp_client_open(loop,
                             &(struct tcp_client_options){.host = d->host,
                                                          .port = d->port,
                                                          .tls = d->tls,
                                                          .ca_path = d->ca_path,
                                                          .connect_timeout_ms = DIAL_MS,
                                                          .max_unsent = MAX_UNSENT},
                             &handlers, t);
    timer_set(s->clock, &t->beat, TRUNK_BEAT_MS);
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
        trunk_send(t, 0, TRUNK_LEAVING, STR_NULL);
}

void trunk_free(struct trunk *t)
{
    if (t == NULL)
        return;
    finish(t);
    free(t);
}

/* ---- what is carried ---- */

bool trunk_is_ours(struct str head)
{
    static const struct str ours[] = {STR("GET /healthz"), STR("GET /metrics"),
                                      STR("GET /admin/nodes"), STR("POST /admin/drain ")};

    for (size_t i = 0; i < ARRAY_LEN(ours); i++)
        if (str_starts(head, ours[i]))
            return true;
    return false;
}

/* Is it between requests, and the next one not for this process? */
static bool is_for_others(const struct conn *c, struct str head)
{
    if (c->server->leaving && str_starts(head, STR("GET /readyz")))
        return false;
    return (c->state == CONN_HEAD || c->state == CONN_IDLE) && c->req == NULL && c->in.n == 0 &&
           conn_queued(c) == 0 && !trunk_is_ours(head);
}

static bool carry(struct trunk *t, struct conn *c)
{
    char payload[1 + sizeof c->peer.bytes];
    struct carried *k = t->lost ? NULL : carried_new(t, 0);

    if (k == NULL)
        return false;
    payload[0] = (char)((c->is_tls ? TRUNK_TLS : 0) | (conn_lacks_cert(c) ? TRUNK_NO_CERT : 0) |
                        (c->reserved ? TRUNK_ADMIN : 0));
    memcpy(payload + 1, c->peer.bytes, c->peer.n);
    k->conn = c;
    c->carried = k;
    conn_enter(c, CONN_CARRIED);
    trunk_send(t, k->number, TRUNK_CONNECT, str_make(payload, 1u + c->peer.n));
    return true;
}

bool trunk_wants(struct conn *c, struct str head)
{
    return is_for_others(c, head) && carry(c->server->carrier, c);
}

/* ---- what waits for a trunk ---- */

bool trunk_waits(struct conn *c, struct str head)
{
    if (!is_for_others(c, head) || str_starts(head, STR("GET /readyz")))
        return false;
    conn_enter(c, CONN_HELD);
    return true;
}

void trunk_release(struct conn *c)
{
    conn_enter(c, CONN_IDLE);
    conn_mark(c); /* what it said is looked at when the turn ends */
}

static void carry_held(struct http_server *s)
{
    list_each (&s->by_state[CONN_HELD], it, nxt) {
        struct conn *c = list_entry(it, struct conn, link);
        if (!carry(s->carrier, c))
            continue; /* its time ends */
        carried_forward(c->carried, buf_str(&c->in));
        buf_done(&c->in);
        conn_mark(c);
    }
}

bool trunk_is_awaited(const struct http_server *s)
{
    return s->carrier == NULL && s->carrier_lost_ms != 0 && !s->leaving &&
           clock_now_ms(s->clock) - s->carrier_lost_ms < s->timeout_ms[CONN_HELD];
}

void trunk_hold(struct http_server *s, int64_t ms)
{
    s->timeout_ms[CONN_HELD] = ms;
    list_each (&s->by_state[CONN_HELD], it, nxt)
        if (ms == 0)
            trunk_release(list_entry(it, struct conn, link));
}
