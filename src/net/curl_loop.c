/* curl_loop.c - libcurl on our loop: loaded late, its transfers, and connections that it opens.
 *
 * Loading: the same list declares the members of the table and names the functions, so a function
 * that is used but not listed does not build.
 *
 * Transfers: we watch the sockets and the timeout that libcurl asks for, and report to libcurl.
 * Names are resolved in threads of libcurl, so nothing here blocks.
 *
 * Connections (tcp_client.h):
 *
 *      CONNECTING --libcurl connected--> OPEN
 *      both --failure, the peer's close, time-out--> ENDED: on_closed() is owed
 *
 * A failure or close only sets the state and arms the timer.  The timer calls on_closed() and frees
 * the client, outside of libcurl and of our callers.  The same timer sends all output of a turn
 * together. */
#include "net/curl_loop.h"

#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/mem.h"
#include "net/tcp_client.h"

/* ---- loading ---- */

static CURLcode load_then_init(long flags);

struct curl_late curl_late = {.curl_global_init_f = load_then_init};

static bool fill(void *lib, const char *name, void *slot)
{
    void *at = dlsym(lib, name);

    if (at == NULL) {
        log_error(NULL, "libcurl.so.4 lacks %s: install libcurl4 7.85 or newer", name);
        return false;
    }
    memcpy(slot, &at, sizeof at); /* from an object pointer to a function pointer */
    return true;
}

/* The list again, as strings: # does not expand the macros of curl_late.h. */
#define FILL(name) &&fill(lib, #name, &late.name##_f)

static bool load(void)
{
    void *lib = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    struct curl_late late;

    if (lib == NULL) {
        log_error(
            NULL,
            "libcurl cannot be loaded: %s (install libcurl4, or raise the limit of open files)",
            dlerror());
        return false;
    }
    if (!(true CURL_LATE_EACH(FILL))) {
        dlclose(lib);
        return false;
    }
    curl_late = late;
    return true;
}

/* Fills the table, once, from any thread.  False, with a sentence in the log, when libcurl cannot
 * be loaded now: not installed, or no descriptor left; the next call tries again. */
static bool load_once(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static bool loaded;
    bool ok;

    pthread_mutex_lock(&mutex);
    if (!loaded)
        loaded = load();
    ok = loaded;
    pthread_mutex_unlock(&mutex);
    return ok;
}

static CURLcode load_then_init(long flags)
{
    return load_once() ? curl_global_init(flags) : CURLE_FAILED_INIT;
}

bool curl_loop_global_init(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static bool done;
    bool ok;

    pthread_mutex_lock(&mutex);
    if (!done)
        done = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
    ok = done;
    pthread_mutex_unlock(&mutex);
    return ok;
}

/* ---- transfers ---- */

struct curl_sock {
    struct curl_loop *cl; /* borrowed */
    curl_socket_t fd;
    struct loop_fd *watch; /* owned */
};

static void deliver(struct curl_loop *cl)
{
    CURLMsg *msg;
    int left;

    cl->delivering = true;
    while ((msg = curl_multi_info_read(cl->multi, &left)) != NULL) {
        if (msg->msg == CURLMSG_DONE)
            cl->done(cl->ctx, msg->easy_handle, msg->data.result);
    }
    cl->delivering = false;
}

static void on_sock(void *ctx, int events)
{
    struct curl_sock *s = ctx;
    struct curl_loop *cl = s->cl; /* libcurl may take @s away in the call below */
    int running, mask = 0;

    mask |= events & LOOP_READ ? CURL_CSELECT_IN : 0;
    mask |= events & LOOP_WRITE ? CURL_CSELECT_OUT : 0;
    curl_multi_socket_action(cl->multi, s->fd, mask, &running);
    deliver(cl);
}

static int want_socket(CURL *easy, curl_socket_t fd, int what, void *ctx, void *sock)
{
    struct curl_loop *cl = ctx;
    struct curl_sock *s = sock;
    int events = (what & CURL_POLL_IN ? LOOP_READ : 0) | (what & CURL_POLL_OUT ? LOOP_WRITE : 0);

    if (what == CURL_POLL_REMOVE) {
        if (s != NULL) {
            loop_fd_free(s->watch);
            free(s);
        }
        curl_multi_assign(cl->multi, fd, NULL);
        return 0;
    }
    if (s != NULL) {
        loop_fd_set(s->watch, events);
        return 0;
    }
    s = xcalloc(1, sizeof *s);
    s->cl = cl;
    s->fd = fd;
    s->watch = loop_fd_add(cl->loop, fd, events, on_sock, s);
    curl_multi_assign(cl->multi, fd, s);
    return 0;
}

static void on_timer(struct timer *t)
{
    struct curl_loop *cl = container_of(t, struct curl_loop, timer);
    int running;

    curl_multi_socket_action(cl->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    deliver(cl);
}

static int want_timer(CURLM *multi, long ms, void *ctx)
{
    struct curl_loop *cl = ctx;

    if (ms < 0)
        timer_stop(loop_clock(cl->loop), &cl->timer);
    else
        timer_set(loop_clock(cl->loop), &cl->timer, ms);
    return 0;
}

bool curl_loop_init(struct curl_loop *cl, struct loop *loop, curl_loop_done_cb *done, void *ctx)
{
    *cl = (struct curl_loop){.loop = loop, .done = done, .ctx = ctx};
    timer_init(&cl->timer, on_timer);
    if (!curl_loop_global_init() || (cl->multi = curl_multi_init()) == NULL)
        return false;
    curl_multi_setopt(cl->multi, CURLMOPT_SOCKETFUNCTION, want_socket);
    curl_multi_setopt(cl->multi, CURLMOPT_SOCKETDATA, cl);
    curl_multi_setopt(cl->multi, CURLMOPT_TIMERFUNCTION, want_timer);
    curl_multi_setopt(cl->multi, CURLMOPT_TIMERDATA, cl);
    curl_multi_setopt(cl->multi, CURLMOPT_MAXCONNECTS, 64L);
    return true;
}

void curl_loop_done(struct curl_loop *cl)
{
    assert(!cl->delivering);
    if (cl->multi == NULL)
        return;
    curl_multi_cleanup(cl->multi);
    cl->multi = NULL;
    timer_stop(loop_clock(cl->loop), &cl->timer);
}

/* ---- connections of bytes ---- */

enum {
    READ_CHUNK = 64 * 1024,
    DEFAULT_CONNECT_MS = 10000,
    DEFAULT_UNSENT = 16 << 20,
};

enum state { CONNECTING, OPEN, ENDED };

struct tcp_client {
    struct loop *loop; /* borrowed */
    struct curl_loop cl;
    CURL *easy;            /* owned; in cl.multi */
    curl_socket_t fd;      /* libcurl's */
    struct loop_fd *watch; /* owned; NULL: on_open() is still to be called */
    struct timer timer;    /* connect; in OPEN "write now", in ENDED "say so now" */
    struct tcp_client_handlers handlers;
    void *ctx;
    enum state state;
    struct buf out; /* owned; unsent bytes */
    size_t max_unsent;
    int depth; /* callbacks running: free later */
    bool dead; /* tcp_client_free() was called meanwhile */
    bool is_imap;
    bool denied; /* the login was refused */
    char why[CURL_ERROR_SIZE];
    char error[CURL_ERROR_SIZE]; /* libcurl's */
};

/* ---- the end ---- */

static void destroy(struct tcp_client *c)
{
    timer_stop(loop_clock(c->loop), &c->timer);
    loop_fd_free(c->watch);
    /* libcurl would send LOGOUT and wait for the answer; on a closed socket it does not wait. */
    if (c->is_imap && c->fd != CURL_SOCKET_BAD)
        shutdown(c->fd, SHUT_RDWR);
    if (c->easy != NULL) {
        curl_multi_remove_handle(c->cl.multi, c->easy);
        curl_easy_cleanup(c->easy);
    }
    curl_loop_done(&c->cl);
    buf_wipe(&c->out);
    free(c);
}

static void enter_ended(struct tcp_client *c, const char *why)
{
    if (c->state == ENDED)
        return;
    snprintf(c->why, sizeof c->why, "%s", why);
    c->state = ENDED;
    loop_fd_free(c->watch);
    c->watch = NULL;
    timer_set(loop_clock(c->loop), &c->timer, 0);
}

void tcp_client_free(struct tcp_client *c)
{
    if (c == NULL)
        return;
    c->dead = true;
    if (c->depth == 0)
        destroy(c);
}

/* Ends what `c->depth++` began: handlers run in between, and afterwards @c may be freed. */
static void end_call(struct tcp_client *c)
{
    assert(c->depth > 0);
    if (--c->depth == 0 && c->dead)
        destroy(c);
}

/* ---- bytes ---- */

static void flush(struct tcp_client *c)
{
    size_t sent = 0, n = 0;
    CURLcode code = CURLE_OK;

    while (sent < c->out.n && code == CURLE_OK) {
        code = curl_easy_send(c->easy, c->out.p + sent, c->out.n - sent, &n);
        sent += code == CURLE_OK ? n : 0;
    }
    buf_consume(&c->out, sent);
    if (code != CURLE_OK && code != CURLE_AGAIN) {
        enter_ended(c, curl_easy_strerror(code));
        return;
    }
    loop_fd_set(c->watch, LOOP_READ | (c->out.n > 0 ? LOOP_WRITE : 0));
}

void tcp_client_send(struct tcp_client *c, struct str bytes)
{
    if (c->state != OPEN || c->watch == NULL)
        return;
    if (c->out.n + bytes.n > c->max_unsent) {
        enter_ended(c, "too much is waiting to be sent");
        return;
    }
    buf_add_str(&c->out, bytes);
    if (!timer_is_set(&c->timer))
        timer_set(loop_clock(c->loop), &c->timer, 0);
}

void tcp_client_flush(struct tcp_client *c)
{
    if (c->state == OPEN && c->watch != NULL)
        flush(c);
}

size_t tcp_client_unsent(const struct tcp_client *c)
{
    return c->out.n;
}

static void read_all(struct tcp_client *c)
{
    static char bytes[READ_CHUNK]; /* one loop thread, and handlers never read */
    CURLcode code = CURLE_OK;
    size_t n;

    while (code == CURLE_OK && c->state == OPEN && !c->dead) {
        n = 0;
        code = curl_easy_recv(c->easy, bytes, sizeof bytes, &n);
        if (code == CURLE_OK && n == 0)
            enter_ended(c, "the other side closed the connection");
        else if (code == CURLE_OK)
            c->handlers.on_data(c->ctx, str_make(bytes, n));
    }
    if (code != CURLE_OK && code != CURLE_AGAIN)
        enter_ended(c, curl_easy_strerror(code));
}

static void on_socket(void *ctx, int events)
{
    struct tcp_client *c = ctx;

    c->depth++;
    if ((events & LOOP_WRITE) != 0)
        flush(c);
    if ((events & LOOP_READ) != 0)
        read_all(c);
    end_call(c);
}

/* ---- connecting ---- */

static void on_connected(void *ctx, CURL *easy, CURLcode code)
{
    struct tcp_client *c = ctx;
    curl_socket_t fd = CURL_SOCKET_BAD;

    if (c->state != CONNECTING)
        return;
    if (code != CURLE_OK) {
        c->denied = code == CURLE_LOGIN_DENIED;
        enter_ended(c, c->error[0] != '\0' ? c->error : curl_easy_strerror(code));
        return;
    }
    curl_easy_getinfo(easy, CURLINFO_ACTIVESOCKET, &fd);
    if (fd == CURL_SOCKET_BAD) {
        enter_ended(c, "the connection was lost");
        return;
    }
    c->state = OPEN;
    c->fd = fd;
    timer_set(loop_clock(c->loop), &c->timer, 0);
}

static void on_client_timer(struct timer *t)
{
    struct tcp_client *c = container_of(t, struct tcp_client, timer);

    c->depth++;
    if (c->state == CONNECTING) {
        enter_ended(c, "the server took too long");
    } else if (c->state == ENDED) {
        c->handlers.on_closed(c->ctx, c->why);
        c->dead = true;
    } else if (c->watch == NULL) {
        /* Told only now: a handler may free us, and our multi was not done with the call. */
        c->watch = loop_fd_add(c->loop, c->fd, LOOP_READ, on_socket, c);
        c->handlers.on_open(c->ctx);
    } else {
        flush(c);
    }
    end_call(c);
}

bool tcp_client_was_denied(const struct tcp_client *c)
{
    return c->denied;
}

void curl_set_mail(CURL *easy, const struct mail_login *to, const char *scheme, const char *helo)
{
    struct buf url = BUF_INIT;
    bool v6 = strchr(to->host, ':') != NULL;

    buf_printf(&url, "%s%s://%s%s%s:%u/%s", scheme, to->tls == MAIL_IMPLICIT ? "s" : "",
               v6 ? "[" : "", to->host, v6 ? "]" : "", to->port, helo != NULL ? helo : "");
    curl_easy_setopt(easy, CURLOPT_URL, buf_z(&url));
    buf_done(&url);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "imap,imaps,smtp,smtps");
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_USE_SSL,
                     (long)(to->tls == MAIL_PLAIN ? CURLUSESSL_NONE : CURLUSESSL_ALL));
    if (to->ca_path != NULL)
        curl_easy_setopt(easy, CURLOPT_CAINFO, to->ca_path);
    if (to->user == NULL)
        return;
    curl_easy_setopt(easy, CURLOPT_USERNAME, to->user);
    if (to->bearer != NULL) {
        /* Otherwise libcurl may choose CRAM-MD5, with an empty password. */
        curl_easy_setopt(easy, CURLOPT_LOGIN_OPTIONS, "AUTH=XOAUTH2");
        curl_easy_setopt(easy, CURLOPT_XOAUTH2_BEARER, to->bearer);
    } else {
        curl_easy_setopt(easy, CURLOPT_PASSWORD, to->password != NULL ? to->password : "");
    }
}

/* libcurl is told of a web server: that is how it is asked for a socket and for TLS. */
static void set_address(CURL *easy, const struct tcp_client_options *opt)
{
    struct buf url = BUF_INIT;
    bool v6 = opt->host != NULL && strchr(opt->host, ':') != NULL;

    if (opt->url != NULL) {
        curl_easy_setopt(easy, CURLOPT_URL, opt->url);
        curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1); /* for ALPN */
        curl_easy_setopt(easy, CURLOPT_HTTPPROXYTUNNEL, 1L);
        return;
    }
    buf_printf(&url, "%s://%s%s%s:%d", opt->tls ? "https" : "http", v6 ? "[" : "",
               opt->host != NULL ? opt->host : "localhost", v6 ? "]" : "",
               opt->host != NULL ? opt->port : 1);
    curl_easy_setopt(easy, CURLOPT_URL, buf_z(&url));
    buf_done(&url);
    if (opt->unix_path != NULL)
        curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, opt->unix_path);
    curl_easy_setopt(easy, CURLOPT_PROXY, ""); /* a web proxy carries no such bytes */
    curl_easy_setopt(easy, CURLOPT_SSL_ENABLE_ALPN, 0L);
}

/* False: libcurl has no descriptor or memory left. */
static bool set_up_curl(struct tcp_client *c, const struct tcp_client_options *opt, long timeout_ms)
{
    if (!curl_loop_init(&c->cl, c->loop, on_connected, c) || (c->easy = curl_easy_init()) == NULL)
        return false;
    curl_easy_setopt(c->easy, CURLOPT_PROTOCOLS_STR, "http,https");
    if (opt->imap != NULL)
        curl_set_mail(c->easy, opt->imap, "imap", NULL);
    else
        set_address(c->easy, opt);
    curl_easy_setopt(c->easy, CURLOPT_CONNECT_ONLY, 1L);
    curl_easy_setopt(c->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c->easy, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(c->easy, CURLOPT_QUICK_EXIT, 1L);
    curl_easy_setopt(c->easy, CURLOPT_CONNECTTIMEOUT_MS, timeout_ms);
    curl_easy_setopt(c->easy, CURLOPT_ERRORBUFFER, c->error);
    if (opt->ca_path != NULL)
        curl_easy_setopt(c->easy, CURLOPT_CAINFO, opt->ca_path);
    if (opt->cert != NULL) {
        struct curl_blob pem = {(void *)opt->cert, strlen(opt->cert), CURL_BLOB_COPY};
        curl_easy_setopt(c->easy, CURLOPT_SSLCERT_BLOB, &pem);
        curl_easy_setopt(c->easy, CURLOPT_SSLKEY_BLOB, &pem);
    }
    return curl_multi_add_handle(c->cl.multi, c->easy) == CURLM_OK;
}

struct tcp_client *tcp_client_open(struct loop *loop, const struct tcp_client_options *opt,
                                   const struct tcp_client_handlers *h, void *ctx)
{
    struct tcp_client *c = xcalloc(1, sizeof *c);
    int64_t timeout = opt->connect_timeout_ms > 0 ? opt->connect_timeout_ms : DEFAULT_CONNECT_MS;

    *c = (struct tcp_client){.loop = loop, .handlers = *h, .ctx = ctx, .fd = CURL_SOCKET_BAD};
    c->is_imap = opt->imap != NULL;
    c->max_unsent = opt->max_unsent != 0 ? opt->max_unsent : DEFAULT_UNSENT;
    timer_init(&c->timer, on_client_timer);
    timer_set(loop_clock(loop), &c->timer, timeout);
    if (!set_up_curl(c, opt, (long)timeout))
        enter_ended(c, "libcurl cannot be used now: no descriptor or memory left");
    return c;
}
