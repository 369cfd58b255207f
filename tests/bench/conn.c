/* conn.c - sockets and their buffers, for the load program. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "load.h"

void die(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    exit(1);
}

void bytes_add(struct bytes *b, const void *p, size_t n)
{
    if (b->n + n > b->cap) {
        b->cap = (b->n + n) * 2;
        b->p = realloc(b->p, b->cap);
        if (b->p == NULL)
            die("out of memory");
    }
    if (n > 0)
        memcpy(b->p + b->n, p, n);
    b->n += n;
}

void bytes_drop(struct bytes *b, size_t n)
{
    b->n -= n;
    if (b->n > 0)
        memmove(b->p, b->p + n, b->n);
}

static void watch(struct conn *c, int epoll, int how, uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = c};

    if (epoll_ctl(epoll, how, c->fd, &ev) != 0)
        die("epoll_ctl: %s", strerror(errno));
}

void bench_conn_connect(struct conn *c, int epoll, int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;

    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        die("socket: %s", strerror(errno));
    /* Blocking: on loopback it takes microseconds, and never more than the listener's backlog. */
    if (connect(c->fd, (struct sockaddr *)&to, sizeof to) != 0)
        die("connect to port %d: %s", port, strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    watch(c, epoll, EPOLL_CTL_ADD, EPOLLIN);
}

void bench_conn_send(struct conn *c, int epoll, const void *p, size_t n)
{
    ssize_t done = 0;

    if (c->out.n == 0)
        done = send(c->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (done < 0 && errno != EAGAIN)
        die("%s %u: send: %s", c->is_publisher ? "publisher" : "receiver", c->index,
            strerror(errno));
    if (done < 0)
        done = 0;
    if ((size_t)done == n)
        return;
    bytes_add(&c->out, (const uint8_t *)p + done, n - (size_t)done);
    if (!c->waits_writable)
        watch(c, epoll, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
    c->waits_writable = true;
}

void bench_conn_flush(struct conn *c, int epoll)
{
    ssize_t done = send(c->fd, c->out.p, c->out.n, MSG_DONTWAIT | MSG_NOSIGNAL);

    if (done < 0 && errno != EAGAIN)
        die("send: %s", strerror(errno));
    if (done > 0)
        bytes_drop(&c->out, (size_t)done);
    if (c->out.n > 0)
        return;
    watch(c, epoll, EPOLL_CTL_MOD, EPOLLIN);
    c->waits_writable = false;
}

void bench_conn_close(struct conn *c)
{
    close(c->fd);
    free(c->in.p);
    free(c->out.p);
    free(c->line.p);
    *c = (struct conn){.fd = -1};
}

void put_index(uint8_t *at, uint64_t n)
{
    for (int i = INDEX_DIGITS - 1; i >= 0; i--, n /= 10)
        at[i] = (uint8_t)('0' + n % 10);
}

uint64_t get_index(const uint8_t *at)
{
    uint64_t n = 0;

    for (int i = 0; i < INDEX_DIGITS; i++) {
        if (at[i] < '0' || at[i] > '9')
            die("an event came whose text does not begin with its number");
        n = n * 10 + (uint64_t)(at[i] - '0');
    }
    return n;
}
