/* wire_relay.c - publishers are HTTP keep-alive clients of the web platform, receivers are
 * gateways.
 *
 *      publisher   POST /chat/<bot>/api/message     -> 200
 *      receiver    GET /relay, hello -> descriptor;  inbound -> inbound_ack
 *
 * All acks owed for one read go back as one WebSocket message.  The masking key is zero, which is
 * legal and spares the client, not the server, the masking. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "load.h"

#define WS_KEY "dGhlIHNhbXBsZSBub25jZQ=="
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define LIT(s) (s), sizeof(s) - 1

static void build_request(struct load *l, struct conn *c)
{
    char body[160], *out = (char *)c->request;
    int body_n =
        snprintf(body, sizeof body,
                 "{\"text\":\"%016d hello, is anybody there? I have a question about my order.\","
                 "\"client_id\":\"%08x-%016d\"}",
                 0, load_nonce(l), 0);
    int n = snprintf(out, sizeof c->request,
                     "POST /chat/b00000/api/message HTTP/1.1\r\nHost: localhost\r\n"
                     "Content-Type: application/json\r\nX-Bellhop-Visitor: bench-visitor-%08u\r\n"
                     "Content-Length: %d\r\n\r\n%s",
                     c->index, body_n, body);

    if (n <= 0 || (size_t)n >= sizeof c->request)
        die("the request does not fit");
    c->request_n = (uint16_t)n;
    c->at_bot = (uint16_t)(strstr(out, "/b00000") - out + 2);
    c->at_text = (uint16_t)(strstr(out, "{\"text\":\"") - out + 9);
    c->at_id = (uint16_t)(n - INDEX_DIGITS - 2);
}

static void ws_send(struct load *l, struct conn *c, uint8_t opcode, const uint8_t *p, size_t n)
{
    static uint8_t frame[1 << 20];
    size_t at = 2;

    if (n > sizeof frame - 14)
        die("too much to send at once");
    frame[0] = (uint8_t)(0x80 | opcode);
    if (n < 126) {
        frame[1] = (uint8_t)(0x80 | n);
    } else if (n < 65536) {
        frame[1] = 0x80 | 126;
        frame[at++] = (uint8_t)(n >> 8);
        frame[at++] = (uint8_t)n;
    } else {
        frame[1] = 0x80 | 127;
        for (int shift = 56; shift >= 0; shift -= 8)
            frame[at++] = (uint8_t)((uint64_t)n >> shift);
    }
    memset(frame + at, 0, 4);
    at += 4;
    if (n > 0)
        memcpy(frame + at, p, n);
    bench_conn_send(c, load_epoll(l), frame, at + n);
}

static void relay_open(struct load *l, struct conn *c)
{
    char head[1024];

    if (c->is_publisher) {
        build_request(l, c);
        load_ready(l, c);
        return;
    }
    int n = snprintf(head, sizeof head,
                     "GET /relay HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
                     "Connection: Upgrade\r\nSec-WebSocket-Key: " WS_KEY "\r\n"
                     "Sec-WebSocket-Version: 13\r\nAuthorization: Bearer %s\r\n\r\n",
                     load_token(l, c->index));
    if (n <= 0 || (size_t)n >= sizeof head)
        die("the token of gateway %u is too long", c->index);
    bench_conn_send(c, load_epoll(l), head, (size_t)n);
}

static void relay_publish(struct load *l, struct conn *c, uint32_t to, uint64_t number)
{
    for (int i = 4; i >= 0; i--, to /= 10)
        c->request[c->at_bot + i] = (uint8_t)('0' + to % 10);
    put_index(c->request + c->at_text, number);
    put_index(c->request + c->at_id, number);
    bench_conn_send(c, load_epoll(l), c->request, c->request_n);
}

/* Bytes of the answer at @p, or 0 while it is incomplete. */
static size_t answer_length(const uint8_t *p, size_t n)
{
    const uint8_t *end = memmem(p, n, LIT("\r\n\r\n"));
    if (end == NULL)
        return 0;
    size_t head = (size_t)(end - p) + 4;
    if (head < 12 || memcmp(p + 8, " 200", 4) != 0)
        die("the server answered: %.*s", (int)MIN(n, 400), (const char *)p);
    const uint8_t *length = memmem(p, head, LIT("ontent-Length: "));
    if (length == NULL)
        length = memmem(p, head, LIT("ontent-length: "));
    if (length == NULL)
        die("an answer without Content-Length: %.*s", (int)MIN(n, 400), (const char *)p);
    head += strtoul((const char *)length + 15, NULL, 10);
    return head <= n ? head : 0;
}

static size_t relay_publisher_bytes(struct load *l, struct conn *c, const uint8_t *p, size_t n)
{
    size_t used = answer_length(p, n);

    if (used > 0)
        load_accepted(l, c);
    return used;
}

static size_t upgrade_answer(struct load *l, struct conn *c, const uint8_t *p, size_t n)
{
    char hello[96];
    const uint8_t *end = memmem(p, n, LIT("\r\n\r\n"));

    if (end == NULL)
        return 0;
    if (memcmp(p, LIT("HTTP/1.1 101")) != 0)
        die("gateway %u was refused: %.*s", c->index, (int)MIN(n, 400), (const char *)p);
    c->packet_id = 1; /* upgraded */
    int m =
        snprintf(hello, sizeof hello,
                 "{\"type\": \"hello\", \"platform\": \"web\", \"botId\": \"b%05u\"}\n", c->index);
    ws_send(l, c, 1, (const uint8_t *)hello, (size_t)m);
    return (size_t)(end - p) + 4;
}

static void one_line(struct load *l, struct conn *c, const uint8_t *p, size_t n)
{
    static const char start[] = "{\"type\":\"inbound\",\"bufferId\":\"";
    struct bytes *acks = load_scratch(l);

    if (n <= sizeof start || memcmp(p, LIT(start)) != 0) {
        if (!c->ready && memmem(p, n, LIT("\"descriptor\"")) != NULL)
            load_ready(l, c);
        return;
    }
    p += sizeof start - 1;
    n -= sizeof start - 1;
    const uint8_t *end = memchr(p, '"', n);
    if (end == NULL)
        die("gateway %u got a frame that makes no sense", c->index);
    bytes_add(acks, LIT("{\"type\": \"inbound_ack\", \"bufferId\": \""));
    bytes_add(acks, p, (size_t)(end - p));
    bytes_add(acks, LIT("\"}\n"));
    const uint8_t *text = memmem(end, n - (size_t)(end - p), LIT("\"text\":\""));
    if (text == NULL || text + 8 + INDEX_DIGITS > p + n)
        die("gateway %u got an event without text", c->index);
    load_event(l, c, text + 8);
}

static void text_bytes(struct load *l, struct conn *c, const uint8_t *p, size_t n)
{
    while (n > 0) {
        const uint8_t *end = memchr(p, '\n', n);
        size_t take = end == NULL ? n : (size_t)(end - p) + 1;

        if (end != NULL && c->line.n == 0) {
            one_line(l, c, p, take);
        } else {
            bytes_add(&c->line, p, take);
            if (end != NULL) {
                one_line(l, c, c->line.p, c->line.n);
                c->line.n = 0;
            }
        }
        p += take;
        n -= take;
    }
}

/* A message's head, or a whole control frame, from @p; 0: incomplete. */
static size_t ws_head(struct load *l, struct conn *c, const uint8_t *p, size_t n)
{
    size_t at = 2;

    if (n < 2)
        return 0;
    uint64_t length = p[1] & 0x7f;
    size_t extra = length == 126 ? 2 : length == 127 ? 8 : 0;
    if (n < at + extra)
        return 0;
    if (extra > 0)
        length = 0;
    for (size_t i = 0; i < extra; i++)
        length = length << 8 | p[at++];
    uint8_t opcode = p[0] & 0x0f;
    if (opcode < 8) {
        c->ws_left = length;
        return at;
    }
    if (n < at + length)
        return 0;
    if (opcode == 8)
        die("gateway %u was closed with %d %.*s", c->index,
            length >= 2 ? p[at] << 8 | p[at + 1] : 0, length > 2 ? (int)length - 2 : 0,
            (const char *)p + at + 2);
    if (opcode == 9)
        ws_send(l, c, 10, p + at, length);
    if (opcode == 10)
        load_barrier(l, c);
    return at + length;
}

static size_t relay_receiver_bytes(struct load *l, struct conn *c, const uint8_t *p, size_t n)
{
    struct bytes *acks = load_scratch(l);
    size_t used = 0, step;

    if (c->packet_id == 0)
        return upgrade_answer(l, c, p, n);
    acks->n = 0;
    do {
        if (c->ws_left > 0) {
            step = MIN(n - used, c->ws_left);
            text_bytes(l, c, p + used, step);
            c->ws_left -= step;
        } else {
            step = ws_head(l, c, p + used, n - used);
        }
        used += step;
    } while (step > 0 && used < n);
    if (acks->n > 0)
        ws_send(l, c, 1, acks->p, acks->n);
    return used;
}

static void relay_barrier(struct load *l, struct conn *c)
{
    ws_send(l, c, 9, (const uint8_t *)"done", 4);
}

static void relay_leave(struct load *l, struct conn *c)
{
    ws_send(l, c, 8, (const uint8_t *)"\x03\xe8", 2);
}

const struct wire wire_relay = {
    .name = "relay",
    .open = relay_open,
    .publish = relay_publish,
    .publisher_bytes = relay_publisher_bytes,
    .receiver_bytes = relay_receiver_bytes,
    .barrier = relay_barrier,
    .leave = relay_leave,
};
