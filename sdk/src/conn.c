/* conn.c - design.  (conn.h has the contract.)
 *
 * CURLOPT_CONNECT_ONLY gives us names, address families, proxies and TLS exactly as every other
 * program on the machine has them, and then the bare connection.  The multi interface is used for
 * the dial, because it can be left at any moment; the easy handle stays inside it afterwards, for
 * that is where libcurl looks the connection up.
 *
 * OpenSSL wants a write that was refused to be repeated with the same bytes at the same address.
 * So what is being written (@writing) is never appended to; new frames collect in @out. */
#include "conn.h"
#include <sys/socket.h>
#include <unistd.h>
#include "near.h"

/* A program that starts others must not hand them our socket. */
static curl_socket_t open_socket(void *ctx, curlsocktype purpose, struct curl_sockaddr *address)
{
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

bool gwc_conn_dial(struct gwc_conn *c, const char *url, const char *ca_file, int64_t timeout_ms)
{
    gwc_conn_close(c);
    c->curl_error[0] = '\0';
    int fd = gwc_near_dial(url);
    if (fd >= 0) {
        c->near = true;
        c->fd = fd;
        return true;
    }
    if (!c->curl_ready)
        c->curl_ready =
            curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK; /* counted, thread-safe */
    if (!c->curl_ready)
        return false; /* where it is loaded late: not now */
    c->multi = curl_multi_init();
    c->easy = curl_easy_init();
    if (c->multi == NULL || c->easy == NULL)
        return false;
    curl_easy_setopt(c->easy, CURLOPT_ERRORBUFFER, c->curl_error);
    curl_easy_setopt(c->easy, CURLOPT_CONNECT_ONLY, 1L);
    curl_easy_setopt(c->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c->easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(c->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(c->easy, CURLOPT_HTTPPROXYTUNNEL, 1L);
    curl_easy_setopt(c->easy, CURLOPT_FRESH_CONNECT, 1L);
    curl_easy_setopt(c->easy, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(c->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)timeout_ms);
    curl_easy_setopt(c->easy, CURLOPT_PROTOCOLS_STR, "http,https");
    if (ca_file != NULL)
        curl_easy_setopt(c->easy, CURLOPT_CAINFO, ca_file);
    return curl_easy_setopt(c->easy, CURLOPT_URL, url) == CURLE_OK &&
           curl_multi_add_handle(c->multi, c->easy) == CURLM_OK;
}

enum gwc_io gwc_conn_dial_step(struct gwc_conn *c)
{
    int running, left;
    CURLMsg *msg;

    if (c->near)
        return gwc_near_dial_step(c->fd, c->curl_error);
    if (curl_multi_perform(c->multi, &running) != CURLM_OK)
        return GWC_IO_FAILED;
    while ((msg = curl_multi_info_read(c->multi, &left)) != NULL) {
        if (msg->msg != CURLMSG_DONE)
            continue;
        if (msg->data.result != CURLE_OK) {
            if (c->curl_error[0] == '\0')
                snprintf(c->curl_error, sizeof c->curl_error, "%s",
                         curl_easy_strerror(msg->data.result));
            return GWC_IO_FAILED;
        }
        if (curl_easy_getinfo(c->easy, CURLINFO_ACTIVESOCKET, &c->fd) != CURLE_OK ||
            c->fd == CURL_SOCKET_BAD)
            return GWC_IO_FAILED;
        return GWC_IO_DONE;
    }
    return GWC_IO_AGAIN;
}

void gwc_conn_dial_wait(struct gwc_conn *c, int wake_fd, int timeout_ms)
{
    struct curl_waitfd extra = {.fd = wake_fd, .events = CURL_WAIT_POLLIN};
    int n;

    if (c->near)
        gwc_near_dial_wait(c->fd, wake_fd, timeout_ms);
    else
        curl_multi_poll(c->multi, &extra, 1, timeout_ms, &n);
}

void gwc_conn_add(struct gwc_conn *c, struct str raw)
{
    buf_add_str(&c->out, raw);
}

void gwc_conn_add_frame(struct gwc_conn *c, enum ws_op op, struct str s)
{
    ws_dial_frame(&c->out, op, s);
}

void gwc_conn_add_close(struct gwc_conn *c, int code)
{
    ws_dial_close(&c->out, code);
}

size_t gwc_conn_unsent(const struct gwc_conn *c)
{
    return c->out.n + c->writing.n - c->written;
}

static enum gwc_io write_some(struct gwc_conn *c, struct str bytes, size_t *ret_n)
{
    if (c->near)
        return gwc_near_write(c->fd, bytes, ret_n);
    CURLcode rc = curl_easy_send(c->easy, bytes.p, bytes.n, ret_n);
    return rc == CURLE_AGAIN ? GWC_IO_AGAIN : rc == CURLE_OK ? GWC_IO_DONE : GWC_IO_FAILED;
}

enum gwc_io gwc_conn_flush(struct gwc_conn *c)
{
    c->want_write = false;
    if (!gwc_conn_is_open(c))
        return GWC_IO_FAILED;
    for (;;) {
        if (c->written == c->writing.n) {
            struct buf empty = c->writing;
            buf_reset(&empty);
            c->writing = c->out;
            c->out = empty;
            c->written = 0;
            if (buf_failed(&c->writing))
                return GWC_IO_FAILED;
            if (c->writing.n == 0)
                return GWC_IO_DONE;
        }
        size_t n = 0;
        struct str rest = str_make(c->writing.p + c->written, c->writing.n - c->written);
        enum gwc_io rc = write_some(c, rest, &n);
        c->written += n;
        c->want_write = rc == GWC_IO_AGAIN;
        if (rc != GWC_IO_DONE)
            return rc;
    }
}

enum gwc_io gwc_conn_read(struct gwc_conn *c, char *p, size_t n, size_t *ret_n)
{
    if (c->near)
        return gwc_near_read(c->fd, p, n, ret_n);
    CURLcode rc = curl_easy_recv(c->easy, p, n, ret_n);
    if (rc == CURLE_AGAIN)
        return GWC_IO_AGAIN;
    return rc == CURLE_OK && *ret_n > 0 ? GWC_IO_DONE : GWC_IO_FAILED;
}

void gwc_conn_close(struct gwc_conn *c)
{
    bool curl_ready = c->curl_ready;

    if (c->near)
        close(c->fd);
    if (c->easy != NULL && c->multi != NULL)
        curl_multi_remove_handle(c->multi, c->easy);
    if (c->easy != NULL)
        curl_easy_cleanup(c->easy);
    if (c->multi != NULL)
        curl_multi_cleanup(c->multi);
    ws_decoder_done(&c->decoder);
    buf_done(&c->head);
    buf_wipe(&c->out); /* may hold an upgrade request, and that a token */
    buf_wipe(&c->writing);
    *c = (struct gwc_conn){.fd = CURL_SOCKET_BAD, .curl_ready = curl_ready};
}

void gwc_conn_done(struct gwc_conn *c)
{
    gwc_conn_close(c);
    if (c->curl_ready)
        curl_global_cleanup();
    c->curl_ready = false;
}
