/* A hostile server at the other end of an outgoing WebSocket: the bytes are its answer to the
 * upgrade and everything after it.  "@@" in them is the right Sec-WebSocket-Accept. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/log.h"
#include "net/loop.h"
#include "net/ws_client.h"
#include "net/ws_codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct loop *loop;
static int listener;
static char url[64];
static bool closed;
static size_t messages;

static void on_open(void *ctx)
{
    ws_client_send(*(struct ws_client **)ctx, STR("hello"));
}

static void on_message(void *ctx, struct str message, bool text)
{
    (void)ctx;
    if (message.n > 65536 || (text && !utf8_valid(message)))
        abort();
    messages++;
}

static void on_closed(void *ctx, int code, const char *why)
{
    if (closed || why == NULL || code < 0 || code > 4999)
        abort();
    *(struct ws_client **)ctx = NULL;
    closed = true;
}

static void set_up(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t n = sizeof a;

    log_setup(LOG_ERROR, false);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    loop = loop_new();
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&a, n) != 0 ||
        listen(listener, 16) != 0 || getsockname(listener, (struct sockaddr *)&a, &n) != 0)
        abort();
    snprintf(url, sizeof url, "ws://127.0.0.1:%d/x", ntohs(a.sin_port));
}

/* The upgrade request, once all of it is there. */
static bool read_request(int fd, struct buf *got)
{
    char bytes[4096];
    ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);

    if (n > 0)
        buf_add(got, bytes, (size_t)n);
    return str_contains(buf_str(got), STR("\r\n\r\n"));
}

static void add_accept(struct buf *out, struct buf *request)
{
    const char *key = strstr(buf_z(request), "Sec-WebSocket-Key: ");
    char accept[29];

    if (key == NULL)
        abort();
    ws_accept_key(str_make(key + 19, 24), accept);
    buf_add_z(out, accept);
}

static void answer(int fd, struct buf *request, struct str bytes)
{
    struct buf out = BUF_INIT;

    for (size_t i = 0; i < bytes.n; i++) {
        if (bytes.p[i] == '@' && i + 1 < bytes.n && bytes.p[i + 1] == '@') {
            add_accept(&out, request);
            i++;
        } else {
            buf_add_c(&out, bytes.p[i]);
        }
    }
    (void)!send(fd, out.p, out.n, MSG_NOSIGNAL | MSG_DONTWAIT);
    buf_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct ws_client_handlers handlers = {on_open, on_message, on_closed};
    struct buf request = BUF_INIT;
    struct ws_client *c;
    int fd = -1;

    if (loop == NULL)
        set_up();
    closed = false;
    c = ws_client_open(loop, &(struct ws_client_options){.url = url, .max_message = 65536},
                       &handlers, &c);
    for (int i = 0; i < 2000 && !closed && (fd < 0 || !read_request(fd, &request)); i++) {
        if (fd < 0)
            fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        loop_turn(loop, 1);
    }
    if (fd < 0)
        abort();
    answer(fd, &request, str_make(data, size));
    for (int i = 0; i < 4; i++)
        loop_turn(loop, 0);
    close(fd);
    for (int i = 0; i < 2000 && !closed; i++)
        loop_turn(loop, 5);
    if (!closed)
        abort();
    buf_done(&request);
    return 0;
}
