/* redis_line.h - one connection to the server that comes back by itself.  Private to this folder.
 *
 *      DOWN --pause over--> CONNECTING --connected--> GREETING --all its commands answered--> UP
 *       ^------------- lost, refused, deaf: the pause doubles up to 2 s -------------------'
 *
 * GREETING sends who we are (AUTH, SELECT) and what the owner wants said first (SUBSCRIBE).  In UP
 * the server is asked for a sign of life now and then, since a line that went deaf tells nobody.
 * Answers are read and counted; only arrays, which are messages, are handed on. */
#pragma once
#include "base/buf.h"
#include "base/clock.h"
#include "bus/redis/resp.h"

struct redis_address { /* of bus.url; all owned */
    char *host, *unix_path, *user, *password;
    char *ca; /* borrowed */
    uint16_t port;
    uint32_t database;
    bool tls;
};
/* False: @ret_why (256 bytes) says what is wrong. */
bool redis_address_read(const char *url, struct redis_address *ret, char *ret_why);
void redis_address_done(struct redis_address *a);

enum redis_line_state { REDIS_DOWN, REDIS_CONNECTING, REDIS_GREETING, REDIS_UP };

struct redis_line {
    struct loop *loop;                              /* borrowed */
    const struct redis_address *to;                 /* borrowed */
    const char *name;                               /* for the log: "publishing", "hearing" */
    struct tcp_client *tcp;                         /* owned; NULL: DOWN */
    void (*greet)(void *ctx, struct redis_line *l); /* add commands; NULL: none */
    void (*up)(void *ctx, struct redis_line *l);    /* it is UP */
    void (*message)(void *ctx, const struct resp *array);
    void *ctx;
    enum redis_line_state state; /* written by line_enter() only */
    struct timer timer;          /* the pause; in UP the sign of life */
    struct buf in;               /* owned; what has not been understood yet */
    uint64_t owed;               /* answers that are still to come */
    int64_t heard_ms;            /* when the server said anything last */
    int64_t pause_ms;
    bool told; /* the log has a line about it being away */
};

void redis_line_init(struct redis_line *l, struct loop *loop, const struct redis_address *to);
void redis_line_done(struct redis_line *l);
/* One command; @argv are @n strings.  Dropped unless the line is UP or GREETING. */
void redis_line_say(struct redis_line *l, const struct str *argv, size_t n);
