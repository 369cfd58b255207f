/* conn.c - design.  (conn.h has the picture.)
 *
 * Reading: one read() per readiness, into one buffer that all connections share.  A parser copies
 * only an incomplete rest.  A connection must not read while its request is handled or its client
 * does not read answers.  It stays watched until it becomes readable: most answers are faster than
 * the next request, which saves the call to epoll.
 *
 * Writing: output goes into one buffer per connection and is sent at the end of the turn, in one
 * system call for all frames and answers.  Writability is watched only while the socket is full.
 *
 * Closing: the socket closes at once, the memory is freed at the end of the turn.
 *
 * Counting (base/limits.h).  Every connection holds something for a party:
 *
 *      accepted --> its address: the connection, an incomplete request, unsent bytes of an answer
 *          |
 *          '--conn_let_in()--> its credential: unsent bytes
 *
 * A trusted proxy speaks for many clients and a Unix socket has no address: both count only for the
 * sum over all parties.  The admin socket belongs to the operator and is not counted.
 *
 * Fairness.  In one turn of the loop the server reads a bounded number of bytes from one address,
 * or from the sockets of one tenant, whatever waits in the kernel.  So the others wait for at most
 * one turn in which every party has had its share.  64 KiB of the smallest frames take about a
 * millisecond.  Part of an address's share is reserved for requests: file transfers never use that
 * part. */
#include "net/conn.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/rand.h"
#include "base/addr.h"
#include "net/edges.h"
#include "net/trunk_priv.h"

static void on_io(struct ev_loop *ev, ev_io *w, int events);

/* Waits for @more from now on, and no longer for @less. */
static void watch(struct conn *c, int more, int less)
{
    int before = c->io.events & (EV_READ | EV_WRITE), events = (before | more) & ~less;

    if (events == before)
        return;
    ev_io_stop(c->server->ev, &c->io);
    ev_io_set(&c->io, c->io.fd, events);
    if (c->carried != NULL && c->no_socket)
        carried_settle(c->carried);
    else if (events != 0 && !c->no_socket)
        ev_io_start(c->server->ev, &c->io);
}

/* ---- counting for a party ---- */

enum {
    ADDRESS_BYTES = 256 * 1024, /* of a turn, for an address */
    TENANT_BYTES = 64 * 1024,   /* the same for the sockets of a tenant: small frames cost more */
    TURN_BYTES = 512 * 1024,    /* of a turn, for all; then each connection gets one small read */
    OVER_BYTES = 4 * 1024,
};

static struct ledger *ledger_of(const struct conn *c)
{
    return c->reserved ? NULL : c->server->ledger;
}

struct party *conn_party(struct http_server *s, const struct addr *a)
{
    if (a->n == 0 || http_peer_is_trusted(s, a))
        return NULL;
    return ledger_party(s->ledger, PER_ADDRESS, addr_party(a));
}

bool conn_count_in(struct listener *l, const struct addr *peer, struct party **ret_party)
{
    struct http_server *s = l->server;

    *ret_party = NULL;
    if (l->opt.reserved)
        return true;
    *ret_party = conn_party(s, peer);
    if (ledger_take(s->ledger, *ret_party, LIMIT_CONNECTIONS, 1) == LIMIT_TAKEN)
        return true;
    party_drop(*ret_party);
    return false;
}

void conn_count_out(struct listener *l, struct party *party)
{
    if (!l->opt.reserved)
        ledger_give(l->server->ledger, party, LIMIT_CONNECTIONS, 1);
    party_drop(party);
}

/* Its address, while it counts for that. */
static struct party *address_of(const struct conn *c)
{
    return c->let_in ? NULL : c->party;
}

static bool change(struct conn *c, struct party *p, enum limit what, uint32_t *held, size_t now)
{
    size_t bytes = *held;
    bool granted = ledger_change(ledger_of(c), p, what, &bytes, now) == LIMIT_TAKEN;

    *held = (uint32_t)bytes; /* a connection has far less than 4 GiB in memory */
    return granted;
}

/* The connection itself counts for @to (one hold, taken over) from now on. */
static bool move_to(struct conn *c, struct party *to)
{
    (void)change(c, c->party, LIMIT_REQUEST_BYTES, &c->in_counted, 0);
    (void)change(c, c->party, LIMIT_ANSWER_BYTES, &c->out_counted, 0);
    if (!c->uncounted)
        ledger_give(ledger_of(c), c->party, LIMIT_CONNECTIONS, 1);
    party_drop(c->party);
    c->party = to;
    if (c->uncounted || ledger_take(ledger_of(c), to, LIMIT_CONNECTIONS, 1) == LIMIT_TAKEN)
        return true;
    party_drop(to);
    c->party = NULL;
    c->uncounted = true;
    return false;
}

void conn_let_in(struct conn *c, struct party *credential, struct party *tenant)
{
    if (c->reserved || c->let_in || credential == NULL)
        return;
    (void)move_to(c, NULL);
    c->let_in = true;
    c->party = party_hold(credential);
    c->tenant = party_hold(tenant);
    if (c->no_socket && c->carried != NULL && tenant != NULL) {
        struct buf *out = trunk_out(c->carried->trunk);
        size_t begun = batch_add_begin(out, c->carried->number, MSG_LET_IN);
        batch_put_texts(out, (const struct str[]){party_name(credential), party_name(tenant)}, 2);
        batch_add_end(out, begun);
    }
}

void conn_uncount(struct conn *c)
{
    if (!c->reserved && !c->let_in && !c->uncounted)
        (void)move_to(c, NULL);
}

/* What came and is not complete: a request, or at an edge a line of a gateway. */
static bool count_input(struct conn *c, size_t now)
{
    return now == c->in_counted ||
           change(c, c->party, c->let_in ? LIMIT_FRAME_BYTES : LIMIT_REQUEST_BYTES, &c->in_counted,
                  now);
}

static bool count_request(struct conn *c)
{
    if (c->top == TOP_WS)
        return true;
    size_t held = c->carried != NULL && !c->no_socket ? edge_holds(c->carried) : 0;

    return count_input(c, c->in->cap + (c->req != NULL ? sizeof *c->req : 0) + held);
}

/* What waits for a trunk is no client's, and bounded (TRUNK_HIGH_BYTES): strangers who fill the sum
 * must not cut it. */
static bool count_answer(struct conn *c, size_t now)
{
    return now == c->out_counted || c->state == CONN_TRUNK ||
           change(c, c->party, c->let_in ? LIMIT_UNSENT_BYTES : LIMIT_ANSWER_BYTES, &c->out_counted,
                  now);
}

static void count_gone(struct conn *c)
{
    (void)count_input(c, 0);
    (void)count_answer(c, 0);
    if (!c->uncounted)
        ledger_give(ledger_of(c), address_of(c), LIMIT_CONNECTIONS, 1);
    party_drop(c->party);
    party_drop(c->tenant);
}

struct party *conn_sharer(const struct conn *c)
{
    return c->tenant != NULL ? c->tenant : address_of(c);
}

static size_t share_of(struct conn *c)
{
    struct http_server *s = c->server;
    uint64_t used = party_used(conn_sharer(c), s->turn, 0);
    size_t most = c->top == TOP_WS ? READ_BYTES : HTTP_READ_BYTES;
    size_t share = c->tenant != NULL ? TENANT_BYTES : ADDRESS_BYTES;

    if (c->top != TOP_WS && c->upload != NULL)
        share -= share / 4;
    size_t left = used < share ? share - (size_t)used : 0;
    if (s->turn_bytes >= TURN_BYTES)
        left = used == 0 ? OVER_BYTES : 0;
    return left < most ? left : most;
}

/* ---- its life ---- */

/* NULL: no memory for it. */
static SSL *tls_new(SSL_CTX *ctx, int fd)
{
    SSL *ssl = SSL_new(ctx);

    if (ssl != NULL && SSL_set_fd(ssl, fd) == 1) {
        SSL_set_accept_state(ssl);
        return ssl;
    }
    SSL_free(ssl);
    ERR_clear_error();
    return NULL;
}

struct conn *conn_new(struct listener *l, int fd, const struct addr *peer, struct party *party)
{
    struct http_server *s = l->server;
    SSL *ssl = l->tls != NULL ? tls_new(l->tls, fd) : NULL;
    struct conn *c;

    if (l->tls != NULL && ssl == NULL)
        return NULL;
    c = xcalloc(1, sizeof *c);
    c->server = s;
    c->in = &conn_no_input;
    c->io.data = l->opt.tag;
    c->peer = *peer;
    c->party = party;
    c->reserved = l->opt.reserved;
    c->any_host = l->opt.any_host || l->path != NULL;
    list_init(&c->link);
    list_init(&c->hungry);
    c->id = handles_add(&s->conns, c);
    s->n_conns++;
    s->n_reserved += c->reserved;
    if (s->of != NULL)
        edges_count(s->of, 1);
    c->is_tls = ssl != NULL;
    c->ssl = ssl;
    ev_io_init(&c->io, on_io, fd, EV_READ);
    c->no_socket = fd < 0;
    if (!c->no_socket)
        ev_io_start(s->ev, &c->io);
    conn_enter(c, l->opt.proxy_protocol ? CONN_PROXY : CONN_HEAD);
    if (!timer_is_set(&s->sweep))
        timer_set(s->clock, &s->sweep, s->sweep_ms);
    return c;
}

void conn_enter(struct conn *c, enum conn_state next)
{
    struct http_server *s = c->server;

    assert(c->state != CONN_CLOSED);
    c->state = (uint8_t)next;
    c->due_ms = (uint32_t)(clock_now_ms(s->clock) + s->timeout_ms[next]);
    list_move(&c->link, &s->by_state[next]);
}

void conn_answered(struct conn *c)
{
    c->id = handles_renew(&c->server->conns, c->id);
}

void conn_mark(struct conn *c)
{
    if (c->is_dirty)
        return;
    c->is_dirty = true;
    c->next_dirty = c->server->dirty;
    c->server->dirty = c;
}

const struct buf conn_no_input;

struct buf *conn_in(struct conn *c)
{
    if (c->in == &conn_no_input)
        c->in = xcalloc(1, sizeof *c->in);
    return (struct buf *)(uintptr_t)c->in;
}

void conn_in_done(struct conn *c)
{
    if (c->in == &conn_no_input)
        return;
    buf_done(conn_in(c));
    free(conn_in(c));
    c->in = &conn_no_input;
}

struct buf *conn_out(struct conn *c)
{
    struct http_server *s = c->server;
    if (c->out.p == NULL && s->n_spare_out > 0)
        c->out = s->spare_out[--s->n_spare_out];
    return &c->out;
}

void conn_close(struct conn *c)
{
    if (c->state == CONN_CLOSED)
        return;
    ev_io_stop(c->server->ev, &c->io);
    list_remove(&c->hungry);
    conn_enter(c, CONN_CLOSED);
    if (c->ssl != NULL) {
        if (SSL_is_init_finished(c->ssl))
            SSL_shutdown(c->ssl); /* sends close_notify and does not wait for the answer */
        ERR_clear_error();
        SSL_free(c->ssl);
        c->ssl = NULL;
    }
    if (c->carried != NULL)
        carried_let_go(c);
    if (!c->no_socket && !c->given)
        close(c->io.fd);
    c->io.fd = -1;
}

/* Tells the owner, then frees. */
static void conn_free(struct conn *c)
{
    struct http_server *s = c->server;

    assert(c->state == CONN_CLOSED && !c->is_dirty);
    if (c->top == TOP_WS)
        ws_gone(c);
    else if (c->top == TOP_STREAM)
        http_stream_gone(c);
    if (c->upload != NULL)
        http_upload_gone(c);
    if (c->top == TOP_FILE)
        http_file_gone(c);
    else if (c->top == TOP_TRUNK)
        trunk_gone(c);
    list_remove(&c->link);
    handles_remove(&s->conns, c->id);
    s->n_conns--;
    s->n_reserved -= c->reserved;
    s->n_carried -= c->no_socket && !c->reserved;
    if (s->of != NULL)
        edges_count(s->of, -1);
    http_req_free(c);
    conn_in_done(c);
    buf_done(&c->out);
    count_gone(c);
    free(c);
}

/* ---- reading ---- */

static bool may_read(struct conn *c)
{
    switch (c->state) {
    case CONN_HEAD:
    case CONN_BODY:
    case CONN_IDLE:
        return conn_queued(c) < OUT_HIGH_BYTES;
    case CONN_STREAM:
    case CONN_FILE:
        return c->in->n < HTTP_READ_BYTES;
    case CONN_PROXY:
    case CONN_UPLOAD:
    case CONN_LINGER:
    case CONN_WS:
    case CONN_WS_CLOSING:
    case CONN_TRUNK_NEW:
    case CONN_TRUNK:
        return true;
    case CONN_CARRIED:
    case CONN_PARKED:
        return edge_may_take(c->carried) > 0;
    default:
        return false;
    }
}

static void take_input(struct conn *c, char *p, size_t n)
{
    switch (c->state) {
    case CONN_WS:
    case CONN_WS_CLOSING:
        ws_input(c, p, n);
        return;
    case CONN_LINGER:
        return; /* until the state changes */
    case CONN_STREAM:
    case CONN_FILE:
        buf_add(conn_in(c), p, n);
        return;
    case CONN_TRUNK_NEW:
    case CONN_TRUNK:
        trunk_input(c->trunk, str_make(p, n));
        return;
    case CONN_CARRIED:
    case CONN_PARKED:
        edge_input(c, p, n);
        return;
    default:
        http_input(c, p, n);
    }
}

/* >0: bytes; 0: the peer has gone; -1: nothing now. */
static ssize_t read_tls(struct conn *c, char *p, size_t n)
{
    int k;

    ERR_clear_error();
    k = SSL_read(c->ssl, p, (int)n);
    if (k > 0)
        return k;
    switch (SSL_get_error(c->ssl, k)) {
    case SSL_ERROR_WANT_READ:
        return -1;
    case SSL_ERROR_WANT_WRITE:
        c->tls_stuck = true;
        watch(c, EV_WRITE, 0);
        return -1;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    default:
        log_debug(NULL, "tls: %s", ERR_reason_error_string(ERR_peek_error()));
        return 0;
    }
}

static ssize_t read_some(struct conn *c, char *p, size_t n)
{
    ssize_t k;

    if (c->ssl != NULL)
        return read_tls(c, p, n);
    k = recv(c->io.fd, p, n, 0);
    if (k >= 0)
        return k;
    return errno == EAGAIN || errno == EINTR ? -1 : 0;
}

/* The peer will send no more.  It may still be reading: a client may close its half early. */
static void on_eof(struct conn *c)
{
    if (conn_queued(c) == 0 || (c->state != CONN_IDLE && c->state != CONN_HEAD)) {
        conn_close(c);
        return;
    }
    conn_enter(c, CONN_LAST);
    watch(c, 0, EV_READ);
}

/* The header comes before TLS, so no byte beyond it may be read here.  True: it is complete. */
static bool read_proxy(struct conn *c)
{
    size_t need = PROXY_START_BYTES;
    enum proxy_end end = PROXY_MORE;
    ssize_t n = 1;

    if (c->in->n > 0)
        end = proxy_read(c->in->p, c->in->n, &c->peer, &need);
    while (end == PROXY_MORE && n > 0) {
        struct buf *in = conn_in(c);
        char *to = buf_room(in, need - in->n);
        n = recv(c->io.fd, to, need - in->n, 0);
        if (n > 0) {
            in->n += (size_t)n;
            end = proxy_read(in->p, in->n, &c->peer, &need);
        }
    }
    if (end == PROXY_DONE) {
        conn_in_done(c);
        conn_enter(c, CONN_HEAD);
        if (c->reserved || move_to(c, conn_party(c->server, &c->peer)))
            return true;
        conn_close(c);
        return false;
    }
    if (end == PROXY_BAD || n == 0 || (errno != EAGAIN && errno != EINTR)) {
        log_debug(NULL, "a proxy did not say for whom it asks (PROXY protocol, version 2)");
        conn_close(c);
    }
    return false;
}

static void conn_read(struct conn *c, size_t most)
{
    char *p = c->server->read_buf;
    ssize_t n;

    if (c->state == CONN_PROXY && !read_proxy(c))
        return;
    do {
        if (!may_read(c)) {
            c->read_off = true;
            watch(c, 0, EV_READ);
            return;
        }
        if ((c->state == CONN_CARRIED || c->state == CONN_PARKED) &&
            edge_may_take(c->carried) < most)
            most = edge_may_take(c->carried);
        n = read_some(c, p, most);
        if (n == 0) {
            on_eof(c);
        } else if (n > 0) {
            (void)party_used(conn_sharer(c), c->server->turn, (uint64_t)n);
            c->server->turn_bytes += (size_t)n;
            take_input(c, p, (size_t)n);
        }
        if (!count_request(c))
            http_too_much(c);
    } while (n > 0 && c->ssl != NULL && SSL_pending(c->ssl) > 0); /* epoll does not report these */
}

void conn_ready(struct conn *c, int events)
{
    size_t most = share_of(c);

    if (events & EV_WRITE) {
        if (c->tls_stuck) {
            c->tls_stuck = false;
            events |= EV_READ;
            most = most > 0 ? most : LITTLE_BYTES; /* epoll may not report it again */
        }
        conn_flush(c);
        if (c->read_off || c->in->n > 0)
            conn_mark(c); /* there may be room for the answers to what waits */
    }
    if ((events & EV_READ) == 0 || c->state == CONN_CLOSED)
        return;
    if (most > 0) {
        list_remove(&c->hungry);
        conn_read(c, most);
    } else if (!c->no_socket && !list_is_linked(&c->hungry)) {
        list_append(&c->server->hungry, &c->hungry); /* it is still readable in the next turn */
    }
}

/* The loop hands out what is readable in an order of its own, in which the same ones could be first
 * every time: whoever got nothing in the last turn comes before all others. */
static void feed_hungry(struct http_server *s)
{
    struct list all;

    s->fed_turn = s->turn;
    list_add_before(s->hungry.next, &all); /* who is hungry after this is behind the old head */
    list_remove(&s->hungry);
    while (!list_is_empty(&all)) {
        struct conn *c = list_first(&all, struct conn, hungry);
        list_remove(&c->hungry);
        if (c->io.events & EV_READ)
            conn_ready(c, EV_READ);
    }
}

static void on_io(struct ev_loop *ev, ev_io *w, int events)
{
    struct conn *c = container_of(w, struct conn, io);
    struct http_server *s = c->server;

    if (s->fed_turn != s->turn && !list_is_empty(&s->hungry))
        feed_hungry(s);
    conn_ready(c, events);
}

/* ---- writing ---- */

/* >0: bytes; 0: the socket is full; -1: the peer has gone. */
static ssize_t write_tls(struct conn *c, const char *p, size_t n)
{
    int k;

    ERR_clear_error();
    k = SSL_write(c->ssl, p, n < INT32_MAX ? (int)n : INT32_MAX);
    if (k > 0)
        return k;
    switch (SSL_get_error(c->ssl, k)) {
    case SSL_ERROR_WANT_WRITE:
    case SSL_ERROR_WANT_READ:
        return 0;
    default:
        return -1;
    }
}

static ssize_t write_some(struct conn *c, const char *p, size_t n)
{
    ssize_t k;

    if (c->ssl != NULL)
        return write_tls(c, p, n);
    if (c->no_socket)
        return carried_write(c->carried, p, n);
    k = send(c->io.fd, p, n, MSG_NOSIGNAL);
    if (k >= 0)
        return k;
    return errno == EAGAIN || errno == EINTR ? 0 : -1;
}

void conn_finish(struct conn *c)
{
    if (!c->linger || c->no_socket) { /* it lingers where its socket is */
        conn_close(c);
        return;
    }
    if (c->ssl != NULL)
        SSL_shutdown(c->ssl);
    shutdown(c->io.fd, SHUT_WR);
    conn_in_done(c);
    conn_enter(c, CONN_LINGER);
    c->read_off = false;
    watch(c, EV_READ, EV_WRITE);
}

static void after_flush(struct conn *c, bool progress)
{
    if (c->state == CONN_WS || c->state == CONN_WS_CLOSING)
        ws_flushed(c);
    else if (c->state == CONN_LAST && conn_queued(c) == 0)
        conn_finish(c);
    else if (c->state == CONN_FILE && conn_queued(c) == 0)
        http_file_pump(c);
    else if (c->state == CONN_TRUNK)
        trunk_unstall(c->trunk);
    else if (progress && (c->state == CONN_IDLE || c->state == CONN_LAST || c->state == CONN_FILE))
        conn_enter(c, (enum conn_state)c->state); /* progress: restart the timeout */
    if (c->carried != NULL)
        carried_flushed(c->carried);
}

/* The socket is full.  False: over the limit of unsent bytes, and closed. */
static bool keep_unsent(struct conn *c)
{
    if (c->out_sent >= 65536 && c->out_sent >= c->out.n / 2) {
        buf_consume(&c->out, c->out_sent); /* or it would grow for a peer that is always behind */
        c->out_sent = 0;
    }
    watch(c, EV_WRITE, 0);
    if (count_answer(c, c->out.cap))
        return true;
    conn_close(c);
    return false;
}

/* The peer takes no more bytes.  A gateway that died may have sent acks before, which the kernel
 * still has.  So a WebSocket is read to its end, which closes it. */
static void on_unwritable(struct conn *c)
{
    if (c->no_socket ||
        (c->state != CONN_WS && c->state != CONN_CARRIED && c->state != CONN_PARKED)) {
        conn_close(c);
        return;
    }
    shutdown(c->io.fd, SHUT_RDWR); /* what has arrived can still be read, then the end */
    buf_done(&c->out);
    c->out_sent = 0;
    c->tls_stuck = false;
    (void)count_answer(c, 0);
    watch(c, 0, EV_WRITE);
}

void conn_flush(struct conn *c)
{
    struct http_server *s = c->server;
    bool blocked = false, progress = false;

    if (c->state == CONN_CLOSED || c->state == CONN_LINGER)
        return;
    if (buf_failed(&c->out)) {
        conn_close(c); /* an append failed: the output has a hole */
        return;
    }
    while (conn_queued(c) > 0 && !blocked) {
        ssize_t n = write_some(c, c->out.p + c->out_sent, conn_queued(c));
        if (n < 0) {
            on_unwritable(c);
            return;
        }
        c->out_sent += (uint32_t)n;
        progress = progress || n > 0;
        blocked = n == 0;
    }
    if (blocked) {
        if (!keep_unsent(c))
            return;
    } else {
        (void)count_answer(c, 0);
        c->out_sent = 0;
        if (c->out.cap > 8192 || s->n_spare_out == ARRAY_LEN(s->spare_out)) {
            buf_done(&c->out);
        } else if (c->out.p != NULL) {
            buf_reset(&c->out);
            s->spare_out[s->n_spare_out++] = c->out;
            c->out = BUF_INIT;
        }
        if (!c->tls_stuck)
            watch(c, 0, EV_WRITE);
    }
    after_flush(c, progress && blocked);
}

void conn_want_write(struct conn *c)
{
    if (c->state != CONN_CLOSED)
        watch(c, EV_WRITE, 0);
}

/* ---- the end of a turn ---- */

/* A connection that had to stop reading goes on: first with what it has, then with the socket. */
static void go_on(struct conn *c)
{
    if ((c->state == CONN_IDLE && c->in->n > 0 && may_read(c)) || c->state == CONN_UPLOAD)
        http_resume(c); /* an upload that was paused may even be whole */
    if (c->state == CONN_CLOSED || !c->read_off || !may_read(c))
        return;
    c->read_off = false;
    watch(c, EV_READ, 0);
    if (c->ssl != NULL && SSL_pending(c->ssl) > 0)
        conn_read(c, LITTLE_BYTES); /* the socket may say nothing of these */
}

/* The owner of a closed connection may write to other connections, hence the outer loop. */
void conn_turn_end(void *server)
{
    struct http_server *s = server;

    while (s->dirty != NULL || !list_is_empty(&s->by_state[CONN_CLOSED]) ||
           (!list_is_empty(&s->trunks) && trunk_turn_end(s))) {
        while (s->dirty != NULL) {
            struct conn *c = s->dirty;
            s->dirty = c->next_dirty;
            c->is_dirty = false;
            conn_flush(c);
            if (c->state != CONN_CLOSED)
                go_on(c);
            if (!count_request(c))
                http_too_much(c);
        }
        list_each (&s->by_state[CONN_CLOSED], it, next) {
            struct conn *c = list_entry(it, struct conn, link);
            if (!c->is_dirty)
                conn_free(c);
        }
    }
    s->turn++;
    s->turn_bytes = 0;
}

/* ---- deadlines ---- */

/* Of many that are late at once, so many are closed in one turn of the loop. */
enum { SWEEPS_PER_TURN = 64 };

static void on_late(struct conn *c)
{
    bool in_request = c->state <= CONN_BODY && c->req != NULL;

    if (c->state == CONN_UPLOAD) {
        http_upload_late(c);
        return;
    }
    if (c->state == CONN_HELD) {
        edge_release(c);
        return;
    }
    if (c->state == CONN_PARKED) {
        edge_close_parked(c);
        return;
    }
    if (c->no_socket && c->state == CONN_IDLE && conn_queued(c) == 0) {
        conn_enter(c, CONN_IDLE); /* its edge says how long it may be silent */
        return;
    }
    if (!in_request) {
        conn_close(c);
        return;
    }
    http_req_free(c);
    conn_in_done(c);
    http_refuse(c, 408, "timeout",
                c->state == CONN_BODY ? "the body of the request took too long"
                                      : "the head of the request took too long");
}

void conn_sweep(struct timer *t)
{
    struct http_server *s = container_of(t, struct http_server, sweep);
    int64_t now = clock_now_ms(s->clock);
    int late = 0;

    for (int i = 0; i < CONN_N_STATES; i++) {
        if (s->timeout_ms[i] == 0)
            continue;
        list_each (&s->by_state[i], it, next) {
            struct conn *c = list_entry(it, struct conn, link);
            if ((int32_t)(c->due_ms - (uint32_t)now) > 0 || late == SWEEPS_PER_TURN)
                break;
            on_late(c);
            late++;
        }
    }
    if (s->n_conns > 0)
        timer_set(s->clock, &s->sweep, late == SWEEPS_PER_TURN ? 1 : s->sweep_ms);
}
