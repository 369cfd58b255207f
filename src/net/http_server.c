/* http_server.c - the server: listening, accepting, settings, shutting down.
 *
 * conn.c moves bytes, http_request.c reads requests, http_answer.c writes answers, ws.c speaks
 * WebSocket; conn.h draws how they meet. */
#include "net/http_server.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/config.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rand.h"
#include "base/url.h"
#include "base/addr.h"
#include "net/conn.h"
#include "net/edges.h"
#include "net/trunk_priv.h"

/* Of many that come at once, so many are accepted in one turn of the loop. */
/* Edges take fewer at a time, so that connections spread over them. */
enum { ACCEPTS_PER_TURN = 64, EDGE_ACCEPTS_PER_TURN = 4, MAX_RESERVED = 32, PARKED_MS = 30000 };

const struct http_limits http_limits_default = {
    .head_bytes = 16 * 1024,
    .body_bytes = 1024 * 1024,
    .head_ms = 10000,
    .body_ms = 30000,
    .keep_alive_ms = 75000,
    .connections = 65536,
};

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
    s->timeout_ms[CONN_PARKED] = PARKED_MS;
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
    s->read_buf = xmalloc(READ_BYTES);
    handles_init(&s->conns, &r);
    rand_bytes(&r, s->ping_tag, sizeof s->ping_tag);
    list_init(&s->listeners);
    list_init(&s->trunks);
    list_init(&s->signers);
    list_init(&s->hungry);
    for (int i = 0; i < CONN_N_STATES; i++)
        list_init(&s->by_state[i]);
    fill_timeouts(s);
    timer_init(&s->sweep, conn_sweep);
    timer_init(&s->presents, edge_on_present);
    loop_on_turn_end(loop, conn_turn_end, s);
    return s;
}

void http_server_on_head(struct http_server *s, http_handler *on_head)
{
    s->on_head = on_head;
}

void http_server_on_present(struct http_server *s, ws_present_cb *on_present)
{
    s->on_present = on_present;
}

/* ---- accepting ---- */

static void on_accept_again(struct timer *t)
{
    struct listener *l = container_of(t, struct listener, again);

    ev_io_start(l->server->ev, &l->io);
}

static void pause_accept(struct listener *l)
{
    struct http_server *s = l->server;

    log_warn(NULL,
             "cannot accept connections: %s; pausing for a moment (raise the limit of open files)",
             strerror(errno));
    ev_io_stop(s->ev, &l->io);
    timer_set(s->clock, &l->again, s->sweep_ms);
}

static bool has_room(const struct listener *l)
{
    const struct http_server *s = l->server;

    if (l->opt.reserved)
        return s->n_reserved < MAX_RESERVED;
    if (s->of != NULL)
        return edges_sockets(s->of) < s->limits.connections;
    return s->n_conns - s->n_reserved - s->n_carried < s->limits.connections;
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

static void take_in(struct listener *l, int fd, const struct sockaddr_storage *from)
{
    struct addr peer = addr_of((const struct sockaddr *)from);
    struct party *party;

    if (l->opt.proxy_protocol && !http_peer_is_trusted(l->server, &peer)) {
        close(fd); /* an untrusted peer cannot name its client */
        return;
    }
    if (!conn_count_in(l, &peer, &party)) {
        turn_away(l, fd);
        return;
    }
    if (conn_new(l, fd, &peer, party) == NULL) {
        close(fd);
        conn_count_out(l, party);
    }
}

static void on_accept(struct ev_loop *ev, ev_io *w, int events)
{
    struct listener *l = container_of(w, struct listener, io);

    int most = l->server->of != NULL ? EDGE_ACCEPTS_PER_TURN : ACCEPTS_PER_TURN;

    for (int i = 0; i < most; i++) {
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

enum { WHY_BYTES = 256, BACKLOG = 4096, MAX_UNSENT = 256 * 1024 };

static enum bh_err BH_PRINTF(2, 3) say(char *ret_why, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(ret_why, WHY_BYTES, fmt, args);
    va_end(args);
    return BH_REFUSED;
}

/* True: a process accepts connections on the socket file. */
static bool is_answered(const struct sockaddr_un *a)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool yes = fd >= 0 && connect(fd, (const struct sockaddr *)a, sizeof *a) == 0;
    if (fd >= 0)
        close(fd);
    return yes;
}

/* Removes a stale socket file; refuses anything else at that path. */
static enum bh_err clear_path(const struct sockaddr_un *a, char *ret_why)
{
    struct stat st;

    if (lstat(a->sun_path, &st) != 0)
        return BH_OK;
    if (!S_ISSOCK(st.st_mode))
        return say(ret_why, "%s exists and is not a socket: choose another path", a->sun_path);
    if (is_answered(a))
        return say(ret_why, "somebody listens on %s already: is another bellhop running?",
                   a->sun_path);
    if (unlink(a->sun_path) != 0)
        return say(ret_why, "cannot remove the stale socket %s: %s", a->sun_path, strerror(errno));
    return BH_OK;
}

static enum bh_err open_unix(struct str path, int mode, int *ret_fd, char *ret_why)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    enum bh_err err;
    mode_t mask;
    int fd, bound;

    if (path.n == 0 || path.n >= sizeof a.sun_path)
        return say(ret_why, "the path of a Unix socket has 1 to %zu bytes", sizeof a.sun_path - 1);
    memcpy(a.sun_path, path.p, path.n);
    err = clear_path(&a, ret_why);
    if (err != BH_OK)
        return err;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return say(ret_why, "cannot make a socket: %s", strerror(errno));
    mask = umask(0777 & ~(mode_t)mode); /* no client connects between bind() and chmod() */
    bound = bind(fd, (struct sockaddr *)&a, sizeof a);
    umask(mask);
    if (bound != 0 || listen(fd, BACKLOG) != 0) {
        say(ret_why, "cannot listen on %s: %s", a.sun_path, strerror(errno));
        close(fd);
        return BH_REFUSED;
    }
    *ret_fd = fd;
    return BH_OK;
}

static enum bh_err split_where(struct str where, char *ret_host, size_t host_cap, char ret_port[6],
                               char *ret_why)
{
    struct str host, port;
    uint64_t number;
    size_t colon = where.n;

    while (colon > 0 && where.p[colon - 1] != ':')
        colon--;
    host = str_make(where.p, colon > 0 ? colon - 1 : 0);
    port = str_make(where.p + colon, where.n - colon);
    if (host.n >= 2 && host.p[0] == '[' && host.p[host.n - 1] == ']')
        host = str_make(host.p + 1, host.n - 2);
    if (colon == 0 || host.n == 0 || host.n >= host_cap || !str_to_u64(port, &number) ||
        number > 65535)
        return say(ret_why,
                   "\"%.*s\" is not an address to listen on: write 127.0.0.1:7077, "
                   "[::1]:7077 or unix:/path",
                   STR_FMT(where));
    memcpy(ret_host, host.p, host.n);
    ret_host[host.n] = '\0';
    snprintf(ret_port, 6, "%u", (unsigned)number);
    return BH_OK;
}

static enum bh_err explain_bind(int err, const char *host, const char *port, char *ret_why)
{
    switch (err) {
    case EADDRINUSE:
        say(ret_why,
            "port %s is in use: stop the program that has it (ss -ltnp shows it) or "
            "choose another port",
            port);
        return BH_BUSY;
    case EACCES:
        return say(ret_why,
                   "port %s needs privileges: choose one above 1023 or grant "
                   "CAP_NET_BIND_SERVICE",
                   port);
    case EADDRNOTAVAIL:
        return say(ret_why, "%s is not an address of this machine (ip addr shows them)", host);
    default:
        return say(ret_why, "cannot listen on %s port %s: %s", host, port, strerror(err));
    }
}

static enum bh_err open_tcp(struct str where, int *ret_fd, char *ret_why)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char host[256], port[6];
    enum bh_err err = split_where(where, host, sizeof host, port, ret_why);
    int fd, gai, on = 1, unsent = MAX_UNSENT;

    if (err != BH_OK)
        return err;
    gai = getaddrinfo(host, port, &hints, &found);
    if (gai != 0)
        return say(ret_why, "cannot find the address %s: %s", host, gai_strerror(gai));
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        err = say(ret_why, "cannot make a socket: %s", strerror(errno));
        goto out;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* accepted sockets inherit these */
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
    if (bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0) {
        err = explain_bind(errno, host, port, ret_why);
        close(fd);
        goto out;
    }
    *ret_fd = fd;
out:
    freeaddrinfo(found);
    return err;
}

static struct listener *listener_new(struct http_server *s, int fd, SSL_CTX *tls)
{
    struct listener *l = xcalloc(1, sizeof *l);

    l->server = s;
    l->tls = tls;
    list_append(&s->listeners, &l->link);
    timer_init(&l->again, on_accept_again);
    ev_io_init(&l->io, on_accept, fd, EV_READ);
    ev_io_start(s->ev, &l->io);
    return l;
}

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
        err = is_unix ? open_unix(str_skip(where, 5), mode, &fd, ret_why)
                      : open_tcp(where, &fd, ret_why);
    if (err != BH_OK) {
        SSL_CTX_free(ctx);
        return err;
    }
    l = listener_new(s, fd, ctx);
    l->path = is_unix ? str_dup(str_skip(where, 5)) : NULL;
    return BH_OK;
}

void http_server_set_last(struct http_server *s, const struct http_listener *l)
{
    assert(!list_is_empty(&s->listeners));
    list_entry(s->listeners.prev, struct listener, link)->opt = *l;
}

static int listener_port(const struct listener *l)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } a = {0};
    socklen_t n = sizeof a;

    if (l->path != NULL || getsockname(l->io.fd, &a.any, &n) != 0)
        return 0;
    return ntohs(a.any.sa_family == AF_INET6 ? a.v6.sin6_port : a.v4.sin_port);
}

int http_server_port(const struct http_server *s)
{
    list_each (&s->listeners, it, next) {
        int port = listener_port(list_entry(it, struct listener, link));
        if (port != 0)
            return port;
    }
    return s->port;
}

size_t http_server_connections(const struct http_server *s)
{
    return s->n_conns - trunk_count_idle(s);
}

/* ---- the end ---- */

static void close_listener(struct listener *l)
{
    ev_io_stop(l->server->ev, &l->io);
    timer_stop(l->server->clock, &l->again);
    close(l->io.fd);
    if (l->path != NULL)
        unlink(l->path);
    SSL_CTX_free(l->tls);
    free(l->path);
    list_remove(&l->link);
    free(l);
}

static void close_listeners(struct http_server *s)
{
    list_each (&s->listeners, it, next)
        close_listener(list_entry(it, struct listener, link));
}

void http_server_leave_ports(struct http_server *s)
{
    s->port = http_server_port(s);
    list_each (&s->listeners, it, next) {
        struct listener *l = list_entry(it, struct listener, link);
        if (l->path == NULL)
            close_listener(l);
    }
}

enum bh_err http_server_listen_like(struct http_server *s, const struct http_server *other)
{
    list_each (&other->listeners, it, next) {
        const struct listener *l = list_entry(it, struct listener, link);
        int fd = l->path == NULL ? dup(l->io.fd) : -1;
        if (l->path != NULL)
            continue;
        if (fd < 0)
            return BH_UNAVAILABLE;
        struct listener *mine = listener_new(s, fd, l->tls);
        mine->opt = l->opt;
        if (mine->tls != NULL)
            SSL_CTX_up_ref(mine->tls);
    }
    return BH_OK;
}

static bool is_between_requests(const struct conn *c)
{
    return c->req == NULL && c->in->n == 0 && conn_queued(c) == 0 && !trunk_still_asks(c);
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
    list_each (&s->by_state[CONN_PARKED], it, next)
        edge_close_parked(list_entry(it, struct conn, link));
}

void http_server_leave(struct http_server *s)
{
    s->leaving = true;
}

bool http_server_hears(const struct http_server *s)
{
    return !list_is_empty(&s->by_state[CONN_BODY]);
}

bool http_server_handles(const struct http_server *s)
{
    return !list_is_empty(&s->by_state[CONN_HANDLING]);
}

void http_server_free(struct http_server *s)
{
    struct conn *c;

    if (s == NULL)
        return;
    close_listeners(s);
    for (uint32_t at = 0; (c = handles_next(&s->conns, &at)) != NULL;)
        conn_close(c);
    heart_close_door(s);
    conn_turn_end(s);
    edges_free(s->edges); /* they flush what the last turn said */
    s->edges = NULL;
    if (s->in_process) {
        trunk_done(s->carrier);
        free(s->carrier);
    }
    work_pool_free(s->readers);
    loop_off_turn_end(s->loop, conn_turn_end, s);
    timer_stop(s->clock, &s->sweep);
    timer_stop(s->clock, &s->presents);
    json_parser_free(s->json);
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
    handles_done(&s->conns);
    free(s->read_buf);
    free(s);
}

/* ---- the ledger, for other modules ---- */

void http_server_count(struct http_server *s, struct ledger *ledger)
{
    assert(s->edges == NULL); /* they have branches of the ledger */
    s->ledger = ledger;
}

struct party *http_party(const struct http_req *r)
{
    struct addr a = http_req_addr(r);

    return a.n == 0 ? NULL : ledger_party(r->conn->server->ledger, PER_ADDRESS, addr_party(&a));
}

/* ---- settings ---- */

#define AT(member) offsetof(struct http_settings, member)

static const struct config_key keys[] = {
    {"hosts", CFG_TEXTS, CFG_RELOAD, AT(hosts),
     .what = "Host names to accept besides that of `public_url`, `localhost` and IP addresses: "
             "`[bellhop, \"*.example.org\"]`. Requests for another name get 421, which stops web "
             "pages that point their own name here; `\"*\"` accepts any name."},
    {"trusted_proxies", CFG_TEXTS, CFG_RELOAD, AT(trusted_proxies),
     .what =
         "Addresses and networks of your proxies, `[127.0.0.1, 10.0.0.0/8, unix]`: their "
         "`X-Forwarded-For` tells the client's address. Other senders of that header are ignored."},
    {"proxy_protocol", CFG_BOOL, CFG_RESTART, AT(proxy_protocol), "false",
     .what =
         "Expect the PROXY protocol, version 2, on `listen`; only `trusted_proxies` may connect "
         "then."},
    {0},
};

static bool check(void *settings, char *ret_why)
{
    struct http_settings *hs = settings;
    struct addr_net net;

    for (char **p = hs->trusted_proxies; p != NULL && *p != NULL; p++) {
        if (!addr_net_parse(str_of(*p), &net))
            return bh_why(
                ret_why,
                "trusted_proxies: expected an address, a network such as 10.0.0.0/8, or unix, "
                "found \"%.60s\"",
                *p);
    }
    if (hs->proxy_protocol && hs->trusted_proxies == NULL)
        return bh_why(ret_why, "proxy_protocol: needs trusted_proxies, or nobody could connect");
    return true;
}

const struct config_section http_config = {.keys = keys,
                                           .size = sizeof(struct http_settings),
                                           .check = check};

static void apply_names(struct http_server *s, const struct http_settings *hs, const char *listen,
                        const char *public_url, const char *const *more)
{
    struct str where = str_of(listen), host;
    size_t n = 0, n_more = 0;
    const char **names;
    char *own[2] = {NULL, NULL};
    struct url u;

    while (hs->hosts != NULL && hs->hosts[n] != NULL)
        n++;
    while (more != NULL && more[n_more] != NULL)
        n_more++;
    names = xcalloc(n + n_more + 3, sizeof *names);
    for (size_t i = 0; i < n; i++)
        names[i] = hs->hosts[i];
    for (size_t i = 0; i < n_more; i++)
        names[n++] = more[i];
    if (public_url != NULL && url_split(str_of(public_url), &u) == NULL)
        names[n++] = own[0] = str_dup(u.host);
    if (!str_starts(where, STR("unix:")) && listen[0] != '[') {
        str_split(&where, ':', &host);
        names[n++] = own[1] = str_dup(host);
    }
    http_server_answer_to(s, names);
    free(names);
    free(own[0]);
    free(own[1]);
}

void http_settings_apply(struct http_server *s, const struct http_settings *hs, const char *listen,
                         const char *public_url, const char *const *more)
{
    struct addr_net *nets;
    size_t n = 0;

    while (hs->trusted_proxies != NULL && hs->trusted_proxies[n] != NULL)
        n++;
    nets = xcalloc(n + 1, sizeof *nets);
    for (size_t i = 0; i < n; i++)
        (void)addr_net_parse(str_of(hs->trusted_proxies[i]), &nets[i]); /* checked when read */
    http_server_trust(s, nets, n);
    free(nets);
    apply_names(s, hs, listen, public_url, more);
}
