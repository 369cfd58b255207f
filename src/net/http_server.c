/* http_server.c - accepting, deadlines and the end of it all.
 *
 * conn.c moves bytes, http_parse.c reads requests, http_answer.c writes answers, ws.c speaks
 * WebSocket; conn.h draws how they meet. */
#include "net/conn.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/rand.h"
#include "net/trunk_priv.h"

/* Of many that come or are late at once, so many are looked at in one turn of the loop. */
enum { ACCEPTS_PER_TURN = 64, SWEEPS_PER_TURN = 64, MAX_RESERVED = 32 };

const struct http_limits http_limits_default = {
    .head_bytes = 16 * 1024,
    .body_bytes = 1024 * 1024,
    .head_ms = 10000,
    .body_ms = 30000,
    .keep_alive_ms = 75000,
    .connections = 65536,
};

static void on_sweep(struct timer *t);

static void on_turn_end(void *ctx)
{
    struct http_server *s = ctx;

    conn_turn_end(s);
    s->turn++;
    s->turn_bytes = 0;
}

/* How many connections the limit of open files allows, with an eighth of it (64 to 1024) kept for
 * the store, the admin socket and outbound calls. */
static size_t connections_possible(void)
{
    struct rlimit files;
    size_t n, reserve;

    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY)
        return SIZE_MAX;
    n = (size_t)files.rlim_cur;
    reserve = n / 8 < 64 ? 64 : n / 8 > 1024 ? 1024 : n / 8;
    return n > reserve + 16 ? n - reserve : 16;
}

static struct http_limits fill_limits(const struct http_limits *given)
{
    const struct http_limits *d = &http_limits_default;
    struct http_limits l = given != NULL ? *given : *d;

    l.head_bytes = l.head_bytes != 0 ? l.head_bytes : d->head_bytes;
    l.body_bytes = l.body_bytes != 0 ? l.body_bytes : d->body_bytes;
    l.head_ms = l.head_ms != 0 ? l.head_ms : d->head_ms;
    l.body_ms = l.body_ms != 0 ? l.body_ms : d->body_ms;
    l.keep_alive_ms = l.keep_alive_ms != 0 ? l.keep_alive_ms : d->keep_alive_ms;
    l.connections = l.connections != 0 ? l.connections : d->connections;
    if (l.connections > connections_possible())
        l.connections = connections_possible();
    return l;
}

/* The sweep looks often enough for the shortest time-out, and at most once a second. */
static void fill_timeouts(struct http_server *s)
{
    int64_t least = 2000;

    s->timeout_ms[CONN_PROXY] = s->limits.head_ms;
    s->timeout_ms[CONN_HEAD] = s->limits.head_ms;
    s->timeout_ms[CONN_TRUNK_NEW] = s->limits.head_ms;
    s->timeout_ms[CONN_BODY] = s->limits.body_ms;
    s->timeout_ms[CONN_UPLOAD] = s->limits.body_ms;
    s->timeout_ms[CONN_FILE] = s->limits.body_ms;
    s->timeout_ms[CONN_IDLE] = s->limits.keep_alive_ms;
    s->timeout_ms[CONN_LAST] = s->limits.body_ms;
    s->timeout_ms[CONN_LINGER] = LINGER_MS;
    s->timeout_ms[CONN_WS_CLOSING] = WS_CLOSE_MS;
    for (int i = 0; i < CONN_N_STATES; i++) {
        if (s->timeout_ms[i] > 0 && s->timeout_ms[i] < least)
            least = s->timeout_ms[i];
    }
    s->sweep_ms = least / 2 > 20 ? least / 2 : 20;
}

struct http_server *http_server_new(struct loop *loop, const struct http_limits *limits,
                                    http_handler *handler, void *ctx)
{
    struct http_server *s = xcalloc(1, sizeof *s);
    struct rand r = RAND_SYSTEM;

    s->loop = loop;
    s->ev = loop_ev(loop);
    s->clock = loop_clock(loop);
    s->limits = fill_limits(limits);
    s->handler = handler;
    s->ctx = ctx;
    s->free_slot = UINT32_MAX;
    s->read_buf = xmalloc(READ_BYTES);
    rand_bytes(&r, s->ping_tag, sizeof s->ping_tag);
    list_init(&s->listeners);
    list_init(&s->trunks);
    list_init(&s->hungry);
    for (int i = 0; i < CONN_N_STATES; i++)
        list_init(&s->by_state[i]);
    fill_timeouts(s);
    timer_init(&s->sweep, on_sweep);
    loop_on_turn_end(loop, on_turn_end, s);
    return s;
}

void http_server_on_head(struct http_server *s, http_handler *on_head)
{
    s->on_head = on_head;
}

/* ---- deadlines ---- */

static void on_late(struct conn *c)
{
    bool in_request = c->state <= CONN_BODY && c->req != NULL;

    if (c->state == CONN_UPLOAD) {
        http_upload_late(c);
        return;
    }
    if (c->state == CONN_HELD) {
        trunk_release(c);
        return;
    }
    if (!in_request) {
        conn_close(c);
        return;
    }
    http_req_free(c);
    buf_done(&c->in);
    http_refuse(c, 408, "timeout",
                c->state == CONN_BODY ? "the body of the request took too long"
                                      : "the head of the request took too long");
}

static bool accept_again(struct http_server *s)
{
    bool any = false;

    list_each (&s->listeners, it, next) {
        struct listener *l = list_entry(it, struct listener, link);
        any = any || l->paused;
        l->paused = false;
        ev_io_start(s->ev, &l->io);
    }
    return any;
}

static void on_sweep(struct timer *t)
{
    struct http_server *s = container_of(t, struct http_server, sweep);
    int64_t now = clock_now_ms(s->clock);

    int late = 0;

    for (int i = 0; i < CONN_N_STATES; i++) {
        if (s->timeout_ms[i] == 0)
            continue;
        list_each (&s->by_state[i], it, next) {
            struct conn *c = list_entry(it, struct conn, link);
            if (c->due_ms > now || late == SWEEPS_PER_TURN)
                break;
            on_late(c);
            late++;
        }
    }
    if (accept_again(s) || s->n_conns > 0)
        timer_set(s->clock, &s->sweep, late == SWEEPS_PER_TURN ? 1 : s->sweep_ms);
}

/* ---- accepting ---- */

static void pause_accept(struct listener *l)
{
    struct http_server *s = l->server;

    log_warn(NULL, "accept: %s; not accepting for a moment (raise the limit of open files)",
             strerror(errno));
    l->paused = true;
    ev_io_stop(s->ev, &l->io);
    timer_set(s->clock, &s->sweep, s->sweep_ms);
}

static bool has_room(const struct listener *l)
{
    const struct http_server *s = l->server;

    return l->opt.reserved ? s->n_reserved < MAX_RESERVED
                           : s->n_conns - s->n_reserved - s->n_carried < s->limits.connections;
}

static void turn_away(struct listener *l, int fd)
{
    static const char busy[] =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
        "Content-Length: 52\r\nConnection: close\r\n\r\n"
        "{\"error\":\"too many connections\",\"code\":\"overloaded\"}";

    char sink[4096];

    if (l->tls == NULL)
        (void)!send(fd, busy, sizeof busy - 1, MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    (void)!recv(fd, sink, sizeof sink, 0); /* unread bytes would turn the close into a reset */
    close(fd);
}

static void refuse_descriptor(struct listener *l, int fd, struct party *party)
{
    close(fd);
    if (!l->opt.reserved)
        ledger_give(l->server->ledger, party, LIMIT_CONNECTIONS, 1);
    party_drop(party);
}

static void take_in(struct listener *l, int fd, const struct sockaddr_storage *from)
{
    struct addr peer = addr_of((const struct sockaddr *)from);
    struct party *party;
    struct conn *c;

    if (l->opt.proxy_protocol && !http_peer_is_trusted(l->server, &peer)) {
        close(fd); /* whatever it would say is not to be believed */
        return;
    }
    if (!conn_count_in(l, &peer, &party)) {
        turn_away(l, fd);
        return;
    }
    c = conn_new(l, fd, &peer, party);
    if (c == NULL)
        refuse_descriptor(l, fd, party);
}

static void on_accept(struct ev_loop *ev, ev_io *w, int events)
{
    struct listener *l = container_of(w, struct listener, io);

    (void)ev, (void)events;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        struct sockaddr_storage from = {0};
        socklen_t from_n = sizeof from;
        int fd = accept4(w->fd, (struct sockaddr *)&from, &from_n, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                pause_accept(l);
            if (errno == ECONNABORTED || errno == EINTR)
                continue;
            return;
        }
        if (has_room(l))
            take_in(l, fd, &from);
        else
            turn_away(l, fd);
    }
}

/* ---- listening ---- */

enum bh_err http_server_listen(struct http_server *s, struct str where, const struct http_tls *tls,
                               int mode, char *ret_why)
{
    bool is_unix = str_starts(where, STR("unix:"));
    SSL_CTX *ctx = NULL;
    struct listener *l;
    enum bh_err err = BH_OK;
    int fd = -1;

    if (tls != NULL && tls->cert != NULL)
        err = http_tls_context(tls, &ctx, ret_why);
    if (err == BH_OK)
        err = http_listen_open(where, mode, &fd, ret_why);
    if (err != BH_OK) {
        SSL_CTX_free(ctx);
        return err;
    }
    l = xcalloc(1, sizeof *l);
    l->server = s;
    l->tls = ctx;
    l->path = is_unix ? str_dup(str_skip(where, 5)) : NULL;
    list_append(&s->listeners, &l->link);
    ev_io_init(&l->io, on_accept, fd, EV_READ);
    ev_io_start(s->ev, &l->io);
    return BH_OK;
}

void http_server_set_last(struct http_server *s, const struct http_listener *l)
{
    assert(!list_is_empty(&s->listeners));
    list_entry(s->listeners.prev, struct listener, link)->opt = *l;
}

int http_server_port(const struct http_server *s)
{
    list_each (&s->listeners, it, next) {
        const struct listener *l = list_entry(it, struct listener, link);
        union {
            struct sockaddr any;
            struct sockaddr_in v4;
            struct sockaddr_in6 v6;
        } a = {0};
        socklen_t n = sizeof a;
        if (l->path != NULL || getsockname(l->io.fd, &a.any, &n) != 0)
            continue;
        return ntohs(a.any.sa_family == AF_INET6 ? a.v6.sin6_port : a.v4.sin_port);
    }
    return 0;
}

size_t http_server_connections(const struct http_server *s)
{
    return s->n_conns - trunk_count_idle(s);
}

/* ---- the end ---- */

static void close_listeners(struct http_server *s)
{
    list_each (&s->listeners, it, next) {
        struct listener *l = list_entry(it, struct listener, link);
        ev_io_stop(s->ev, &l->io);
        close(l->io.fd);
        if (l->path != NULL)
            unlink(l->path);
        SSL_CTX_free(l->tls);
        free(l->path);
        list_remove(&l->link);
        free(l);
    }
}

static bool is_between_requests(const struct conn *c)
{
    return c->req == NULL && c->in.n == 0 && conn_queued(c) == 0 &&
           (!c->no_socket || carried_is_silent(c->carried));
}

void http_server_drain(struct http_server *s)
{
    static const enum conn_state waiting[] = {CONN_IDLE, CONN_HEAD};

    s->draining = true;
    close_listeners(s);
    trunk_tell_going(s);
    for (size_t i = 0; i < ARRAY_LEN(waiting); i++) {
        list_each (&s->by_state[waiting[i]], it, next) {
            struct conn *c = list_entry(it, struct conn, link);
            if (is_between_requests(c))
                conn_close(c);
        }
    }
}

void http_server_free(struct http_server *s)
{
    if (s == NULL)
        return;
    close_listeners(s);
    for (uint32_t i = 0; i < s->n_slots; i++) {
        if (s->slots[i].conn != NULL)
            conn_close(s->slots[i].conn);
    }
    conn_turn_end(s);
    work_pool_free(s->readers);
    loop_off_turn_end(s->loop, on_turn_end, s);
    timer_stop(s->clock, &s->sweep);
    while (s->spare_reqs != NULL) {
        struct http_req *r = s->spare_reqs;
        s->spare_reqs = r->next_spare;
        free(r);
    }
    while (s->n_spare_out > 0)
        buf_done(&s->spare_out[--s->n_spare_out]);
    buf_done(&s->void_out);
    http_server_answer_to(s, NULL);
    free(s->proxies);
    free(s->slots);
    free(s->read_buf);
    free(s);
}
