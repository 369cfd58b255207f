/* load.h - what the load program's files share: connections, and the wires they may speak.
 *
 *      load.c        options, the epoll loop, the five loads, the JSON at the end
 *      conn.c        sockets and their buffers
 *      wire_relay.c  publishers over HTTP keep-alive, gateways over WebSocket
 *      wire_mqtt.c   publishers and subscribers over MQTT 3.1.1, QoS 1, persistent sessions
 *      wire_nats.c   the same on NATS JetStream: one stream, a durable consumer per receiver
 *      wire_redis.c  the same on Redis Streams: a stream and a group per receiver
 *
 * One thread plays both sides, and is kept as cheap as it can be: it shares two cores with the
 * server it measures.  A wire turns bytes into the four facts below; load.c decides what they mean.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INDEX_DIGITS 16 /* an event's number, as text: the first thing in its text */

struct load;
struct wire;

struct bytes { /* owned, grows */
    uint8_t *p;
    size_t n, cap;
};

struct conn { /* one socket; publishers and receivers alike */
    int fd;
    uint32_t index; /* which publisher, or which receiver */
    bool is_publisher, ready, busy, waits_writable;
    uint64_t event;       /* publisher: the number under way */
    int64_t sent_ns;      /* publisher: when it was sent */
    uint64_t received;    /* receiver: events so far */
    struct bytes in;      /* not parsed yet */
    struct bytes out;     /* not written yet */
    struct bytes line;    /* relay: a frame that spans messages */
    uint64_t ws_left;     /* relay: payload bytes of the current message still to come */
    uint16_t packet_id;   /* mqtt; redis: an XACK is not answered yet */
    uint8_t request[448]; /* publisher: what it sends, patched per event */
    uint16_t request_n, at_bot, at_text, at_id; /* offsets in @request */
};

struct wire {
    const char *name;
    void (*open)(struct load *l, struct conn *c); /* just connected: say hello */
    void (*publish)(struct load *l, struct conn *c, uint32_t to, uint64_t number);
    /* Bytes came; returns how many were used up, the rest comes again with more. */
    size_t (*publisher_bytes)(struct load *l, struct conn *c, const uint8_t *p, size_t n);
    size_t (*receiver_bytes)(struct load *l, struct conn *c, const uint8_t *p, size_t n);
    void (*barrier)(struct load *l, struct conn *c); /* ask for a sign that all acks were read */
    void (*leave)(struct load *l, struct conn *c);   /* a clean goodbye, session kept */
};
extern const struct wire wire_relay, wire_mqtt, wire_nats, wire_redis;

/* ---- what a wire reports ---- */
void load_ready(struct load *l, struct conn *c);    /* the handshake is done */
void load_accepted(struct load *l, struct conn *c); /* c->event has its receipt */
void load_event(struct load *l, struct conn *c, const uint8_t *number); /* INDEX_DIGITS digits */
void load_barrier(struct load *l, struct conn *c);                      /* the sign came */

/* ---- what a wire may ask ---- */
const char *load_token(const struct load *l, uint32_t receiver); /* bearer; "" when there is none */
uint32_t load_nonce(const struct load *l);                       /* differs from run to run */
bool load_is_persistent(const struct load *l);                   /* mqtt: keep the session */
struct bytes *load_scratch(struct load *l);

/* ---- conn.c ---- */
void die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
void bytes_add(struct bytes *b, const void *p, size_t n);
void bytes_drop(struct bytes *b, size_t n); /* from the front */
/* Connected, non-blocking, no delay, and in @epoll with @c as its data. */
void bench_conn_connect(struct conn *c, int epoll, int port);
/* Write now what the socket takes, keep the rest until it is writable. */
void bench_conn_send(struct conn *c, int epoll, const void *p, size_t n);
void bench_conn_flush(struct conn *c, int epoll);
void bench_conn_close(struct conn *c);
int load_epoll(const struct load *l);
/* @n as INDEX_DIGITS decimal digits. */
void put_index(uint8_t *at, uint64_t n);
uint64_t get_index(const uint8_t *at);
