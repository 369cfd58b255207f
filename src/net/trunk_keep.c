/* trunk_keep.c - the keeper's half of a trunk: who asks for one, and connections without sockets.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rand.h"
#include "core/contract.h"
#include "net/trunk_priv.h"

enum { WARN_MS = 60000 };

/* ---- who asks ---- */

static void on_beat(struct timer *timer)
{
    struct trunk *t = container_of(timer, struct trunk, beat);

    if (clock_now_ms(t->server->clock) - t->heard_ms > TRUNK_SILENT_MS)
        trunk_fail(t, "it was silent for too long");
    else
        timer_set(t->server->clock, timer, TRUNK_BEAT_MS);
}

static void welcome(struct trunk *t, struct str name)
{
    uint8_t mac[TRUNK_MAC_BYTES];
    struct buf text = BUF_INIT;

    trunk_mac(t, "keeper", str_of(t->name), mac);
    buf_add(&text, mac, sizeof mac);
    buf_add_z(&text, t->name);
    trunk_send(t, 0, TRUNK_WELCOME, buf_str(&text));
    buf_done(&text);
    snprintf(t->other, sizeof t->other, "%.*s", STR_FMT(name));
    secret_wipe(t->key, sizeof t->key);
    t->up = true;
    conn_uncount(t->conn);
    conn_enter(t->conn, CONN_TRUNK);
    timer_set(t->server->clock, &t->beat, TRUNK_BEAT_MS);
    log_info(NULL, "cluster: %s carries connections here", t->other);
}

static bool name_is_plain(struct str name)
{
    bool ok = name.n > 0 && name.n <= TRUNK_NAME_BYTES;

    for (size_t i = 0; i < name.n; i++)
        ok &= (unsigned char)name.p[i] > ' ' && (unsigned char)name.p[i] < 0x7f;
    return ok;
}

/* As often as they like they may ask, but not fill the log. */
static void warn_of_stranger(struct http_server *s)
{
    int64_t now_ms = clock_now_ms(s->clock);

    if (s->stranger_ms != 0 && now_ms - s->stranger_ms < WARN_MS)
        return;
    s->stranger_ms = now_ms;
    log_warn(NULL, "cluster: somebody who does not know the master key asked for a trunk");
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
        if (!l->opt.reserved)
            ledger_give(t->server->ledger, party, LIMIT_CONNECTIONS, 1);
        party_drop(party);
        return;
    }
    k->conn = conn_new(l, -1, &peer, party);
    k->conn->carried = k;
    k->conn->is_tls = (flags & TRUNK_TLS) != 0;
    k->conn->no_cert = (flags & TRUNK_NO_CERT) != 0;
    t->server->n_carried += !k->conn->reserved;
    carried_watch(k, EV_READ);
}

static void take_data(struct trunk *t, struct carried *k, struct str bytes)
{
    if (k->in.n + k->owed + bytes.n > TRUNK_WINDOW || k->ended) {
        trunk_fail(t, "more than was asked for");
        return;
    }
    buf_add_str(&k->in, bytes);
    k->can |= EV_READ;
    carried_watch(k, k->events);
}

/* The porter goes: its WebSockets are told to come back elsewhere. */
static void end_in_good_order(struct trunk *t)
{
    const struct contract_close *why = &contract_closes[CLOSE_RESTARTING];

    for (uint32_t i = 0; i < t->n_slots; i++) {
        struct conn *c = t->slots[i].is != NULL ? t->slots[i].is->conn : NULL;
        if (c != NULL && c->ws != NULL)
            ws_close(c->ws, why->code, why->text);
        else if (c != NULL && (c->state == CONN_IDLE || c->state == CONN_HEAD) && c->req == NULL)
            conn_close(c);
    }
}

static void take_for_one(struct trunk *t, struct carried *k, const struct trunk_frame *f)
{
    struct conn *c = k->conn;

    switch (f->what) {
    case TRUNK_DATA:
        take_data(t, k, f->payload);
        return;
    case TRUNK_END:
        k->ended = true;
        k->can |= EV_READ;
        carried_watch(k, k->events);
        return;
    case TRUNK_CLOSE:
        carried_free(k);
        conn_close(c);
        return;
    case TRUNK_CREDIT:
        if (carried_take_credit(k, f->payload))
            return;
        break;
    default:
        break;
    }
    trunk_fail(t, "a frame makes no sense");
}

static void take(struct trunk *t, const struct trunk_frame *f)
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

void carried_told_in(struct carried *k)
{
    trunk_send(k->trunk, k->number, TRUNK_LET_IN, STR_NULL);
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

/* A porter asks for a connection when its client has said something, so one that was never heard
 * is about to be. */
bool carried_is_silent(const struct carried *k)
{
    return k->in.n == 0 && k->conn->state == CONN_IDLE;
}

static bool is_asked_for(const struct http_req *req)
{
    return req->conn->carried == NULL && req->conn->state == CONN_HANDLING &&
           req->head.minor != 0 && str_eq_ci(http_header(req, "Upgrade"), STR(TRUNK_PROTOCOL));
}

void trunk_accept(struct http_server *s, struct http_req *req, const struct trunk_keeper *keeper)
{
    struct conn *c = req->conn;
    struct trunk *t;
    struct rand r = RAND_SYSTEM;

    if (!is_asked_for(req) || s->draining) {
        http_answer_error(s, http_req_id(req), 404, "not_found", "There is nothing here.");
        return;
    }
    t = xcalloc(1, sizeof *t);
    trunk_init(t, s, s->loop);
    timer_init(&t->beat, on_beat);
    t->conn = c;
    t->take = take;
    t->public = (struct listener){.server = s};
    t->admin =
        (struct listener){.server = s,
                          .opt = {.tag = keeper->admin_tag, .reserved = true, .any_host = true}};
    memcpy(t->key, keeper->key, sizeof t->key);
    snprintf(t->name, sizeof t->name, "%s", keeper->name);
    rand_bytes(&r, t->challenge, sizeof t->challenge);
    list_append(&s->trunks, &t->link);
    c->trunk = t;
    buf_add_str(conn_out(c), STR("HTTP/1.1 101 Switching Protocols\r\nUpgrade: " TRUNK_PROTOCOL
                                 "\r\nConnection: Upgrade\r\n\r\n"));
    s->slots[c->slot].generation++; /* the request is answered */
    conn_enter(c, CONN_TRUNK_NEW);
    trunk_send(t, 0, TRUNK_CHALLENGE, str_make((const char *)t->challenge, TRUNK_NONCE_BYTES));
}

void trunk_gone(struct conn *c)
{
    struct trunk *t = c->trunk;

    if (t->up)
        log_info(NULL, "cluster: %s carries nothing here any more%s%s", t->other,
                 t->lost ? ": " : "", t->why);
    t->lost = true;
    carried_cut_all(t);
    trunk_lose_asks(t);
    list_remove(&t->link);
    trunk_done(t);
    c->trunk = NULL;
    free(t);
}

struct trunk_tally trunk_tally(const struct http_server *s)
{
    struct trunk_tally all = {.connections = trunk_connections(s->carrier)};

    list_each (&s->trunks, it, nxt) {
        const struct trunk *t = list_entry(it, struct trunk, link);
        all.trunks += t->up;
        all.connections += t->n_carried;
    }
    return all;
}
