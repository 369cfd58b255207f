/* wire_nats.c - the same loads on NATS JetStream, in the text protocol of NATS.
 *
 *      publisher   PUB g.<n> with an inbox for the answer -> the stream's acknowledgement
 *      receiver    SUB d.<n>, to which a durable consumer delivers; MSG -> PUB of an ack
 *
 * peers.py has made the stream and the consumers.  The payload is the body that an HTTP publisher
 * would have posted.  An acknowledgement says that the stream has the message, not that the
 * receiver has: publishers wait for less than ours do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "load.h"

#define LIT(s) (s), sizeof(s) - 1

static void say(struct load *l, struct conn *c, const char *text)
{
    bench_conn_send(c, load_epoll(l), text, strlen(text));
}

static void nats_open(struct load *l, struct conn *c)
{
    char text[256];

    snprintf(text, sizeof text,
             "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":false,\"lang\":\"c\","
             "\"version\":\"1\"}\r\nSUB %s%05u 1\r\nPING\r\n",
             c->is_publisher ? "_INBOX.p" : "d.", c->index);
    say(l, c, text);
}

static void build_publish(struct load *l, struct conn *c)
{
    char body[160], *out = (char *)c->request;
    int body_n =
        snprintf(body, sizeof body,
                 "{\"text\":\"%016d hello, is anybody there? I have a question about my order.\","
                 "\"client_id\":\"%08x-%016d\"}",
                 0, load_nonce(l), 0);
    int n = snprintf(out, sizeof c->request, "PUB g.00000 _INBOX.p%05u %d\r\n%s\r\n", c->index,
                     body_n, body);

    c->request_n = (uint16_t)n;
    c->at_bot = 6;
    c->at_text = (uint16_t)(strstr(out, "{\"text\":\"") - out + 9);
    c->at_id = (uint16_t)(n - INDEX_DIGITS - 4);
}

static void nats_publish(struct load *l, struct conn *c, uint32_t to, uint64_t number)
{
    for (int i = 4; i >= 0; i--, to /= 10)
        c->request[c->at_bot + i] = (uint8_t)('0' + to % 10);
    put_index(c->request + c->at_text, number);
    put_index(c->request + c->at_id, number);
    bench_conn_send(c, load_epoll(l), c->request, c->request_n);
}

struct msg {
    const uint8_t *reply, *payload; /* @reply NULL: none */
    size_t reply_n, n;
};

/* "MSG subject sid [reply] bytes": with its payload, or 0 while that is incomplete. */
static size_t read_msg(const uint8_t *p, size_t line_n, size_t n, struct msg *ret)
{
    const uint8_t *word[5], *at = p, *end = p + line_n;
    size_t words = 0;

    while (at < end && words < 5) {
        word[words++] = at;
        at = memchr(at, ' ', (size_t)(end - at));
        at = at == NULL ? end : at + 1;
    }
    if (words < 4)
        die("NATS said: %.*s", (int)line_n, (const char *)p);
    *ret = (struct msg){.payload = p + line_n + 2,
                        .n = strtoul((const char *)word[words - 1], NULL, 10)};
    if (words == 5) {
        ret->reply = word[3];
        ret->reply_n = (size_t)(word[4] - word[3]) - 1;
    }
    return line_n + 2 + ret->n + 2 <= n ? line_n + 2 + ret->n + 2 : 0;
}

static void take_msg(struct load *l, struct conn *c, struct bytes *acks, const struct msg *m)
{
    if (c->is_publisher) {
        if (memmem(m->payload, m->n, LIT("\"error\"")) != NULL)
            die("the stream refused a message: %.*s", (int)m->n, (const char *)m->payload);
        load_accepted(l, c);
        return;
    }
    if (m->reply == NULL || m->n < 9 + INDEX_DIGITS)
        die("receiver %u got a message that makes no sense", c->index);
    bytes_add(acks, LIT("PUB "));
    bytes_add(acks, m->reply, m->reply_n);
    bytes_add(acks, LIT(" 0\r\n\r\n"));
    load_event(l, c, m->payload + 9);
}

static void take_line(struct load *l, struct conn *c, const uint8_t *p, size_t n)
{
    if (memcmp(p, LIT("PONG")) == 0 && !c->ready) {
        if (c->is_publisher)
            build_publish(l, c);
        load_ready(l, c);
    } else if (memcmp(p, LIT("PONG")) == 0) {
        load_barrier(l, c);
    } else if (memcmp(p, LIT("PING")) == 0) {
        say(l, c, "PONG\r\n");
    } else if (memcmp(p, LIT("INFO")) != 0 && memcmp(p, LIT("+OK")) != 0) {
        die("NATS said: %.*s", (int)n, (const char *)p);
    }
}

static size_t nats_bytes(struct load *l, struct conn *c, const uint8_t *p, size_t n)
{
    static struct bytes acks;
    const uint8_t *end;
    size_t used = 0;

    acks.n = 0;
    while ((end = memmem(p + used, n - used, LIT("\r\n"))) != NULL) {
        size_t line_n = (size_t)(end - p) - used;
        struct msg m;
        if (line_n < 3)
            die("NATS said less than a word");
        if (memcmp(p + used, LIT("MSG ")) != 0) {
            take_line(l, c, p + used, line_n);
            used += line_n + 2;
            continue;
        }
        size_t step = read_msg(p + used, line_n, n - used, &m);
        if (step == 0)
            break;
        take_msg(l, c, &acks, &m);
        used += step;
    }
    if (acks.n > 0)
        bench_conn_send(c, load_epoll(l), acks.p, acks.n);
    return used;
}

static void nats_barrier(struct load *l, struct conn *c)
{
    say(l, c, "PING\r\n");
}

const struct wire wire_nats = {
    .name = "nats",
    .open = nats_open,
    .publish = nats_publish,
    .publisher_bytes = nats_bytes,
    .receiver_bytes = nats_bytes,
    .barrier = nats_barrier,
};
