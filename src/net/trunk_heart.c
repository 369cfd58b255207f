/* trunk_heart.c - the heart's end of a trunk: authenticates edges, serves connections without
 * sockets.
 *
 * A connection without a socket gets whole requests and texts from its edge.  It writes as every
 * other connection does, and what it writes becomes DATA.  NEXT tells the edge that the answer is
 * complete, so it follows the last byte of the answer.
 *
 * A gateway's WebSocket that outlived the previous heart comes as a presentation: PRESENT,
 * ASKED and ROWS, then SHOWN.  The server's on_present handler decides whether a session
 * continues on it. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/crypto.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rand.h"
#include "core/contract.h"
#include "net/redis_hop.h"
#include "net/trunk_priv.h"

enum { WARN_MS = 60000, MAX_SHOWN_BYTES = 8 << 20 };

/* ---- who asks for a trunk ---- */

static void end_line(struct trunk *t);

static void on_heart_beat(struct timer *timer)
{
    struct trunk *t = container_of(timer, struct trunk, beat);
    int64_t silent_ms = clock_now_ms(t->server->clock) - t->heard_ms;

    if (t->lost)
        end_line(t);
    else if (silent_ms > (t->up ? TRUNK_SILENT_MS : t->server->limits.head_ms))
        trunk_fail(t, "it was silent for too long");
    else
        timer_set(t->server->clock, timer, TRUNK_BEAT_MS);
}

/* Over Redis nobody tells when a process has ended.  A node that is back, or has cut its trunk, has
 * the new one alone: its sockets are presented on it. */
static void end_older(const struct trunk *t)
{
    struct str node = trunk_node(str_of(t->other));

    list_each (&t->server->trunks, it, nxt) {
        struct trunk *old = list_entry(it, struct trunk, link);
        if (old == t || old->line == NULL || !old->is_heart || !old->up ||
            !str_eq(trunk_node(str_of(old->other)), node))
            continue;
        snprintf(old->why, sizeof old->why, "the node has opened another trunk");
        old->lost = true;
        end_line(old);
    }
}

static void welcome(struct trunk *t, struct str name)
{
    trunk_send_proof(t, MSG_WELCOME, "heart", STR_NULL);
    snprintf(t->other, sizeof t->other, "%.*s", STR_FMT(name));
    secret_wipe(t->key, sizeof t->key);
    if (t->conn != NULL) {
        conn_uncount(t->conn);
        conn_enter(t->conn, CONN_TRUNK);
    } else {
        end_older(t);
    }
    t->up = true;
    signers_tell(t);
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

static void take_proof(struct trunk *t, const struct msg *m)
{
    uint8_t mac[TRUNK_MAC_BYTES];
    struct str p = m->payload;
    size_t head = TRUNK_NONCE_BYTES + TRUNK_MAC_BYTES;

    if (m->what != MSG_PROOF || p.n <= head || !name_is_plain(str_skip(p, head))) {
        trunk_fail(t, "it did not say who it is");
        return;
    }
    memcpy(t->answer, p.p, sizeof t->answer);
    trunk_mac(t, "edge", str_skip(p, head), mac);
    if (ct_equal(mac, p.p + TRUNK_NONCE_BYTES, sizeof mac)) {
        welcome(t, str_skip(p, head));
    } else {
        warn_of_stranger(t->server);
        trunk_fail(t, "it does not know the key");
    }
}

/* ---- connections ---- */

static void take_connect(struct trunk *t, const struct msg *m)
{
    struct listener *l;
    struct carried *k;
    struct party *party;
    struct addr peer;
    uint8_t flags;

    if (!batch_read_connect(m->payload, &flags, &peer)) {
        trunk_fail(t, "a connection without an address");
        return;
    }
    l = (flags & CONNECT_ADMIN) != 0 ? &t->admin : &t->public;
    if (t->ring != NULL) {
        party = conn_party(t->server, &peer); /* whose connections the edge counts */
    } else if (!conn_count_in(l, &peer, &party)) {
        batch_add(trunk_out(t), m->number, MSG_CLOSE, STR_NULL);
        return;
    }
    k = carried_new(t, m->number);
    if (k == NULL) {
        conn_count_out(l, party); /* no ring repeats a number */
        trunk_fail(t, "a number was used twice");
        return;
    }
    k->conn = conn_new(l, -1, &peer, party);
    k->conn->carried = k;
    k->conn->uncounted = t->ring != NULL;
    k->conn->is_tls = (flags & CONNECT_TLS) != 0;
    k->conn->no_cert = (flags & CONNECT_NO_CERT) != 0;
    t->server->n_carried += !k->conn->reserved;
}

ssize_t carried_write(struct carried *k, const char *p, size_t n)
{
    if (!carried_may_write(k))
        return 0;
    n = n < k->credit ? n : k->credit;
    n = n < MSG_MAX_PAYLOAD ? n : MSG_MAX_PAYLOAD;
    carried_say(k, MSG_DATA, str_make(p, n));
    k->credit -= (uint32_t)n;
    return (ssize_t)n;
}

/* The output is empty, or waits for the window. */
void heart_flushed(struct carried *k)
{
    const struct conn *c = k->conn;

    if (k->next_owed && c->state == CONN_IDLE && conn_queued(c) == 0) {
        k->next_owed = false;
        carried_say(k, MSG_NEXT, STR_NULL);
    }
    if (c->state != CONN_UPLOAD_PAUSED)
        carried_pay(k, k->owed);
}

/* ---- presentations ---- */

void shown_done(struct shown *p)
{
    buf_done(&p->keep);
    buf_done(&p->asked);
    buf_done(&p->rows);
    buf_done(&p->ids);
}

static int by_row(const void *a, const void *b)
{
    const struct ws_row *x = a, *y = b;

    return x->row < y->row ? -1 : x->row > y->row;
}

/* The presentation is complete. */
static bool present(struct conn *c, struct shown *p)
{
    struct http_server *s = c->server;
    struct ws_row *rows = (struct ws_row *)(void *)p->rows.p;
    struct str rest = buf_str(&p->asked), asked[KEPT_MAX_ASKED], id;
    struct msg_present said;
    struct ws_past past = {.conn = c, .rows = rows, .n_rows = p->rows.n / sizeof *rows};

    if (!batch_read_texts(buf_str(&p->keep), (struct str *)(void *)&said,
                          sizeof said / sizeof(struct str)))
        return false;
    for (size_t i = 0; i < past.n_rows; i++)
        rows[i].id.p = p->ids.p + i * MSG_ID_BYTES;
    if (past.n_rows > 0)
        qsort(rows, past.n_rows, sizeof *rows, by_row);
    while (past.n_asked < KEPT_MAX_ASKED && str_split(&rest, '\n', &id))
        if (id.n > 0)
            asked[past.n_asked++] = id;
    past.name = (struct ws_name){said.keep.gateway, said.keep.tenant, said.keep.instance,
                                 said.keep.since, said.keep.rank};
    past.asked = asked;
    past.personas = said.hellos;
    past.acked = str_eq(said.acked, STR("1"));
    past.late_acks = str_eq(said.acked, STR("late"));
    if (s->on_present != NULL)
        s->on_present(s->ctx, &past);
    if (c->top != TOP_WS)
        conn_close(c); /* nobody took it */
    return true;
}

bool heart_take_shown(struct conn *c, struct shown *p, const struct msg *m)
{
    struct str rest = m->payload;
    struct msg_row row;

    if (p->keep.n + p->asked.n + p->rows.n + p->ids.n > MAX_SHOWN_BYTES)
        return false;
    if (m->what == MSG_PRESENT) {
        buf_reset(&p->keep);
        buf_add_str(&p->keep, m->payload);
    } else if (m->what == MSG_ASKED) {
        buf_add_str(&p->asked, m->payload);
        buf_add_c(&p->asked, '\n');
    }
    while (m->what == MSG_ROWS && batch_next_row(&rest, &row)) {
        struct ws_row r = {row.row, {NULL, MSG_ID_BYTES}};
        buf_add(&p->rows, &r, sizeof r);
        buf_add_str(&p->ids, row.id);
    }
    return m->what != MSG_SHOWN || present(c, p);
}

static bool take_shown(struct carried *k, const struct msg *m)
{
    struct conn *c = k->conn;
    struct shown *p;
    bool ok;

    if (c->state != CONN_HEAD || c->top != TOP_NONE)
        return false;
    if (k->shown == NULL)
        k->shown = xcalloc(1, sizeof *k->shown);
    p = k->shown;
    if (m->what != MSG_SHOWN)
        return heart_take_shown(c, p, m);
    k->shown = NULL;
    ok = heart_take_shown(c, p, m);
    shown_done(p);
    free(p);
    return ok;
}

/* ---- messages of one connection ---- */

static bool take_acks(struct conn *c, struct str ids)
{
    const struct ws *ws = &c->ws;

    if (ids.n % MSG_ID_BYTES != 0 || ws->handlers->on_ack == NULL)
        return false;
    for (; ids.n > 0; ids = str_skip(ids, MSG_ID_BYTES))
        if (c->state == CONN_WS || c->state == CONN_WS_CLOSING)
            ws->handlers->on_ack(ws->ctx, str_make(ids.p, MSG_ID_BYTES));
    return true;
}

static bool take_of_ws(struct carried *k, const struct msg *m)
{
    struct conn *c = k->conn;
    struct str p = m->payload;

    if (c->top != TOP_WS)
        return false;
    if (m->what == MSG_TEXT && p.n > 0) {
        if (c->state == CONN_WS)
            c->ws.handlers->on_data(c->ws.ctx, str_skip(p, 1), p.p[0] != 0);
    } else if (m->what == MSG_ACKS) {
        k->trunk->acks += p.n / MSG_ID_BYTES;
        if (!take_acks(c, p))
            return false;
    } else if (m->what == MSG_PONG) {
        if (c->state == CONN_WS)
            ws_ponged(&c->ws, p);
        return true;
    } else if (m->what == MSG_GONE && p.n == 2) {
        if (c->state == CONN_WS)
            c->ws.code = get_u16(p.p);
        carried_free(k);
        conn_close(c);
        return true;
    } else {
        return false;
    }
    if (c->carried == k) { /* a handler may have closed it */
        k->owed += (uint32_t)p.n;
        carried_pay(k, k->owed);
    }
    return true;
}

static bool take_request(struct carried *k, const struct msg *m)
{
    struct conn *c = k->conn;

    if ((c->state != CONN_HEAD && c->state != CONN_IDLE) || c->top != TOP_NONE || c->req != NULL)
        return false;
    k->next_owed = true;
    return http_carried_request(c, m->payload, m->what == MSG_REQUEST);
}

static bool take_body(struct carried *k, const struct msg *m)
{
    struct conn *c = k->conn;

    if (c->top == TOP_WS || (c->upload != NULL && c->in->n > 4 * TRUNK_WINDOW))
        return false;
    k->owed += (uint32_t)m->payload.n;
    http_carried_body(c, m->payload, m->what == MSG_END);
    if (c->carried == k && c->state != CONN_UPLOAD_PAUSED)
        carried_pay(k, k->owed);
    return true;
}

static void take_for_one(struct trunk *t, struct carried *k, const struct msg *m)
{
    struct conn *c = k->conn;
    bool ok = true;

    switch (m->what) {
    case MSG_REQUEST:
    case MSG_HEAD:
        ok = take_request(k, m);
        break;
    case MSG_BODY:
    case MSG_END:
        ok = take_body(k, m);
        break;
    case MSG_PRESENT:
    case MSG_ROWS:
    case MSG_ASKED:
    case MSG_SHOWN:
        ok = take_shown(k, m);
        break;
    case MSG_CREDIT:
        ok = carried_take_credit(k, m->payload);
        break;
    case MSG_CLOSE:
        carried_free(k);
        conn_close(c);
        break;
    default:
        ok = take_of_ws(k, m);
    }
    if (!ok)
        trunk_fail(t, "a message makes no sense");
}

/* ---- messages of the trunk ---- */

/* The edge goes: its WebSockets are told to come back elsewhere. */
static void end_in_good_order(struct trunk *t)
{
    const struct contract_close *why = &contract_closes[CLOSE_RESTARTING];
    void *k;

    for (size_t at = 0; map_next(&t->carried, &at, &k);) {
        struct conn *c = ((struct carried *)k)->conn;
        if (c->top == TOP_WS)
            ws_close(&c->ws, why->code, why->text);
        else if ((c->state == CONN_IDLE || c->state == CONN_HEAD) && c->req == NULL)
            conn_close(c);
    }
}

/* The edge sends no new request: connections between two requests have had their last. */
static void take_quiet(struct trunk *t)
{
    void *k;

    t->quiet = true;
    for (size_t at = 0; t->server->draining && map_next(&t->carried, &at, &k);) {
        struct conn *c = ((struct carried *)k)->conn;
        if ((c->state == CONN_IDLE || c->state == CONN_HEAD) && c->req == NULL &&
            conn_queued(c) == 0)
            conn_close(c);
    }
}

static void heart_take(struct trunk *t, const struct msg *m)
{
    struct carried *k;

    if (!t->up) {
        take_proof(t, m);
        return;
    }
    switch (m->what) {
    case MSG_CONNECT:
        take_connect(t, m);
        break;
    case MSG_ANSWER:
    case MSG_TOLD:
        trunk_take_answer(t, m);
        break;
    case MSG_BEAT:
        batch_add(trunk_out(t), 0, MSG_BEAT, STR_NULL);
        break;
    case MSG_LEAVING:
        end_in_good_order(t);
        break;
    case MSG_GOING:
        take_quiet(t);
        break;
    default:
        k = carried_find(t, m->number);
        if (k != NULL) /* else we closed it, and that is on its way */
            take_for_one(t, k, m);
        else if (m->what == MSG_ACKS)
            t->acks += m->payload.n / MSG_ID_BYTES; /* the edge has counted them, too */
    }
}

/* ---- acks ---- */

void trunk_set_acks(struct http_server *s, const struct trunk_acks *a)
{
    s->acks = *a;
}

/* When all marks are in use the newest one moves on: the edge holds some acks longer. */
void heart_note_acks(struct trunk *t)
{
    const struct trunk_acks *a = &t->server->acks;

    if (a->mark == NULL)
        return;
    if (t->n_marks == TRUNK_MARKS)
        t->n_marks--;
    t->marks[t->n_marks].acks = t->acks;
    t->marks[t->n_marks++].mark = a->mark(a->ctx);
}

void heart_tell_committed(struct trunk *t)
{
    const struct trunk_acks *a = &t->server->acks;
    uint64_t safe = a->safe(a->ctx), upto = 0;
    size_t n = 0;
    char bytes[8];

    while (n < t->n_marks && t->marks[n].mark <= safe)
        upto = t->marks[n++].acks;
    if (n == 0)
        return;
    memmove(t->marks, t->marks + n, (t->n_marks -= n) * sizeof t->marks[0]);
    put_u64(bytes, upto);
    batch_add(trunk_out(t), 0, MSG_COMMITTED, str_make(bytes, sizeof bytes));
}

/* ---- its life ---- */

void trunk_tell_going(struct http_server *s)
{
    list_each (&s->trunks, it, nxt) {
        struct trunk *t = list_entry(it, struct trunk, link);
        if (t->is_heart && t->up)
            batch_add(trunk_out(t), 0, MSG_GOING, STR_NULL);
    }
}

size_t trunk_count_idle(const struct http_server *s)
{
    size_t n = 0;

    list_each (&s->trunks, it, nxt) {
        const struct trunk *t = list_entry(it, struct trunk, link);
        n += t->conn != NULL && (t->quiet || !s->draining);
    }
    return n;
}

bool trunk_all_quiet(const struct http_server *s)
{
    int64_t now_ms = clock_now_ms(s->clock);

    list_each (&s->trunks, it, nxt) {
        const struct trunk *t = list_entry(it, struct trunk, link);
        if (t->is_heart && t->up && !t->quiet && now_ms - t->heard_ms < 3 * TRUNK_BEAT_MS)
            return false;
    }
    return true;
}

bool trunk_still_asks(const struct conn *c)
{
    return c->no_socket && c->carried != NULL && !c->carried->trunk->quiet;
}

static void refuse_version(struct http_server *s, const struct http_req *req)
{
    http_answer(s, http_req_id(req),
                &(struct http_answer){.status = 426,
                                      .headers = "Upgrade: " TRUNK_PROTOCOL "\r\n",
                                      .body = STR("{\"error\":\"This node speaks " TRUNK_PROTOCOL
                                                  ": run the same version of bellhop on every "
                                                  "node.\",\"code\":\"other_version\"}"),
                                      .close = true});
}

struct trunk *heart_open_ring(struct http_server *s, struct ring *to)
{
    struct trunk *t = xcalloc(1, sizeof *t);

    trunk_init(t, s);
    t->is_heart = t->up = true;
    t->ring = to;
    t->take = heart_take;
    t->public = (struct listener){.server = s};
    t->admin = t->public; /* no edge of this process has an admin socket */
    signers_tell(t);
    return t;
}

static struct trunk *heart_new(struct http_server *s, const struct trunk_heart *heart)
{
    struct trunk *t = xcalloc(1, sizeof *t);

    trunk_init(t, s);
    timer_init(&t->beat, on_heart_beat);
    t->is_heart = true;
    t->take = heart_take;
    t->public = (struct listener){.server = s};
    t->admin =
        (struct listener){.server = s,
                          .opt = {.tag = heart->admin_tag, .reserved = true, .any_host = true}};
    memcpy(t->key, heart->key, sizeof t->key);
    snprintf(t->name, sizeof t->name, "%s", heart->name);
    return t;
}

static void challenge(struct trunk *t)
{
    struct rand r = RAND_SYSTEM;

    rand_bytes(&r, t->challenge, sizeof t->challenge);
    batch_add(trunk_out(t), 0, MSG_CHALLENGE,
              str_make((const char *)t->challenge, TRUNK_NONCE_BYTES));
}

void trunk_accept(struct http_server *s, struct http_req *req, const struct trunk_heart *heart)
{
    struct conn *c = req->conn;
    struct str wanted = http_header(req, "Upgrade");
    struct trunk *t;

    if (c->carried != NULL || c->state != CONN_HANDLING || req->head.minor == 0 || s->draining ||
        !str_starts(wanted, STR("bellhop-trunk-"))) {
        http_answer_error(s, http_req_id(req), 404, "not_found", "There is nothing here.");
        return;
    }
    if (!str_eq(wanted, STR(TRUNK_PROTOCOL))) {
        refuse_version(s, req);
        return;
    }
    t = heart_new(s, heart);
    t->conn = c;
    t->high = TCP_HIGH_BYTES;
    c->trunk = t;
    c->top = TOP_TRUNK;
    buf_add_str(conn_out(c), STR("HTTP/1.1 101 Switching Protocols\r\nUpgrade: " TRUNK_PROTOCOL
                                 "\r\nConnection: Upgrade\r\n\r\n"));
    conn_answered(c);
    conn_enter(c, CONN_TRUNK_NEW);
    challenge(t);
}

void heart_cut_all(struct trunk *t)
{
    void *k;

    for (size_t at = 0; map_next(&t->carried, &at, &k);) {
        struct conn *c = ((struct carried *)k)->conn;
        if (c->state == CONN_WS && c->ws.handlers->on_parted != NULL)
            c->ws.handlers->on_parted(c->ws.ctx);
        carried_free(k);
        conn_close(c);
    }
}

static void heart_end(struct trunk *t)
{
    if (t->up)
        log_info(NULL, "cluster: %s forwards no connections any more%s%s", t->other,
                 t->lost ? ": " : "", t->why);
    t->lost = true;
    heart_cut_all(t);
    trunk_lose_asks(t);
    trunk_done(t);
    free(t);
}

void trunk_gone(struct conn *c)
{
    heart_end(c->trunk);
    c->top = TOP_NONE;
}

/* ---- over Redis ---- */

struct trunk_door {
    struct http_server *server; /* borrowed */
    struct redis_hop *hop;      /* borrowed */
    void *admin_tag;
    uint8_t key[TRUNK_KEY_BYTES];
    char name[TRUNK_NAME_BYTES + 1];
};

static void end_line(struct trunk *t)
{
    hop_line_free(t->line);
    heart_end(t);
}

static void on_line_open(void *ctx)
{
}

static void on_line_data(void *ctx, struct str bytes)
{
    struct trunk *t = ctx;

    if (!t->lost)
        trunk_input(t, bytes);
}

static void on_line_closed(void *ctx, const char *why)
{
    struct trunk *t = ctx;

    t->line = NULL;
    trunk_fail(t, why);
}

static bool accept_line(void *ctx, struct hop_line *line)
{
    static const struct tcp_client_handlers handlers = {.on_open = on_line_open,
                                                        .on_data = on_line_data,
                                                        .on_closed = on_line_closed};
    struct trunk_door *d = ctx;
    struct trunk *t;

    if (d->server->draining)
        return false;
    t = heart_new(d->server,
                  &(struct trunk_heart){.key = d->key, .name = d->name, .admin_tag = d->admin_tag});
    t->line = line;
    hop_line_take(line, &handlers, t);
    timer_set(t->server->clock, &t->beat, TRUNK_BEAT_MS);
    challenge(t);
    return true;
}

void trunk_listen(struct http_server *s, struct redis_hop *hop, const struct trunk_heart *h)
{
    struct trunk_door *d = xcalloc(1, sizeof *d);

    assert(s->door == NULL);
    *d = (struct trunk_door){.server = s, .hop = hop, .admin_tag = h->admin_tag};
    memcpy(d->key, h->key, sizeof d->key);
    snprintf(d->name, sizeof d->name, "%s", h->name);
    s->door = d;
    redis_hop_listen(hop, accept_line, d);
}

void heart_close_door(struct http_server *s)
{
    if (s->door == NULL)
        return;
    redis_hop_listen(s->door->hop, NULL, NULL);
    list_each (&s->trunks, it, nxt) {
        struct trunk *t = list_entry(it, struct trunk, link);
        if (t->is_heart && t->conn == NULL && t->ring == NULL)
            end_line(t);
    }
    secret_wipe(s->door->key, sizeof s->door->key);
    free(s->door);
    s->door = NULL;
}

struct trunk_tally trunk_tally(const struct http_server *s)
{
    struct trunk_tally all = {0};

    list_each (&s->trunks, it, nxt) {
        const struct trunk *t = list_entry(it, struct trunk, link);
        all.trunks += t->up && t->is_heart && t->ring == NULL;
        all.connections += t->ring == NULL ? map_count(&t->carried) : 0;
    }
    return all;
}
