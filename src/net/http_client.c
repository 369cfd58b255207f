/* http_client.c - design.  (http_client.h has the contract.)
 *
 * Two multi handles: calls to addresses of our own choosing, and public_only calls to addresses
 * others chose.  They must not share a pool of connections, or a connection to 127.0.0.1 that we
 * opened for ourselves would be reused for a stranger's URL without asking for a new socket - and
 * the socket is where the address is checked. */
#include "net/http_client.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/addr.h"
#include "net/file_body.h"
#include "net/http_call.h"

enum { MAX_SPARE = 16, DEFAULT_MS = 30000, DEFAULT_BODY = 8 << 20, ONCE_IDLE_S = 15 };

struct http_client {
    struct loop *loop; /* borrowed */
    bool started;      /* by the first call: libcurl is large, and may never be needed */
    struct curl_loop own, strangers; /* see above */
    struct list calls;
    CURL *spare[MAX_SPARE]; /* owned */
    size_t n_spare;
    struct work_pool *readers; /* owned; of file bodies; NULL: none was needed yet */
};

/* ---- libcurl asks and tells ---- */

static curl_socket_t on_open_socket(void *ctx, curlsocktype purpose, struct curl_sockaddr *a)
{
    struct http_call *call = ctx;

    (void)purpose;
    struct addr to = addr_of(&a->addr);
    if ((call->public_only && addr_is_private(&to)) ||
        (call->not_local && addr_is_local_link(&to))) {
        call->refused = true;
        return CURL_SOCKET_BAD;
    }
    return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

static size_t on_head(char *p, size_t size, size_t n, void *ctx)
{
    struct http_call *call = ctx;

    n *= size;
    if (str_starts(str_make(p, n), STR("HTTP/")))
        buf_reset(&call->head); /* the answer after "100 Continue" */
    if (call->head.n + n > 256 * 1024)
        return 0;
    buf_add(&call->head, p, n);
    return n;
}

/* A piece for whoever takes the answer as it comes. */
static size_t pass_on(struct http_call *call, const struct http_result *head, struct str bytes)
{
    if (bytes.n > call->max_body - call->streamed) {
        call->too_long = true;
        return 0;
    }
    switch (call->on_data(call->ctx, head, bytes)) {
    case HTTP_TOOK:
        call->streamed += bytes.n;
        return bytes.n;
    case HTTP_LATER:
        return CURL_WRITEFUNC_PAUSE;
    case HTTP_STOP:
        break;
    }
    return 0;
}

static size_t on_body(char *p, size_t size, size_t n, void *ctx)
{
    struct http_call *call = ctx;

    n *= size;
    if (call->on_data != NULL) {
        struct http_result head = http_call_head(call);
        if (head.status >= 200 && head.status < 300)
            return pass_on(call, &head, str_make(p, n));
        if (call->body.n + n > 64 * 1024)
            return n; /* why it refuses need not be long */
    }
    if (n > call->max_body - call->body.n) {
        call->too_long = true;
        return 0;
    }
    buf_add(&call->body, p, n);
    return n;
}

static size_t on_read(char *p, size_t size, size_t n, void *ctx)
{
    struct http_call *call = ctx;
    size_t left = call->sent.n - call->read;

    if (call->file != NULL) {
        ssize_t k = file_body_read(call->file, p, n * size);
        return k == FILE_BODY_WAIT ? CURL_READFUNC_PAUSE : k < 0 ? CURL_READFUNC_ABORT : (size_t)k;
    }
    n = n * size < left ? n * size : left;
    if (n > 0)
        memcpy(p, call->sent.p + call->read, n);
    call->read += n;
    return n;
}

/* ---- making a call ---- */

static bool has_header(const char *const *headers, const char *name)
{
    size_t n = strlen(name);

    for (; headers != NULL && *headers != NULL; headers++) {
        if (strncasecmp(*headers, name, n) == 0 && (*headers)[n] == ':')
            return true;
    }
    return false;
}

static void add_header(struct http_call *call, const char *line)
{
    struct curl_slist *l = curl_slist_append(call->headers, line);
    if (l == NULL)
        abort();
    call->headers = l;
}

static void set_headers(struct http_call *call, const struct http_fetch *f)
{
    for (const char *const *h = f->headers; h != NULL && *h != NULL; h++)
        add_header(call, *h);
    add_header(call, "Expect:"); /* a round trip saved; servers that mind are rare */
    if (!has_header(f->headers, "Content-Type"))
        add_header(call, "Content-Type:"); /* rather none than libcurl's guess */
    curl_easy_setopt(call->easy, CURLOPT_HTTPHEADER, call->headers);
}

static void set_method(struct http_call *call, const struct http_fetch *f)
{
    const char *method = f->method != NULL ? f->method : "GET";
    bool writes =
        strcmp(method, "POST") == 0 || strcmp(method, "PUT") == 0 || strcmp(method, "PATCH") == 0;

    if (strcmp(method, "HEAD") == 0) {
        curl_easy_setopt(call->easy, CURLOPT_NOBODY, 1L);
        return;
    }
    if (f->file != NULL && call->file != NULL) {
        curl_easy_setopt(call->easy, CURLOPT_POST, 1L);
        curl_easy_setopt(call->easy, CURLOPT_POSTFIELDSIZE_LARGE,
                         (curl_off_t)file_body_size(call->file));
        curl_easy_setopt(call->easy, CURLOPT_READFUNCTION, on_read);
        curl_easy_setopt(call->easy, CURLOPT_READDATA, call);
        curl_easy_setopt(call->easy, CURLOPT_MAXAGE_CONN, (long)ONCE_IDLE_S);
    } else if (f->once && writes) {
        /* libcurl repeats a request when a connection it kept dies before an answer, unless it
         * would have to read the body again and cannot: so this body cannot be rewound. Connections
         * idle for long are not taken, so this happens rarely. */
        buf_add_str(&call->sent, f->body);
        curl_easy_setopt(call->easy, CURLOPT_POST, 1L);
        curl_easy_setopt(call->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->sent.n);
        curl_easy_setopt(call->easy, CURLOPT_READFUNCTION, on_read);
        curl_easy_setopt(call->easy, CURLOPT_READDATA, call);
        curl_easy_setopt(call->easy, CURLOPT_MAXAGE_CONN, (long)ONCE_IDLE_S);
    } else if (f->body.p != NULL || writes) {
        buf_add_str(&call->sent, f->body);
        curl_easy_setopt(call->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->sent.n);
        curl_easy_setopt(call->easy, CURLOPT_POSTFIELDS, call->sent.n > 0 ? call->sent.p : "");
    }
    curl_easy_setopt(call->easy, CURLOPT_CUSTOMREQUEST, method);
}

static void set_limits(struct http_call *call, const struct http_fetch *f)
{
    CURL *e = call->easy;
    long ms = f->timeout_ms > 0 ? (long)f->timeout_ms : DEFAULT_MS;

    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_QUICK_EXIT, 1L); /* a cancelled look-up must not block the loop */
    curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, ms);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, ms < 10000 ? ms : 10000L);
    if (call->public_only)
        curl_easy_setopt(e, CURLOPT_PROXY, ""); /* a proxy would hide the address */
    if (f->unix_socket != NULL)
        curl_easy_setopt(e, CURLOPT_UNIX_SOCKET_PATH, f->unix_socket);
    if (f->ca_path != NULL)
        curl_easy_setopt(e, CURLOPT_CAINFO, f->ca_path);
    curl_easy_setopt(e, CURLOPT_OPENSOCKETFUNCTION, on_open_socket);
    curl_easy_setopt(e, CURLOPT_OPENSOCKETDATA, call);
}

static void on_resume(struct timer *t)
{
    curl_easy_pause(container_of(t, struct http_call, resume)->easy, CURLPAUSE_CONT);
}

static void on_file_block(void *ctx)
{
    http_call_resume(ctx);
}

static void set_file(struct http_client *c, struct http_call *call, const struct http_fetch *f)
{
    if (f->file == NULL || c == NULL)
        return;
    if (c->readers == NULL)
        c->readers = work_pool_new(c->loop, 2);
    call->file = file_body_new(c->readers, f->file, on_file_block, call);
}

static struct http_call *call_new(struct http_client *c, CURL *easy, const struct http_fetch *f)
{
    struct http_call *call = xcalloc(1, sizeof *call);

    list_init(&call->link);
    timer_init(&call->resume, on_resume);
    call->client = c;
    call->easy = easy;
    call->on_data = f->on_data;
    call->not_local = f->not_local;
    set_file(c, call, f);
    call->max_body = f->max_body != 0 ? f->max_body : DEFAULT_BODY;
    call->public_only = f->public_only && f->unix_socket == NULL;
    curl_easy_setopt(easy, CURLOPT_PRIVATE, call);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, call->error);
    curl_easy_setopt(easy, CURLOPT_URL, f->url);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "bellhop/" BELLHOP_VERSION);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_head);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, call);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, call);
    set_limits(call, f);
    set_method(call, f);
    set_headers(call, f);
    return call;
}

static void call_free(struct http_call *call)
{
    struct http_client *c = call->client;

    list_remove(&call->link);
    if (call->easy == NULL) {
        timer_stop(loop_clock(c->loop), &call->stillborn);
        free(call);
        return;
    }
    if (c != NULL)
        timer_stop(loop_clock(c->loop), &call->resume);
    if (call->cl != NULL)
        curl_multi_remove_handle(call->cl->multi, call->easy);
    if (c != NULL && c->n_spare < MAX_SPARE) {
        curl_easy_reset(call->easy);
        c->spare[c->n_spare++] = call->easy;
    } else {
        curl_easy_cleanup(call->easy);
    }
    curl_slist_free_all(call->headers);
    file_body_free(call->file);
    buf_wipe(&call->sent); /* may carry a token */
    buf_done(&call->head);
    buf_done(&call->body);
    free(call);
}

static void on_done(void *ctx, CURL *easy, CURLcode code)
{
    struct http_call *call = NULL;
    struct http_result r;

    (void)ctx;
    curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&call);
    r = http_call_result(call, code);
    call->delivering = true;
    list_remove(&call->link); /* not under way any more */
    call->done(call->ctx, &r);
    call_free(call);
}

/* ---- the interface ---- */

struct http_client *http_client_new(struct loop *loop)
{
    struct http_client *c = xcalloc(1, sizeof *c);

    c->loop = loop;
    list_init(&c->calls);
    return c;
}

static bool start(struct http_client *c)
{
    if (c->started)
        return true;
    c->started = curl_loop_init(&c->own, c->loop, on_done, c) &&
                 curl_loop_init(&c->strangers, c->loop, on_done, c);
    if (!c->started) {
        curl_loop_done(&c->own);
        curl_loop_done(&c->strangers);
    }
    return c->started;
}

void http_client_free(struct http_client *c)
{
    if (c == NULL)
        return;
    list_each (&c->calls, it, next)
        call_free(list_entry(it, struct http_call, link));
    while (c->n_spare > 0)
        curl_easy_cleanup(c->spare[--c->n_spare]);
    if (c->started) {
        curl_loop_done(&c->own);
        curl_loop_done(&c->strangers);
    }
    work_pool_free(c->readers);
    free(c);
}

static const char unavailable[] = "libcurl cannot be used now: no descriptor or memory left";

static void on_stillborn(struct timer *t)
{
    struct http_call *call = container_of(t, struct http_call, stillborn);
    struct http_result r = {.err = BH_UNAVAILABLE,
                            .body = STR(""),
                            .why = unavailable,
                            .retry_after_ms = -1,
                            .call = call};

    call->delivering = true;
    call->done(call->ctx, &r);
    call_free(call);
}

static struct http_call *stillborn_new(struct http_client *c)
{
    struct http_call *call = xcalloc(1, sizeof *call);

    list_init(&call->link);
    timer_init(&call->stillborn, on_stillborn);
    timer_set(loop_clock(c->loop), &call->stillborn, 0);
    return call;
}

/* NULL: what libcurl needs is not there now. */
static struct http_call *begin(struct http_client *c, const struct http_fetch *f)
{
    struct http_call *call;
    CURL *easy;

    if (!start(c))
        return NULL;
    easy = c->n_spare > 0 ? c->spare[--c->n_spare] : curl_easy_init();
    if (easy == NULL)
        return NULL;
    call = call_new(c, easy, f);
    if (f->file != NULL && call->file == NULL) { /* no descriptor is left */
        call_free(call);
        return NULL;
    }
    call->cl = call->public_only ? &c->strangers : &c->own;
    if (curl_multi_add_handle(call->cl->multi, easy) == CURLM_OK)
        return call;
    call->cl = NULL;
    call_free(call);
    return NULL;
}

struct http_call *http_fetch(struct http_client *c, const struct http_fetch *f, http_done_cb *done,
                             void *ctx)
{
    struct http_call *call = begin(c, f);

    if (call == NULL)
        call = stillborn_new(c);
    call->client = c;
    call->done = done;
    call->ctx = ctx;
    list_append(&c->calls, &call->link);
    return call;
}

void http_call_resume(struct http_call *call)
{
    if (call->easy != NULL && !timer_is_set(&call->resume))
        timer_set(loop_clock(call->client->loop), &call->resume, 0);
}

void http_cancel(struct http_call **call)
{
    struct http_call *old = *call;

    *call = NULL;
    if (old != NULL && !old->delivering) /* inside its own callback it ends by itself */
        call_free(old);
}

enum bh_err http_fetch_now(const struct http_fetch *f, int *ret_status, struct buf *ret_body,
                           char *ret_why)
{
    struct http_call *call;
    struct http_result r;
    CURL *easy = curl_loop_global_init() ? curl_easy_init() : NULL;

    if (easy == NULL) {
        snprintf(ret_why, 256, "%s", unavailable);
        return BH_UNAVAILABLE;
    }
    call = call_new(NULL, easy, f);
    r = http_call_result(call, curl_easy_perform(call->easy));
    if (r.err == BH_OK) {
        *ret_status = r.status;
        buf_add_str(ret_body, r.body);
    } else {
        snprintf(ret_why, 256, "%s", r.why);
    }
    call_free(call);
    return r.err;
}
