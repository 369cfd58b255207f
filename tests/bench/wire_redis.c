/* wire_redis.c - the same loads on Redis Streams.
 *
 *      publisher   XADD g:<n>                                       -> the id of the entry
 *      receiver    XREADGROUP BLOCK 0 of g:<n> -> up to 500 entries; XACK of all, and again
 *
 * peers.py has made the streams and their groups.  The payload is the body that an HTTP publisher
 * would have posted.  An id says that Redis has the entry, not that the receiver has: publishers
 * wait for less than ours do.  A connection that blocks answers nothing else, so a barrier is
 * reached when every XACK was answered. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "load.h"

#define LIT(s) (s), sizeof(s) - 1

static void read_next(const struct load *l, const struct conn *c, struct bytes *out)
{
    char text[256];
    int n;

    if (load_is_persistent(l))
        n = snprintf(text, sizeof text,
                     "*11\r\n$10\r\nXREADGROUP\r\n$5\r\nGROUP\r\n$1\r\nr\r\n$1\r\nc\r\n"
                     "$5\r\nCOUNT\r\n$3\r\n500\r\n$5\r\nBLOCK\r\n$1\r\n0\r\n"
                     "$7\r\nSTREAMS\r\n$7\r\ng:%05u\r\n$1\r\n>\r\n",
                     c->index);
    else
        n = snprintf(text, sizeof text,
                     "*6\r\n$5\r\nXREAD\r\n$5\r\nBLOCK\r\n$1\r\n0\r\n$7\r\nSTREAMS\r\n"
                     "$7\r\ng:%05u\r\n$1\r\n$\r\n",
                     c->index);
    bytes_add(out, text, (size_t)n);
}

static void build_add(struct load *l, struct conn *c)
{
    char body[160], *out = (char *)c->request;
    int body_n =
        snprintf(body, sizeof body,
                 "{\"text\":\"%016d hello, is anybody there? I have a question about my order.\","
                 "\"client_id\":\"%08x-%016d\"}",
                 0, load_nonce(l), 0);
    int n = snprintf(out, sizeof c->request,
                     "*5\r\n$4\r\nXADD\r\n$7\r\ng:00000\r\n$1\r\n*\r\n$1\r\nt\r\n$%d\r\n%s\r\n",
                     body_n, body);

    c->request_n = (uint16_t)n;
    c->at_bot = (uint16_t)(strstr(out, "g:00000") - out + 2);
    c->at_text = (uint16_t)(strstr(out, "{\"text\":\"") - out + 9);
    c->at_id = (uint16_t)(n - INDEX_DIGITS - 4);
}

static void redis_open(struct load *l, struct conn *c)
{
    struct bytes *out = load_scratch(l);

    out->n = 0;
    bytes_add(out, LIT("*1\r\n$4\r\nPING\r\n"));
    if (c->is_publisher)
        build_add(l, c);
    else
        read_next(l, c, out);
    bench_conn_send(c, load_epoll(l), out->p, out->n);
}

static void redis_publish(struct load *l, struct conn *c, uint32_t to, uint64_t number)
{
    for (int i = 4; i >= 0; i--, to /= 10)
        c->request[c->at_bot + i] = (uint8_t)('0' + to % 10);
    put_index(c->request + c->at_text, number);
    put_index(c->request + c->at_id, number);
    bench_conn_send(c, load_epoll(l), c->request, c->request_n);
}

/* ---- replies ---- */

/* The number behind the type, and where its line ends; 0: incomplete. */
static size_t read_number(const uint8_t *p, size_t n, long *ret)
{
    const uint8_t *end = n > 1 ? memmem(p, n, LIT("\r\n")) : NULL;

    if (end == NULL)
        return 0;
    *ret = strtol((const char *)p + 1, NULL, 10);
    return (size_t)(end - p) + 2;
}

/* Bytes of the reply at @p; 0: incomplete. */
static size_t reply_bytes(const uint8_t *p, size_t n)
{
    long many;
    size_t at = read_number(p, n, &many);

    if (at == 0 || p[0] == '+' || p[0] == ':')
        return at;
    if (p[0] == '-')
        die("Redis said: %.*s", (int)at, (const char *)p);
    if (p[0] == '$')
        return many < 0 ? at : at + (size_t)many + 2 <= n ? at + (size_t)many + 2 : 0;
    if (p[0] != '*')
        die("Redis said something that makes no sense");
    for (; many > 0; many--) {
        size_t one = reply_bytes(p + at, n - at);
        if (one == 0)
            return 0;
        at += one;
    }
    return at;
}

static const uint8_t *skip_line(const uint8_t *p)
{
    return (const uint8_t *)strstr((const char *)p, "\r\n") + 2;
}

/* The bulk string at *@at, which is whole. */
static const uint8_t *take_bulk(const uint8_t **at, size_t *ret_n)
{
    const uint8_t *bytes = skip_line(*at);

    *ret_n = strtoul((const char *)*at + 1, NULL, 10);
    *at = bytes + *ret_n + 2;
    return bytes;
}

/* [[stream, [[id, [field, value]], ...]]] */
static void take_entries(struct load *l, struct conn *c, const uint8_t *p)
{
    struct bytes *out = load_scratch(l);
    char head[96];
    size_t n;

    p = skip_line(skip_line(p));
    take_bulk(&p, &n);
    unsigned long many = strtoul((const char *)p + 1, NULL, 10);
    p = skip_line(p);
    out->n = 0;
    int head_n = snprintf(head, sizeof head, "*%lu\r\n$4\r\nXACK\r\n$7\r\ng:%05u\r\n$1\r\nr\r\n",
                          many + 3, c->index);
    bytes_add(out, head, (size_t)head_n);
    for (; many > 0; many--) {
        p = skip_line(p);
        const uint8_t *start = p;
        take_bulk(&p, &n);
        bytes_add(out, start, (size_t)(p - start));
        p = skip_line(p);
        take_bulk(&p, &n);
        const uint8_t *value = take_bulk(&p, &n);
        if (n < 9 + INDEX_DIGITS)
            die("receiver %u got a short entry", c->index);
        load_event(l, c, value + 9);
    }
    c->packet_id = 1; /* an XACK that is not answered */
    read_next(l, c, out);
    bench_conn_send(c, load_epoll(l), out->p, out->n);
}

static size_t redis_publisher_bytes(struct load *l, struct conn *c, const uint8_t *p, size_t n)
{
    size_t used = reply_bytes(p, n);

    if (used > 0 && p[0] == '+')
        load_ready(l, c);
    else if (used > 0)
        load_accepted(l, c);
    return used;
}

static size_t redis_receiver_bytes(struct load *l, struct conn *c, const uint8_t *p, size_t n)
{
    size_t used = reply_bytes(p, n);

    if (used == 0)
        return 0;
    if (p[0] == '+') {
        load_ready(l, c);
    } else if (p[0] == ':') {
        c->packet_id = 0;
        if (c->busy) /* of a receiver: it waits for its barrier */
            load_barrier(l, c);
    } else {
        take_entries(l, c, p);
    }
    return used;
}

static void redis_barrier(struct load *l, struct conn *c)
{
    c->busy = true;
    if (c->packet_id == 0)
        load_barrier(l, c);
}

const struct wire wire_redis = {
    .name = "redis",
    .open = redis_open,
    .publish = redis_publish,
    .publisher_bytes = redis_publisher_bytes,
    .receiver_bytes = redis_receiver_bytes,
    .barrier = redis_barrier,
};
