/* conn.c - design.  (conn.h has the contract.)
 *
 * With CURLOPT_CONNECT_ONLY libcurl resolves names, picks the address family, handles proxies and
 * TLS, and then lends us the connection.  The multi interface dials, because such a dial can be
 * aborted at any time.  The easy handle stays in the multi, where libcurl looks up its connection.
 *
 * OpenSSL requires that a refused write is repeated with the same bytes at the same address.  So
 * nothing is appended to @writing while it is being sent; new frames collect in @out.
 *
 * A connector on this machine is dialled without libcurl.  An agent that is started to answer one
 * message starts in three milliseconds without libcurl and in fifteen with it.  For http to a
 * loopback address libcurl adds nothing: no name to resolve, no TLS, and no proxy unless the
 * environment names one. */
#include "conn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- a connector on this machine, without libcurl ---- */

/* The variables libcurl looks at for an http URL. */
static bool has_proxy(void)
{
    static const char *const names[] = {"http_proxy", "all_proxy", "ALL_PROXY"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);
        if (value != NULL && *value != '\0')
            return true;
    }
    return false;
}

/* "http://127.0.0.1:7077/relay": an address in numbers, and a loopback one. */
static bool read_address(const char *url, struct sockaddr_in *ret_at)
{
    struct str rest = str_of(url), host, port = STR("80");
    char text[INET_ADDRSTRLEN];
    uint64_t number;

    if (!str_starts(rest, STR("http://")))
        return false;
    rest = str_skip(rest, 7);
    str_split(&rest, '/', &host);
    ptrdiff_t colon = str_find(host, ':');
    if (colon >= 0) {
        port = str_skip(host, (size_t)colon + 1);
        host.n = (size_t)colon;
    }
    if (host.n >= sizeof text || !str_to_u64(port, &number) || number == 0 || number > 65535)
        return false;
    memcpy(text, host.p, host.n);
    text[host.n] = '\0';
    *ret_at = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)number)};
    return inet_pton(AF_INET, text, &ret_at->sin_addr) == 1 &&
           ntohl(ret_at->sin_addr.s_addr) >> 24 == 127;
}

/* A socket that is connecting to @url; -1: libcurl dials instead, or the dial failed at once and
 * libcurl explains it better. */
static int near_dial(const char *url)
{
    struct sockaddr_in at;
    int fd, yes = 1;

    if (!read_address(url, &at) || has_proxy())
        return -1;
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (connect(fd, (const struct sockaddr *)&at, sizeof at) == 0 || errno == EINPROGRESS)
        return fd;
    close(fd);
    return -1;
}

static enum gwc_io near_dial_step(int fd, char error[CURL_ERROR_SIZE])
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    socklen_t n = sizeof(int);
    int problem = 0;

    if (poll(&p, 1, 0) <= 0)
        return GWC_IO_AGAIN;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &n) < 0)
        problem = errno;
    if (problem == 0)
        return GWC_IO_DONE;
    snprintf(error, CURL_ERROR_SIZE, "%s", strerror(problem));
    return GWC_IO_FAILED;
}

static enum gwc_io outcome(ssize_t n, size_t *ret_n)
{
    *ret_n = n > 0 ? (size_t)n : 0;
    if (n > 0)
        return GWC_IO_DONE;
    return n < 0 && (errno == EAGAIN || errno == EINTR) ? GWC_IO_AGAIN : GWC_IO_FAILED;
}

/* ---- a connection ---- */

/* A program that starts others must not hand them our socket. */
static curl_socket_t open_socket(void *ctx, curlsocktype purpose, struct curl_sockaddr *address)
{
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

bool gwc_conn_dial(struct gwc_conn *c, const char *url, const char *ca_file, int64_t timeout_ms)
{
    gwc_conn_close(c);
    c->curl_error[0] = '\0';
    int fd = near_dial(url);
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
        return near_dial_step(c->fd, c->curl_error);
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
    struct pollfd p[2] = {{.fd = c->fd, .events = POLLOUT}, {.fd = wake_fd, .events = POLLIN}};
    struct curl_waitfd extra = {.fd = wake_fd, .events = CURL_WAIT_POLLIN};
    int n;

    if (c->near)
        poll(p, 2, timeout_ms);
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
        return outcome(send(c->fd, bytes.p, bytes.n, MSG_NOSIGNAL), ret_n);
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
        return outcome(recv(c->fd, p, n, 0), ret_n);
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
