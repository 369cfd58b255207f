/* http_client.c - design.  (http_client.h has the contract.)
 *
 * The client has two multi handles: one for calls to addresses of our own choosing, one for
 * public_only calls to addresses that strangers chose.  The two must not share a pool of
 * connections.  Otherwise libcurl would reuse a connection to 127.0.0.1, opened for ourselves, for
 * a stranger's URL without opening a socket, and the address is checked when a socket is opened.
 *
 * A file body is read as libcurl asks for it; until a block is there the upload pauses. */
#include "net/http_client.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/addr.h"
#include "net/curl_loop.h"
#include "net/file_reader.h"
#include "net/http_codec.h"
#include "net/smtp.h"
#include "net/work.h"

enum {
    MAX_SPARE = 16,
    MAIL_THREADS = 32,
    DEFAULT_MS = 30000,
    DEFAULT_BODY = 8 << 20,
    ONCE_IDLE_S = 15
};

struct http_client {
    struct loop *loop;               /* borrowed */
    struct curl_loop own, strangers; /* see above */
    struct list calls;
    CURL *spare[MAX_SPARE]; /* owned */
    size_t n_spare;
    struct work_pool *readers; /* owned; of file bodies; NULL: none was needed yet */
    struct work_pool *mailers; /* owned; of mails; NULL: none was needed yet */
};

struct http_call {
    struct list link;
    struct http_client *client; /* borrowed; NULL for http_fetch_now() */
    struct curl_loop *cl;       /* borrowed */
    CURL *easy;                 /* owned; NULL: the call could not be begun */
    struct curl_slist *headers; /* owned */
    struct buf sent;            /* owned; the request's body */
    size_t read;                /* of it, by on_read() */
    struct buf head, body;      /* owned; the answer */
    size_t max_body;
    uint64_t streamed;      /* bytes that went to @on_data */
    http_data_cb *on_data;  /* NULL: the body is gathered */
    struct file_body *file; /* owned; NULL: the body is @sent */
    struct smtp_call *smtp; /* owned; NULL: HTTP, or the mail has ended */
    bool public_only, not_local, refused, too_long, delivering;
    struct timer soon; /* armed: it goes on when the turn ends, or it could not even be begun */
    http_done_cb *done;
    void *ctx;
    char error[CURL_ERROR_SIZE];
};

/* ---- a body that is a file, with something before and behind it ---- */

struct file_body {
    struct buf before, after; /* owned */
    size_t before_at, after_at;
    uint64_t size;            /* of the file */
    struct file_reader *file; /* owned */
};

static void on_file_block(void *ctx)
{
    http_call_resume(ctx);
}

/* NULL: no descriptor is left. */
static struct file_body *file_body_new(struct work_pool *readers, const struct http_file_body *f,
                                       struct http_call *call)
{
    int fd = fcntl(f->fd, F_DUPFD_CLOEXEC, 0);

    if (fd < 0)
        return NULL;
    struct file_body *b = xcalloc(1, sizeof *b);
    b->size = f->size;
    b->file = file_reader_new(readers, fd, 0, f->size, on_file_block, call);
    buf_add_str(&b->before, f->before);
    buf_add_str(&b->after, f->after);
    return b;
}

static void file_body_free(struct file_body *b)
{
    file_reader_free(b->file);
    buf_wipe(&b->before); /* may carry a token */
    buf_wipe(&b->after);
    free(b);
}

static ssize_t from_buf(const struct buf *from, size_t *at, char *p, size_t n)
{
    size_t left = from->n - *at;

    n = n < left ? n : left;
    if (n > 0)
        memcpy(p, from->p + *at, n);
    *at += n;
    return (ssize_t)n;
}

/* As file_reader_take(). */
static ssize_t file_body_read(struct file_body *b, char *p, size_t n)
{
    ssize_t k = from_buf(&b->before, &b->before_at, p, n);

    if (k == 0)
        k = file_reader_take(b->file, p, n);
    return k != 0 ? k : from_buf(&b->after, &b->after_at, p, n);
}

/* ---- how a call ended ---- */

/* Status and headers, as far as they have come. */
static struct http_result call_head(struct http_call *call)
{
    struct http_result r = {.call = call, .body = STR(""), .retry_after_ms = -1};
    long status = 0;

    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    r.status = (int)status;
    return r;
}

static enum bh_err judge(const struct http_call *call, CURLcode code)
{
    long sent = 0;

    if (call->too_long)
        return BH_MALFORMED;
    curl_easy_getinfo(call->easy, CURLINFO_REQUEST_SIZE, &sent);
    if (sent == 0) {
        if (call->refused || code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT)
            return BH_REFUSED;
        return BH_UNAVAILABLE;
    }
    switch (code) {
    case CURLE_UNSUPPORTED_PROTOCOL: /* what libcurl calls an answer without a status line */
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_BAD_CONTENT_ENCODING:
    case CURLE_WRITE_ERROR:
        return BH_MALFORMED;
    default:
        return BH_UNKNOWN;
    }
}

struct str http_result_header(const struct http_result *r, const char *name)
{
    struct str rest = buf_str(&r->call->head), line, want = str_of(name);

    while (str_split(&rest, '\n', &line)) {
        ptrdiff_t colon = str_find(line, ':');
        if (colon > 0 && str_eq_ci(str_make(line.p, (size_t)colon), want))
            return str_trim(str_skip(line, (size_t)colon + 1));
    }
    return STR_NULL;
}

static struct http_result call_result(struct http_call *call, CURLcode code)
{
    struct http_result r = call_head(call);

    if (code == CURLE_OK) {
        r.body = buf_str(&call->body);
        r.retry_after_ms =
            http_retry_after_ms(http_result_header(&r, "Retry-After"),
                                http_result_header(&r, "Date"), clock_os_us(CLOCK_REALTIME) / 1000);
        return r;
    }
    r.err = judge(call, code);
    r.status = 0;
    if (call->too_long)
        r.why = "the answer is longer than allowed";
    else if (call->refused)
        r.why = "the address is not a public one";
    else
        r.why = call->error[0] != '\0' ? call->error : curl_easy_strerror(code);
    return r;
}

/* ---- libcurl asks and tells ---- */

static curl_socket_t on_open_socket(void *ctx, curlsocktype purpose, struct curl_sockaddr *a)
{
    struct http_call *call = ctx;

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
        struct http_result head = call_head(call);
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
    ssize_t k = call->file != NULL ? file_body_read(call->file, p, n * size)
                                   : from_buf(&call->sent, &call->read, p, n * size);

    return k == FILE_READER_WAIT ? CURL_READFUNC_PAUSE : k < 0 ? CURL_READFUNC_ABORT : (size_t)k;
}

/* ---- making a call ---- */

static void add_header(struct http_call *call, const char *line)
{
    struct curl_slist *l = curl_slist_append(call->headers, line);
    if (l == NULL)
        abort();
    call->headers = l;
}

static void set_headers(struct http_call *call, const struct http_fetch *f)
{
    bool typed = false;

    for (const char *const *h = f->headers; h != NULL && *h != NULL; h++) {
        typed |= strncasecmp(*h, "Content-Type:", 13) == 0;
        add_header(call, *h);
    }
    add_header(call, "Expect:"); /* a round trip saved; servers that mind are rare */
    if (!typed)
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
    if (call->file != NULL || (f->once && writes)) {
        /* libcurl repeats a request when a connection it kept dies before an answer, unless it
         * would have to read the body again and cannot: so this body cannot be rewound. Connections
         * idle for long are not taken, so this happens rarely. */
        const struct file_body *file = call->file;
        buf_add_str(&call->sent, file == NULL ? f->body : STR_NULL);
        curl_easy_setopt(call->easy, CURLOPT_POST, 1L);
        curl_easy_setopt(call->easy, CURLOPT_POSTFIELDSIZE_LARGE,
                         (curl_off_t)(file != NULL ? file->before.n + file->size + file->after.n
                                                   : call->sent.n));
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
    curl_easy_pause(container_of(t, struct http_call, soon)->easy, CURLPAUSE_CONT);
}

static struct http_call *call_new(struct http_client *c, CURL *easy, const struct http_fetch *f)
{
    struct http_call *call = xcalloc(1, sizeof *call);

    list_init(&call->link);
    timer_init(&call->soon, on_resume);
    call->client = c;
    call->easy = easy;
    call->on_data = f->on_data;
    call->not_local = f->not_local;
    if (f->file != NULL && c != NULL) {
        if (c->readers == NULL)
            c->readers = work_pool_new(c->loop, 2);
        call->file = file_body_new(c->readers, f->file, call);
    }
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
    if (c != NULL)
        timer_stop(loop_clock(c->loop), &call->soon);
    if (call->smtp != NULL)
        smtp_cancel(call->smtp);
    if (call->easy == NULL) { /* a mail, or never begun: libcurl may not even be loaded */
        free(call);
        return;
    }
    if (call->cl != NULL)
        curl_multi_remove_handle(call->cl->multi, call->easy);
    if (c != NULL && c->n_spare < MAX_SPARE) {
        curl_easy_reset(call->easy);
        c->spare[c->n_spare++] = call->easy;
    } else {
        curl_easy_cleanup(call->easy);
    }
    curl_slist_free_all(call->headers);
    if (call->file != NULL)
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

    curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&call);
    r = call_result(call, code);
    call->delivering = true;
    list_remove(&call->link); /* not under way any more */
    call->done(call->ctx, &r);
    call_free(call);
}

/* ---- mails ---- */

static void on_mail_done(void *ctx, const struct smtp_result *res)
{
    struct http_call *call = ctx;
    struct http_result r = {.err = res->err,
                            .status = res->status,
                            .body = res->reply,
                            .why = res->why,
                            .retry_after_ms = -1,
                            .call = call};

    call->smtp = NULL;
    call->delivering = true;
    list_remove(&call->link);
    call->done(call->ctx, &r);
    call_free(call);
}

static struct http_call *begin_mail(struct http_client *c, const struct http_fetch *f)
{
    struct http_call *call = xcalloc(1, sizeof *call);

    if (c->mailers == NULL)
        c->mailers = work_pool_new(c->loop, MAIL_THREADS);
    list_init(&call->link);
    timer_init(&call->soon, on_resume);
    call->smtp = smtp_send(c->mailers, f, on_mail_done, call);
    if (call->smtp != NULL)
        return call;
    free(call);
    return NULL;
}

/* ---- the interface ---- */

struct http_client *http_client_new(struct loop *loop)
{
    struct http_client *c = xcalloc(1, sizeof *c);

    c->loop = loop;
    list_init(&c->calls);
    return c;
}

void http_client_free(struct http_client *c)
{
    if (c == NULL)
        return;
    list_each (&c->calls, it, next)
        call_free(list_entry(it, struct http_call, link));
    while (c->n_spare > 0)
        curl_easy_cleanup(c->spare[--c->n_spare]);
    curl_loop_done(&c->own);
    curl_loop_done(&c->strangers);
    work_pool_free(c->readers);
    work_pool_free(c->mailers);
    free(c);
}

static const char unavailable[] = "libcurl cannot be used now: no descriptor or memory left";

static void on_stillborn(struct timer *t)
{
    struct http_call *call = container_of(t, struct http_call, soon);
    struct http_result r = {.err = BH_UNAVAILABLE,
                            .body = STR(""),
                            .why = unavailable,
                            .retry_after_ms = -1,
                            .call = call};

    call->delivering = true;
    call->done(call->ctx, &r);
    call_free(call);
}

/* NULL: what libcurl needs is not there now. */
static struct http_call *begin(struct http_client *c, const struct http_fetch *f)
{
    struct http_call *call;
    CURL *easy;

    if (c->strangers.multi ==
        NULL) { /* the first call: libcurl is large, and may never be needed */
        curl_loop_done(&c->own);
        if (!curl_loop_init(&c->own, c->loop, on_done, c) ||
            !curl_loop_init(&c->strangers, c->loop, on_done, c))
            return NULL;
    }
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
    struct http_call *call = f->mail != NULL ? begin_mail(c, f) : begin(c, f);

    if (call == NULL) {
        call = xcalloc(1, sizeof *call);
        list_init(&call->link);
        timer_init(&call->soon, on_stillborn);
        timer_set(loop_clock(c->loop), &call->soon, 0);
    }
    call->client = c;
    call->done = done;
    call->ctx = ctx;
    list_append(&c->calls, &call->link);
    return call;
}

void http_call_resume(struct http_call *call)
{
    if (call->easy != NULL && !timer_is_set(&call->soon))
        timer_set(loop_clock(call->client->loop), &call->soon, 0);
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

    if (easy == NULL)
        return bh_err_why(BH_UNAVAILABLE, ret_why, "%s", unavailable);
    call = call_new(NULL, easy, f);
    r = call_result(call, curl_easy_perform(call->easy));
    if (r.err == BH_OK) {
        *ret_status = r.status;
        buf_add_str(ret_body, r.body);
        if (f->kept != NULL)
            buf_add_str(f->kept, http_result_header(&r, f->keep_header));
    } else {
        snprintf(ret_why, 256, "%s", r.why);
    }
    call_free(call);
    return r.err;
}
