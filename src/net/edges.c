/* edges.c - design.  (edges.h has the contract.)
 *
 * The heart's thread makes an edge before the edge's thread starts, and frees the edge after that
 * thread has ended.  In between only the edge's thread touches the edge; edges_each() changes its
 * settings.
 *
 * Limits.  Every edge has a branch of the heart's ledger, so limits hold for all threads together.
 * An edge counts its connections, and both ends count the bytes that they hold.  All edges share
 * one bound of descriptors, too.
 *
 * The end.  The heart has closed its connections, and its last output is in the rings.  Each edge
 * drains, flushes for LEAVE_MS at most, and stops its loop. */
#include "net/edges.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/ring.h"
#include "net/trunk_priv.h"

enum { LEAVE_MS = 2000, LOOK_MS = 10, WHY_BYTES = 256 };

/* The heart as connections that move there find it; it may be gone by then. */
struct heart_ref {
    atomic_int refs;
    struct http_server *server; /* of the heart's thread; NULL: gone */
};

struct edge {
    struct edges *all;          /* borrowed */
    struct loop *loop;          /* owned, like all that follow */
    struct http_server *server; /* its trunk is server->carrier */
    struct ledger *ledger;
    struct ring *up, *down;
    struct trunk *heart_end; /* of the heart's thread */
    struct list left;        /* struct left_fd, owned */
    pthread_t thread;
    bool runs;
    struct timer look; /* while it stops */
    int64_t until_ms;
};

struct edges {
    struct http_server *heart; /* borrowed */
    struct heart_ref *ref;
    size_t n;
    struct edge *v;      /* owned */
    atomic_long sockets; /* of all edges */
};

/* ---- calls into the threads ---- */

struct edges_call {
    edges_fn *fn;
    void *ctx;
    pthread_mutex_t mutex;
    pthread_cond_t done;
    size_t left;
};
struct edge_call {
    struct edges_call *call; /* borrowed */
    struct edge *edge;       /* borrowed */
};

static void run_call(void *item)
{
    struct edge_call *c = item;
    struct edges_call *call = c->call;

    call->fn(c->edge->server, call->ctx);
    pthread_mutex_lock(&call->mutex);
    if (--call->left == 0)
        pthread_cond_signal(&call->done);
    pthread_mutex_unlock(&call->mutex);
}

void edges_each(struct edges *all, edges_fn *fn, void *ctx)
{
    struct edges_call call = {.fn = fn, .ctx = ctx, .left = all->n};
    struct edge_call *items = xcalloc(all->n, sizeof *items);

    pthread_mutex_init(&call.mutex, NULL);
    pthread_cond_init(&call.done, NULL);
    for (size_t i = 0; i < all->n; i++) {
        items[i] = (struct edge_call){&call, &all->v[i]};
        loop_post(all->v[i].loop, run_call, &items[i]);
    }
    pthread_mutex_lock(&call.mutex);
    while (call.left > 0)
        pthread_cond_wait(&call.done, &call.mutex);
    pthread_mutex_unlock(&call.mutex);
    pthread_cond_destroy(&call.done);
    pthread_mutex_destroy(&call.mutex);
    free(items);
}

/* ---- a connection moves to the heart ---- */

struct gift {
    struct heart_ref *to; /* one reference */
    int fd;
    SSL *ssl; /* NULL: plain */
    struct addr peer;
    bool is_tls;
    struct buf bytes;
};

static void ref_drop(struct heart_ref *r)
{
    if (atomic_fetch_sub(&r->refs, 1) == 1)
        free(r);
}

/* In the heart's thread. */
static void take_gift(void *gift)
{
    struct gift *g = gift;
    struct http_server *s = g->to->server;
    struct listener l = {.server = s};
    struct party *party = NULL;
    struct conn *c = NULL;

    if (s != NULL && !s->draining && conn_count_in(&l, &g->peer, &party))
        c = conn_new(&l, g->fd, &g->peer, party);
    if (c != NULL) {
        c->ssl = g->ssl;
        c->is_tls = g->ssl != NULL;
        http_input(c, g->bytes.p, g->bytes.n);
        conn_mark(c);
    } else {
        SSL_free(g->ssl);
        close(g->fd);
    }
    ref_drop(g->to);
    buf_done(&g->bytes);
    free(g);
}

/* The descriptor of a socket that moved.  libev leaves a stopped descriptor in its epoll set until
 * an event comes for it.  If the descriptor is closed by then and the socket is still open, libev
 * makes a new set of all descriptors: strangers must not be able to cause that.  So the edge waits
 * for an event that comes at once, "writable", and closes the descriptor in the turn after. */
struct left_fd {
    struct list link;
    ev_io io;
    struct loop *loop; /* borrowed */
};

static void left_end(void *left)
{
    struct left_fd *x = left;

    list_remove(&x->link);
    ev_io_stop(loop_ev(x->loop), &x->io);
    close(x->io.fd);
    free(x);
}

static void on_writable(struct ev_loop *ev, ev_io *w, int events)
{
    struct left_fd *x = container_of(w, struct left_fd, io);

    ev_io_stop(ev, w);
    list_remove(&x->link); /* the posted call owns it */
    loop_post(x->loop, left_end, x);
}

static void leave_fd(struct http_server *s, int fd)
{
    struct left_fd *x = xcalloc(1, sizeof *x);

    x->loop = s->loop;
    list_init(&x->link);
    for (size_t i = 0; i < s->of->n; i++)
        if (s->of->v[i].server == s)
            list_append(&s->of->v[i].left, &x->link);
    ev_io_init(&x->io, on_writable, fd, EV_WRITE);
    ev_io_start(s->ev, &x->io);
}

void edge_give(struct conn *c, struct str bytes)
{
    struct edges *all = c->server->of;
    int fd = dup(c->io.fd), old = c->io.fd;
    struct gift *g;

    if (fd >= 0 && (c->ssl == NULL || SSL_set_fd(c->ssl, fd) == 1)) {
        g = xcalloc(1, sizeof *g);
        *g = (struct gift){.to = all->ref, .fd = fd, .ssl = c->ssl, .peer = c->peer};
        buf_add_str(&g->bytes, bytes);
        atomic_fetch_add(&all->ref->refs, 1);
        c->ssl = NULL;
        c->given = true;
        loop_post(all->heart->loop, take_gift, g);
    } else if (fd >= 0) {
        close(fd);
    }
    conn_close(c); /* the socket lives on in its copy */
    if (c->given)
        leave_fd(c->server, old);
}

/* ---- their life ---- */

/* Only when the trunk has no room for another connection. */
static void no_room(void *server, struct http_req *req)
{
    http_answer_error(*(struct http_server **)server, http_req_id(req), 503, "overloaded",
                      "Too many connections: try again in a moment.");
}

static enum bh_err edge_init(struct edge *e, struct edges *all, char *ret_why)
{
    struct http_server *heart = all->heart;

    e->all = all;
    e->loop = loop_new();
    if (e->loop == NULL) {
        snprintf(ret_why, WHY_BYTES, "no descriptor is left for the loop of an edge");
        return BH_UNAVAILABLE;
    }
    e->server = http_server_new(e->loop, &heart->limits, no_room, &e->server);
    e->server->of = all;
    e->ledger = ledger_branch(heart->ledger);
    http_server_count(e->server, e->ledger);
    http_server_answer_to(e->server, (const char *const *)heart->names);
    http_server_trust(e->server, heart->proxies, heart->n_proxies);
    if (http_server_listen_like(e->server, heart) == BH_OK)
        return BH_OK;
    snprintf(ret_why, WHY_BYTES, "no descriptor is left for the listener of an edge");
    return BH_UNAVAILABLE;
}

/* A ring's callback needs the trunk, and the trunk the other ring. */
static void on_up_batch(void *edge, struct str batch)
{
    trunk_take_batch(((struct edge *)edge)->heart_end, batch);
}

static void on_down_batch(void *edge, struct str batch)
{
    trunk_take_batch(((struct edge *)edge)->server->carrier, batch);
}

static void *edge_main(void *edge)
{
    loop_run(((struct edge *)edge)->loop);
    return NULL;
}

/* Signals are for the heart's thread. */
static enum bh_err edge_start(struct edge *e, char *ret_why)
{
    sigset_t all, before;
    int err;

    e->up = ring_new(e->all->heart->loop, on_up_batch, e);
    e->down = ring_new(e->loop, on_down_batch, e);
    e->heart_end = heart_open_ring(e->all->heart, e->down);
    (void)edge_open_ring(e->server, e->up, e->all->n);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    err = pthread_create(&e->thread, NULL, edge_main, e);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    e->runs = err == 0;
    if (err != 0)
        snprintf(ret_why, WHY_BYTES, "cannot start a thread for an edge: %s", strerror(err));
    return err == 0 ? BH_OK : BH_UNAVAILABLE;
}

enum bh_err http_server_start_edges(struct http_server *s, size_t n, char *ret_why)
{
    struct edges *all = xcalloc(1, sizeof *all);
    enum bh_err err = BH_OK;

    *all = (struct edges){.heart = s, .n = n, .v = xcalloc(n, sizeof *all->v)};
    all->ref = xcalloc(1, sizeof *all->ref);
    all->ref->refs = 1;
    all->ref->server = s;
    for (size_t i = 0; i < n; i++)
        list_init(&all->v[i].left);
    for (size_t i = 0; i < n && err == BH_OK; i++)
        err = edge_init(&all->v[i], all, ret_why);
    for (size_t i = 0; i < n && err == BH_OK; i++)
        err = edge_start(&all->v[i], ret_why);
    if (err != BH_OK) {
        edges_free(all);
        return err;
    }
    s->edges = all;
    http_server_leave_ports(s);
    log_info(NULL, "edges: %zu threads have the connections", n);
    return BH_OK;
}

size_t http_server_edges(const struct http_server *s)
{
    return s->edges != NULL ? s->edges->n : 0;
}

void edges_count(struct edges *all, int by)
{
    atomic_fetch_add_explicit(&all->sockets, by, memory_order_relaxed);
}

size_t edges_sockets(const struct edges *all)
{
    return (size_t)atomic_load_explicit(&all->sockets, memory_order_relaxed);
}

/* ---- the end ---- */

static void on_look(struct timer *t)
{
    struct edge *e = container_of(t, struct edge, look);

    if (http_server_connections(e->server) == 0 || clock_now_ms(loop_clock(e->loop)) >= e->until_ms)
        loop_stop(e->loop);
    else
        timer_set(loop_clock(e->loop), t, LOOK_MS);
}

static void begin_to_stop(void *edge)
{
    struct edge *e = edge;

    http_server_drain(e->server);
    e->until_ms = clock_now_ms(loop_clock(e->loop)) + LEAVE_MS;
    timer_init(&e->look, on_look);
    timer_set(loop_clock(e->loop), &e->look, 0);
}

static void edge_done(struct edge *e)
{
    if (e->heart_end != NULL) {
        heart_cut_all(e->heart_end);
        trunk_done(e->heart_end);
        free(e->heart_end);
    }
    list_each (&e->left, it, nxt)
        left_end(list_entry(it, struct left_fd, link));
    http_server_free(e->server); /* with the other end of the trunk */
    ring_free(e->down);
    loop_free(e->loop);
    ring_free(e->up);
    ledger_free(e->ledger);
}

void edges_free(struct edges *all)
{
    if (all == NULL)
        return;
    all->ref->server = NULL;
    for (size_t i = 0; i < all->n; i++)
        if (all->v[i].runs)
            loop_post(all->v[i].loop, begin_to_stop, &all->v[i]);
    for (size_t i = 0; i < all->n; i++)
        if (all->v[i].runs)
            pthread_join(all->v[i].thread, NULL);
    for (size_t i = 0; i < all->n; i++)
        edge_done(&all->v[i]);
    ref_drop(all->ref);
    free(all->v);
    free(all);
}
