/* ws_client.c - design.  (ws_client.h has the contract.)
 *
 *      CONNECTING --libcurl connected--> UPGRADING --101--> OPEN --ws_client_close()--> CLOSING
 *      every state --failure, peer's close, time-out--> ENDED: on_closed() is owed
 *
 * libcurl does names, proxies and TLS, and then only lends us the encrypted socket
 * (CONNECT_ONLY).  The handle must stay in its multi for as long as the socket is used.
 *
 * A failure or close only sets the state and arms the timer.  The timer calls on_closed() and frees
 * the client, outside of libcurl and of our callers. */
#include "net/ws_client.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "core/contract.h"
#include "net/curl_loop.h"
#include "net/ws_codec.h"

enum {
    READ_CHUNK = 64 * 1024,
    CLOSE_MS = 5000,
    DEFAULT_CONNECT_MS = 10000,
    DEFAULT_MESSAGE = 16 << 20,
};

enum ws_state { CONNECTING, UPGRADING, OPEN, CLOSING, ENDED };

struct ws_client {
    struct loop *loop; /* borrowed */
    struct curl_loop cl;
    CURL *easy;            /* owned; in cl.multi */
    struct loop_fd *watch; /* owned; once connected */
    struct timer timer;    /* connect, close, or "now" in ENDED */
    struct ws_client_handlers handlers;
    void *ctx;
    enum ws_state state;
    struct buf request; /* owned; the upgrade request */
    struct buf in;      /* owned; the answer's head, then the message being collected */
    struct buf out;     /* owned; unsent bytes */
    struct ws_decoder decoder;
    char key[WS_DIAL_KEY_BYTES];
    int code;  /* for on_closed */
    int depth; /* callbacks running: free later */
    bool dead; /* ws_client_free() was called meanwhile */
    char why[CURL_ERROR_SIZE];
    char error[CURL_ERROR_SIZE]; /* libcurl's */
};

/* ---- the end ---- */

static void destroy(struct ws_client *c)
{
    timer_stop(loop_clock(c->loop), &c->timer);
    loop_fd_free(c->watch);
    if (c->easy != NULL) {
        curl_multi_remove_handle(c->cl.multi, c->easy);
        curl_easy_cleanup(c->easy);
    }
    curl_loop_done(&c->cl);
    ws_decoder_done(&c->decoder);
    buf_wipe(&c->request);
    buf_done(&c->in);
    buf_done(&c->out);
    free(c);
}

static void enter_ended(struct ws_client *c, int code, const char *why)
{
    if (c->state == ENDED)
        return;
    c->code = c->state < OPEN ? 0 : code;
    snprintf(c->why, sizeof c->why, "%s", why);
    c->state = ENDED;
    loop_fd_free(c->watch);
    c->watch = NULL;
    timer_set(loop_clock(c->loop), &c->timer, 0);
}

void ws_client_free(struct ws_client *c)
{
    if (c == NULL)
        return;
    c->dead = true;
    if (c->depth == 0)
        destroy(c);
}

/* Ends what `c->depth++` began: handlers run in between, and afterwards @c may be freed. */
static bool end_call(struct ws_client *c)
{
    assert(c->depth > 0);
    if (--c->depth > 0 || !c->dead)
        return !c->dead;
    destroy(c);
    return false;
}

/* ---- writing ---- */

static void flush(struct ws_client *c)
{
    size_t sent = 0, n = 0;
    CURLcode code = CURLE_OK;

    while (sent < c->out.n && code == CURLE_OK) {
        code = curl_easy_send(c->easy, c->out.p + sent, c->out.n - sent, &n);
        sent += code == CURLE_OK ? n : 0;
    }
    buf_consume(&c->out, sent);
    if (code != CURLE_OK && code != CURLE_AGAIN) {
        enter_ended(c, CLOSE_CODE_LOST, curl_easy_strerror(code));
        return;
    }
    if (c->out.n == 0)
        buf_done(&c->out);
    loop_fd_set(c->watch, LOOP_READ | (c->out.n > 0 ? LOOP_WRITE : 0));
}

static void flush_frame(struct ws_client *c)
{
    if (buf_failed(&c->out))
        enter_ended(c, CLOSE_CODE_LOST, "too much is waiting to be sent");
    else
        flush(c);
}

static void send_frame(struct ws_client *c, enum ws_op op, struct str payload)
{
    ws_dial_frame(&c->out, op, payload);
    flush_frame(c);
}

static void send_close(struct ws_client *c, int code)
{
    ws_dial_close(&c->out, code);
    flush_frame(c);
}

void ws_client_send(struct ws_client *c, struct str text)
{
    if (c->state == OPEN)
        send_frame(c, WS_TEXT, text);
}

void ws_client_close(struct ws_client *c, int code)
{
    if (c->state == CLOSING || c->state == ENDED)
        return;
    if (c->state != OPEN) {
        enter_ended(c, 0, "closed before it was open");
        return;
    }
    c->state = CLOSING;
    c->code = code;
    timer_set(loop_clock(c->loop), &c->timer, CLOSE_MS);
    send_close(c, code);
}

/* ---- reading ---- */

static void on_peer_close(struct ws_client *c, const struct ws_decoded *it)
{
    char why[CURL_ERROR_SIZE];
    int code = c->state == CLOSING ? c->code : it->code;

    snprintf(why, sizeof why, "closed by the peer: %.*s", STR_FMT(it->bytes));
    if (c->state == OPEN)
        send_close(c, it->code);
    enter_ended(c, code, why);
}

static void hand_on(struct ws_client *c, struct str message, bool text)
{
    if (!text || utf8_valid(message)) {
        c->handlers.on_message(c->ctx, message, text);
        return;
    }
    ws_client_close(c, CLOSE_CODE_NOT_UTF8);
    enter_ended(c, CLOSE_CODE_NOT_UTF8, "the peer's text is not UTF-8");
}

/* A piece of a message: hand it on if it is whole, else collect. */
static void on_piece(struct ws_client *c, const struct ws_decoded *it)
{
    if (c->in.n == 0 && it->end) {
        hand_on(c, it->bytes, it->text);
        return;
    }
    buf_add_str(&c->in, it->bytes);
    if (!it->end)
        return;
    struct buf whole = c->in;
    c->in = BUF_INIT;
    hand_on(c, buf_str(&whole), it->text);
    buf_done(&whole);
}

static void take_item(struct ws_client *c, const struct ws_decoded *it)
{
    switch (it->item) {
    case WS_ITEM_DATA:
        if (c->state == OPEN)
            on_piece(c, it);
        break;
    case WS_ITEM_PING:
        if (c->state == OPEN)
            send_frame(c, WS_PONG, it->bytes);
        break;
    case WS_ITEM_CLOSE:
        on_peer_close(c, it);
        break;
    case WS_ITEM_BAD:
        ws_client_close(c, it->code);
        enter_ended(c, it->code, "the peer violates the WebSocket protocol");
        break;
    case WS_ITEM_PONG:
    case WS_ITEM_MORE:
        break;
    }
}

static void take_frames(struct ws_client *c, char *p, size_t n)
{
    struct ws_decoded it;

    do {
        it = ws_decode(&c->decoder, &p, &n);
        take_item(c, &it);
    } while (it.item != WS_ITEM_MORE && c->state != ENDED && !c->dead);
}

/* NULL when the server agrees. */
static const char *upgrade_fault(const struct ws_client *c, struct str head, char *text,
                                 size_t text_n)
{
    struct str line = STR_NULL;
    int status;

    if (ws_dial_accepted(head, str_of(c->key), &status))
        return NULL;
    str_split(&head, '\n', &line);
    line = str_trim(line);
    if (status == 0)
        return "the server's answer to the upgrade is not a WebSocket's";
    snprintf(text, text_n, "the server answered \"%.*s\"", line.n < 100 ? (int)line.n : 100,
             line.p);
    return text;
}

static void take_head(struct ws_client *c, const char *p, size_t n)
{
    char text[160];
    struct buf all;
    const char *fault;

    buf_add(&c->in, p, n);
    size_t head_n = ws_dial_head_bytes(buf_str(&c->in));
    if (head_n == 0) {
        if (c->in.n > WS_DIAL_HEAD_MAX)
            enter_ended(c, 0, "the server's answer to the upgrade is too long");
        return;
    }
    all = c->in;
    c->in = BUF_INIT;
    fault = upgrade_fault(c, str_make(all.p, head_n), text, sizeof text);
    if (fault != NULL) {
        enter_ended(c, 0, fault);
    } else {
        c->state = OPEN;
        timer_stop(loop_clock(c->loop), &c->timer);
        c->handlers.on_open(c->ctx);
        if (all.n > head_n && c->state != ENDED && !c->dead)
            take_frames(c, all.p + head_n, all.n - head_n);
    }
    buf_done(&all);
}

static void read_all(struct ws_client *c)
{
    static char bytes[READ_CHUNK]; /* one loop thread, and handlers never read */
    CURLcode code = CURLE_OK;
    size_t n;

    while (code == CURLE_OK && c->state != ENDED && !c->dead) {
        n = 0;
        code = curl_easy_recv(c->easy, bytes, sizeof bytes, &n);
        if (code == CURLE_OK && n == 0)
            enter_ended(c, c->state == CLOSING ? c->code : CLOSE_CODE_LOST,
                        "the connection was lost");
        else if (code == CURLE_OK && c->state == UPGRADING)
            take_head(c, bytes, n);
        else if (code == CURLE_OK)
            take_frames(c, bytes, n);
    }
    if (code != CURLE_OK && code != CURLE_AGAIN)
        enter_ended(c, c->state == CLOSING ? c->code : CLOSE_CODE_LOST, curl_easy_strerror(code));
}

static void on_socket(void *ctx, int events)
{
    struct ws_client *c = ctx;

    c->depth++;
    if (events & LOOP_WRITE)
        flush(c);
    if (events & LOOP_READ)
        read_all(c);
    end_call(c);
}

/* ---- connecting ---- */

static void on_connected(void *ctx, CURL *easy, CURLcode code)
{
    struct ws_client *c = ctx;
    curl_socket_t fd = CURL_SOCKET_BAD;

    if (c->state != CONNECTING)
        return;
    if (code != CURLE_OK) {
        enter_ended(c, 0, c->error[0] != '\0' ? c->error : curl_easy_strerror(code));
        return;
    }
    curl_easy_getinfo(easy, CURLINFO_ACTIVESOCKET, &fd);
    if (fd == CURL_SOCKET_BAD) {
        enter_ended(c, 0, "the connection was lost");
        return;
    }
    c->state = UPGRADING;
    c->watch = loop_fd_add(c->loop, fd, LOOP_READ, on_socket, c);
    buf_add_str(&c->out, buf_str(&c->request));
    buf_wipe(&c->request);
    flush(c);
}

static void on_timer(struct timer *t)
{
    struct ws_client *c = container_of(t, struct ws_client, timer);

    if (c->state == CLOSING) {
        enter_ended(c, c->code, "the peer did not answer our close");
        return;
    }
    if (c->state != ENDED) {
        enter_ended(c, 0, "the server took too long");
        return;
    }
    c->depth++;
    c->handlers.on_closed(c->ctx, c->code, c->why);
    c->dead = true;
    end_call(c);
}

/* "wss://host:1/a?b#c" -> "https://host:1/a?b#c", the authority and the target.  False: not a URL
 * of ours. */
static bool split_url(struct str url, struct buf *ret_http, struct str *ret_host,
                      struct str *ret_target)
{
    bool secure = str_starts(url, STR("wss://"));
    struct str rest = str_skip(url, secure ? 6 : 5);
    size_t n = 0;
    ptrdiff_t mark;

    if (!secure && !str_starts(url, STR("ws://")))
        return false;
    while (n < rest.n && rest.p[n] != '/' && rest.p[n] != '?' && rest.p[n] != '#')
        n++;
    *ret_host = str_make(rest.p, n);
    *ret_target = str_skip(rest, n);
    mark = str_find(*ret_target, '#');
    if (mark >= 0)
        ret_target->n = (size_t)mark;
    mark = str_find(*ret_host, '@');
    if (mark >= 0)
        *ret_host = str_skip(*ret_host, (size_t)mark + 1);
    buf_add_z(ret_http, secure ? "https://" : "http://");
    buf_add_str(ret_http, rest);
    for (size_t i = 0; i < url.n; i++) {
        if ((unsigned char)url.p[i] <= ' ' || url.p[i] == 0x7f)
            return false; /* nothing that could end our request line */
    }
    return ret_host->n > 0;
}

/* False: libcurl has no descriptor or memory left. */
static bool set_up_curl(struct ws_client *c, const char *url, const char *ca_path, long timeout_ms)
{
    if (!curl_loop_init(&c->cl, c->loop, on_connected, c) || (c->easy = curl_easy_init()) == NULL)
        return false;
    curl_easy_setopt(c->easy, CURLOPT_URL, url);
    curl_easy_setopt(c->easy, CURLOPT_CONNECT_ONLY, 1L);
    curl_easy_setopt(c->easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1); /* for ALPN */
    curl_easy_setopt(c->easy, CURLOPT_HTTPPROXYTUNNEL, 1L);
    curl_easy_setopt(c->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c->easy, CURLOPT_QUICK_EXIT, 1L);
    curl_easy_setopt(c->easy, CURLOPT_CONNECTTIMEOUT_MS, timeout_ms);
    curl_easy_setopt(c->easy, CURLOPT_ERRORBUFFER, c->error);
    if (ca_path != NULL)
        curl_easy_setopt(c->easy, CURLOPT_CAINFO, ca_path);
    return curl_multi_add_handle(c->cl.multi, c->easy) == CURLM_OK;
}

struct ws_client *ws_client_open(struct loop *loop, const struct ws_client_options *opt,
                                 const struct ws_client_handlers *h, void *ctx)
{
    struct ws_client *c = xcalloc(1, sizeof *c);
    int64_t timeout = opt->connect_timeout_ms > 0 ? opt->connect_timeout_ms : DEFAULT_CONNECT_MS;
    struct str host, target;
    struct buf url = BUF_INIT;

    c->loop = loop;
    c->handlers = *h;
    c->ctx = ctx;
    timer_init(&c->timer, on_timer);
    ws_decoder_init(&c->decoder, false, opt->max_message != 0 ? opt->max_message : DEFAULT_MESSAGE);
    timer_set(loop_clock(loop), &c->timer, timeout);
    if (split_url(str_of(opt->url), &url, &host, &target)) {
        ws_dial_request(&c->request,
                        &(struct ws_dial){.target = target,
                                          .host = host,
                                          .user_agent = STR("bellhop/" BELLHOP_VERSION),
                                          .headers = opt->headers},
                        c->key);
        if (!set_up_curl(c, buf_z(&url), opt->ca_path, (long)timeout))
            enter_ended(c, 0, "libcurl cannot be used now: no descriptor or memory left");
    } else {
        enter_ended(c, 0, "the address is not a ws:// or wss:// URL");
    }
    buf_done(&url);
    return c;
}
