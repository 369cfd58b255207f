/* wire_mqtt.c - the same loads in MQTT 3.1.1, QoS 1 both ways.
 *
 *      publisher   PUBLISH g/<n>  -> PUBACK           (one under way per publisher, as over HTTP)
 *      receiver    SUBSCRIBE g/<n>; PUBLISH -> PUBACK  (all acks owed for one read in one write)
 *
 * The payload is the body that an HTTP publisher would have posted.  A broker's PUBACK says that
 * the broker has it, not that the receiver has: its publishers wait for less than ours do. */
#include <stdio.h>
#include <string.h>
#include "load.h"

enum { CONNACK = 2, PUBLISH = 3, PUBACK = 4, SUBACK = 9, PINGRESP = 13 };

static void put16(struct bytes *b, size_t v)
{
    uint8_t be[2] = {(uint8_t)(v >> 8), (uint8_t)v};
    bytes_add(b, be, 2);
}

static void put_text(struct bytes *b, const char *s)
{
    put16(b, strlen(s));
    bytes_add(b, s, strlen(s));
}

/* Every packet written here is shorter than 16 KiB: at most two length bytes. */
static void send_packet(struct load *l, struct conn *c, uint8_t type_flags,
                        const struct bytes *body)
{
    uint8_t head[3] = {type_flags, (uint8_t)(body->n & 0x7f)};
    struct bytes *out = load_scratch(l);
    size_t n = 2;

    if (body->n > 127) {
        head[1] |= 0x80;
        head[2] = (uint8_t)(body->n >> 7);
        n = 3;
    }
    out->n = 0;
    bytes_add(out, head, n);
    bytes_add(out, body->p, body->n);
    bench_conn_send(c, load_epoll(l), out->p, out->n);
}

static void mqtt_open(struct load *l, struct conn *c)
{
    static struct bytes body;
    char id[32];
    bool clean = c->is_publisher || !load_is_persistent(l);

    body.n = 0;
    put_text(&body, "MQTT");
    bytes_add(&body, "\x04", 1);
    bytes_add(&body, clean ? "\x02" : "\x00", 1);
    put16(&body, 0); /* no keep-alive */
    snprintf(id, sizeof id, "%s%05u", c->is_publisher ? "publisher" : "receiver", c->index);
    put_text(&body, id);
    send_packet(l, c, 0x10, &body);
}

static void subscribe(struct load *l, struct conn *c)
{
    static struct bytes body;
    char topic[16];

    body.n = 0;
    put16(&body, 1);
    snprintf(topic, sizeof topic, "g/%05u", c->index);
    put_text(&body, topic);
    bytes_add(&body, "\x01", 1);
    send_packet(l, c, 0x82, &body);
}

static void build_publish(struct load *l, struct conn *c)
{
    char payload[160];
    int n =
        snprintf(payload, sizeof payload,
                 "{\"text\":\"%016d hello, is anybody there? I have a question about my order.\","
                 "\"client_id\":\"%08x-%016d\"}",
                 0, load_nonce(l), 0);
    uint8_t *p = c->request;
    size_t body_n = 2 + 7 + 2 + (size_t)n, at = 0;

    p[at++] = 0x32;
    p[at++] = (uint8_t)(body_n | 0x80);
    p[at++] = (uint8_t)(body_n >> 7);
    p[at++] = 0;
    p[at++] = 7;
    memcpy(p + at, "g/00000", 7);
    c->at_bot = (uint16_t)(at + 2);
    at += 7 + 2; /* and the packet id */
    memcpy(p + at, payload, (size_t)n);
    c->at_text = (uint16_t)(at + 9);
    at += (size_t)n;
    c->at_id = (uint16_t)(at - INDEX_DIGITS - 2);
    c->request_n = (uint16_t)at;
}

static void mqtt_publish(struct load *l, struct conn *c, uint32_t to, uint64_t number)
{
    uint8_t *p = c->request;

    for (int i = 4; i >= 0; i--, to /= 10)
        p[c->at_bot + i] = (uint8_t)('0' + to % 10);
    if (++c->packet_id == 0)
        c->packet_id = 1;
    p[c->at_bot + 5] = (uint8_t)(c->packet_id >> 8);
    p[c->at_bot + 6] = (uint8_t)c->packet_id;
    put_index(p + c->at_text, number);
    put_index(p + c->at_id, number);
    bench_conn_send(c, load_epoll(l), p, c->request_n);
}

/* The packet at @p: bytes of its head, of its body in @ret_n; 0: incomplete. */
static size_t packet_head(const uint8_t *p, size_t n, size_t *ret_n)
{
    size_t length = 0;

    for (size_t i = 1; i < n && i < 5; i++) {
        length |= (size_t)(p[i] & 0x7f) << 7 * (i - 1);
        if ((p[i] & 0x80) == 0) {
            *ret_n = length;
            return n >= i + 1 + length ? i + 1 : 0;
        }
    }
    return 0;
}

static size_t mqtt_publisher_bytes(struct load *l, struct conn *c, const uint8_t *p, size_t n)
{
    size_t body_n, head = packet_head(p, n, &body_n);

    if (head == 0)
        return 0;
    if (p[0] >> 4 == CONNACK) {
        if (body_n != 2 || p[head + 1] != 0)
            die("publisher %u was refused", c->index);
        build_publish(l, c);
        load_ready(l, c);
    } else if (p[0] >> 4 == PUBACK) {
        load_accepted(l, c);
    }
    return head + body_n;
}

static void one_publish(struct load *l, struct conn *c, struct bytes *acks, const uint8_t *p,
                        size_t n)
{
    size_t topic_n = n >= 2 ? (size_t)(p[0] << 8 | p[1]) : n;
    size_t payload = 2 + topic_n + 2; /* QoS 1: the packet id is there */

    if (n < payload + 9 + INDEX_DIGITS)
        die("receiver %u got a short message", c->index);
    uint8_t ack[4] = {0x40, 2, p[payload - 2], p[payload - 1]};
    bytes_add(acks, ack, 4);
    load_event(l, c, p + payload + 9);
}

static size_t mqtt_receiver_bytes(struct load *l, struct conn *c, const uint8_t *p, size_t n)
{
    static struct bytes acks;
    size_t used = 0, body_n, head;

    acks.n = 0;
    while ((head = packet_head(p + used, n - used, &body_n)) > 0) {
        const uint8_t *body = p + used + head;
        switch (p[used] >> 4) {
        case CONNACK:
            if (body_n != 2 || body[1] != 0)
                die("receiver %u was refused", c->index);
            if (load_is_persistent(l) && (body[0] & 1) != 0)
                load_ready(l, c); /* its subscription was kept */
            else
                subscribe(l, c);
            break;
        case SUBACK:
            load_ready(l, c);
            break;
        case PUBLISH:
            one_publish(l, c, &acks, body, body_n);
            break;
        case PINGRESP:
            load_barrier(l, c);
            break;
        }
        used += head + body_n;
    }
    if (acks.n > 0)
        bench_conn_send(c, load_epoll(l), acks.p, acks.n);
    return used;
}

static void mqtt_barrier(struct load *l, struct conn *c)
{
    bench_conn_send(c, load_epoll(l), "\xc0\x00", 2);
}

static void mqtt_leave(struct load *l, struct conn *c)
{
    bench_conn_send(c, load_epoll(l), "\xe0\x00", 2);
}

const struct wire wire_mqtt = {
    .name = "mqtt",
    .open = mqtt_open,
    .publish = mqtt_publish,
    .publisher_bytes = mqtt_publisher_bytes,
    .receiver_bytes = mqtt_receiver_bytes,
    .barrier = mqtt_barrier,
    .leave = mqtt_leave,
};
