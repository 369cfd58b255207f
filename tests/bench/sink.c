/* sink.c - the ceiling: a server that speaks the relay's wire and only copies bytes.
 *
 *      POST, gateway connected    the text goes into a ready-made frame for that gateway; the 200
 *                                 is written when the ack comes back
 *      POST, gateway away         200 at once, and the bot's counter goes up
 *      gateway says hello         descriptor, then as many ready-made frames as were counted
 *
 * Nothing is checked, parsed, kept or made durable: no JSON, no token, no disk, no limits.  What it
 * reaches is what the client and the machine allow, not what a correct server could reach.
 *
 *      sink [port]     0 or nothing: a free port; prints "port N" */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include "load.h"

#define LIT(s) (s), sizeof(s) - 1
#define MAX_FD 32768
#define MAX_BOTS 20000
#define POUR_BYTES (1u << 18)

static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                             "Content-Length: 25\r\n\r\n{\"id\":\"0000000000000000\"}";
static const char upgrade[] = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                              "Connection: Upgrade\r\n"
                              "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
static const char descriptor[] =
    "{\"type\":\"descriptor\",\"descriptor\":{\"contract_version\":1,\"platform\":\"web\","
    "\"label\":\"Web\",\"max_message_length\":16000,\"supports_draft_streaming\":false,"
    "\"supports_edit\":true,\"supports_threads\":false,\"markdown_dialect\":\"markdown\","
    "\"len_unit\":\"chars\"}}\n";
static const char frame_head[] =
    "{\"type\":\"inbound\",\"bufferId\":\"b0000000000\",\"event\":{\"text\":\"";
static const char frame_tail[] =
    "\",\"message_type\":\"text\",\"message_id\":\"0000010000000001\",\"bot_id\":\"b00000\","
    "\"source\":{\"platform\":\"web\",\"chat_id\":\"0123456789abcdef0123456789abcdef\","
    "\"chat_type\":\"dm\",\"chat_name\":\"visitor 0123\","
    "\"user_id\":\"0123456789abcdef0123456789abcdef\",\"user_name\":\"visitor 0123\","
    "\"thread_id\":null,\"chat_topic\":null,\"message_id\":\"0000010000000001\"}}}\n";

struct peer { /* what sits behind one file descriptor */
    bool is_gateway, is_dirty;
    uint32_t bot;
    struct bytes in, out;
    struct {
        int *fd;
        size_t first, n, cap;
    } waiting; /* gateway: who gets a 200 per ack, a ring */
};

static struct peer *peers[MAX_FD];
static struct {
    int gateway_fd;
    uint64_t kept;
} bots[MAX_BOTS];
static int epoll, dirty[MAX_FD];
static size_t n_dirty;

static void watch(int fd, int how, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.fd = fd};
    if (epoll_ctl(epoll, how, fd, &ev) != 0)
        die("epoll_ctl: %s", strerror(errno));
}

static void drop(int fd)
{
    struct peer *p = peers[fd];

    if (p->is_gateway && bots[p->bot].gateway_fd == fd)
        bots[p->bot].gateway_fd = 0;
    free(p->in.p);
    free(p->out.p);
    free(p->waiting.fd);
    free(p);
    peers[fd] = NULL;
    close(fd);
}

static void ws_head(struct bytes *out, uint8_t opcode, size_t n)
{
    uint8_t head[10] = {(uint8_t)(0x80 | opcode), (uint8_t)n, (uint8_t)(n >> 8), (uint8_t)n};
    size_t head_n = 2;

    if (n >= 65536) {
        head[1] = 127;
        for (int i = 0; i < 8; i++)
            head[2 + i] = (uint8_t)((uint64_t)n >> 8 * (7 - i));
        head_n = 10;
    } else if (n > 125) {
        head[1] = 126;
        head_n = 4;
    }
    bytes_add(out, head, head_n);
}

static void mark_dirty(int fd)
{
    if (!peers[fd]->is_dirty)
        dirty[n_dirty++] = fd;
    peers[fd]->is_dirty = true;
}

/* One prepared message after the other, while the counter lasts and the buffer is short. */
static void pour(struct peer *p)
{
    static const char text[] =
        "0000000000000000 hello, is anybody there? I have a question about my order.";
    const size_t one = sizeof frame_head + sizeof text + sizeof frame_tail - 3;

    while (bots[p->bot].kept > 0 && p->out.n < POUR_BYTES) {
        size_t n = POUR_BYTES / one;
        if (n > bots[p->bot].kept)
            n = bots[p->bot].kept;
        bots[p->bot].kept -= n;
        ws_head(&p->out, 1, n * one);
        while (n-- > 0) {
            bytes_add(&p->out, LIT(frame_head));
            bytes_add(&p->out, LIT(text));
            bytes_add(&p->out, LIT(frame_tail));
        }
    }
}

static void flush_one(int fd)
{
    struct peer *p = peers[fd];

    for (;;) {
        if (p->is_gateway)
            pour(p);
        if (p->out.n == 0)
            break;
        ssize_t n = send(fd, p->out.p, p->out.n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0)
            return; /* the read side notices */
        bytes_drop(&p->out, (size_t)n);
    }
    watch(fd, EPOLL_CTL_MOD, p->out.n > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* Sends what the turn collected; a gateway's events of one turn leave in one write. */
static void flush_dirty(void)
{
    for (size_t i = 0; i < n_dirty; i++) {
        struct peer *p = peers[dirty[i]];
        if (p == NULL)
            continue;
        p->is_dirty = false;
        ssize_t n = p->out.n == 0 || bots[p->bot].kept > 0
                        ? 0
                        : send(dirty[i], p->out.p, p->out.n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0 && (size_t)n == p->out.n)
            p->out.n = 0;
        else
            flush_one(dirty[i]);
    }
    n_dirty = 0;
}

static void wait_for_ack(struct peer *gw, int fd)
{
    if (gw->waiting.n == gw->waiting.cap) {
        size_t cap = gw->waiting.cap == 0 ? 16 : gw->waiting.cap * 2;
        int *ring = malloc(cap * sizeof *ring);
        if (ring == NULL)
            die("out of memory");
        for (size_t i = 0; i < gw->waiting.n; i++)
            ring[i] = gw->waiting.fd[(gw->waiting.first + i) % gw->waiting.cap];
        free(gw->waiting.fd);
        gw->waiting.fd = ring;
        gw->waiting.cap = cap;
        gw->waiting.first = 0;
    }
    gw->waiting.fd[(gw->waiting.first + gw->waiting.n++) % gw->waiting.cap] = fd;
}

static void answer_now(int fd)
{
    if (send(fd, LIT(answer), MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof answer - 1)
        die("a publisher does not read");
}

static void on_post(int fd, const uint8_t *head, const uint8_t *body, size_t n)
{
    uint32_t bot = (uint32_t)strtoul((const char *)head + 12, NULL, 10); /* POST /chat/b00000 */
    int gw_fd = bot < MAX_BOTS ? bots[bot].gateway_fd : 0;
    const uint8_t *text = body + 9, *end = memchr(text, '"', n - 9);

    if (gw_fd == 0 || end == NULL) {
        if (bot < MAX_BOTS)
            bots[bot].kept++;
        answer_now(fd);
        return;
    }
    struct bytes *out = &peers[gw_fd]->out;
    ws_head(out, 1, sizeof frame_head - 1 + (size_t)(end - text) + sizeof frame_tail - 1);
    bytes_add(out, LIT(frame_head));
    bytes_add(out, text, (size_t)(end - text));
    bytes_add(out, LIT(frame_tail));
    wait_for_ack(peers[gw_fd], fd);
    mark_dirty(gw_fd);
}

static size_t on_request(int fd, const uint8_t *p, size_t n)
{
    const uint8_t *end = memmem(p, n, LIT("\r\n\r\n"));

    if (end == NULL)
        return 0;
    size_t head_n = (size_t)(end - p) + 4, body_n = 0;
    if (p[0] == 'G') {
        peers[fd]->is_gateway = true;
        bytes_add(&peers[fd]->out, LIT(upgrade));
        mark_dirty(fd);
        return head_n;
    }
    const uint8_t *length = memmem(p, head_n, LIT("Content-Length: "));
    if (length != NULL)
        body_n = strtoul((const char *)length + 16, NULL, 10);
    if (n < head_n + body_n)
        return 0;
    on_post(fd, p, p + head_n, body_n);
    return head_n + body_n;
}

static void on_hello(int fd, const uint8_t *p, size_t n)
{
    const uint8_t *bot = memmem(p, n, LIT("\"botId\": \"b"));
    struct peer *gw = peers[fd];

    gw->bot = bot == NULL ? 0 : (uint32_t)strtoul((const char *)bot + 11, NULL, 10) % MAX_BOTS;
    bots[gw->bot].gateway_fd = fd;
    ws_head(&gw->out, 1, sizeof descriptor - 1);
    bytes_add(&gw->out, LIT(descriptor));
    mark_dirty(fd);
}

static void on_text(int fd, const uint8_t *p, size_t n)
{
    struct peer *gw = peers[fd];

    if (n > 10 && p[10] == 'h') { /* {"type": "hello" */
        on_hello(fd, p, n);
        return;
    }
    for (const uint8_t *end; (end = memchr(p, '\n', n)) != NULL; p = end + 1) {
        n -= (size_t)(end - p) + 1;
        if (gw->waiting.n == 0)
            continue; /* an ack of the backlog */
        answer_now(gw->waiting.fd[gw->waiting.first]);
        gw->waiting.first = (gw->waiting.first + 1) % gw->waiting.cap;
        gw->waiting.n--;
    }
}

static size_t on_message(int fd, uint8_t *p, size_t n)
{
    size_t length = n < 2 ? 0 : p[1] & 0x7f,
           extra = length == 126   ? 2
                   : length == 127 ? 8
                                   : 0,
           at = 2;

    if (n < 2 + extra + 4)
        return 0;
    if (extra > 0)
        length = 0;
    while (at < 2 + extra)
        length = length << 8 | p[at++];
    const uint8_t *mask = p + at;
    at += 4;
    if (n < at + length)
        return 0;
    for (size_t i = 0; i < length; i++)
        p[at + i] ^= mask[i & 3];
    switch (p[0] & 0x0f) {
    case 9:
        ws_head(&peers[fd]->out, 10, length);
        bytes_add(&peers[fd]->out, p + at, length);
        mark_dirty(fd);
        break;
    case 8:
        break;
    default:
        on_text(fd, p + at, length);
    }
    return at + length;
}

static void readable(int fd)
{
    static uint8_t chunk[1 << 18];
    struct peer *p = peers[fd];
    ssize_t n = recv(fd, chunk, sizeof chunk, MSG_DONTWAIT);
    uint8_t *at = chunk;
    size_t used;

    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        drop(fd);
        return;
    }
    size_t left = (size_t)n;
    if (p->in.n > 0) {
        bytes_add(&p->in, chunk, left);
        at = p->in.p;
        left = p->in.n;
    }
    while (left > 0 &&
           (used = p->is_gateway ? on_message(fd, at, left) : on_request(fd, at, left)) > 0) {
        at += used;
        left -= used;
    }
    if (p->in.n > 0)
        bytes_drop(&p->in, p->in.n - left);
    else
        bytes_add(&p->in, at, left);
}

static void accept_all(int listener)
{
    int fd, one = 1;

    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        if (fd >= MAX_FD)
            die("too many sockets");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        peers[fd] = calloc(1, sizeof *peers[fd]);
        if (peers[fd] == NULL)
            die("out of memory");
        watch(fd, EPOLL_CTL_ADD, EPOLLIN);
    }
}

static int listen_on(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, 4096) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &n) != 0)
        die("listen: %s", strerror(errno));
    printf("port %d\n", ntohs(at.sin_port));
    fflush(stdout);
    return fd;
}

int main(int argc, char **argv)
{
    struct epoll_event ev[256];
    struct rlimit r;

    getrlimit(RLIMIT_NOFILE, &r);
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    int listener = listen_on(argc > 1 ? atoi(argv[1]) : 0);
    watch(listener, EPOLL_CTL_ADD, EPOLLIN);
    for (;;) {
        int n = epoll_wait(epoll, ev, 256, -1);
        for (int i = 0; i < n; i++) {
            int fd = ev[i].data.fd;
            if (fd == listener)
                accept_all(listener);
            else if (ev[i].events & ~(uint32_t)EPOLLOUT)
                readable(fd);
            if (fd != listener && peers[fd] != NULL && (ev[i].events & EPOLLOUT))
                mark_dirty(fd);
        }
        flush_dirty();
    }
}
