/* redis_client.h - one connection to a Redis or Valkey server, reopened when it is lost.
 *
 *      DOWN --pause over--> CONNECTING --connected--> GREETING --all its commands answered--> UP
 *       ^------------- lost, refused, deaf: the pause doubles up to 2 s -------------------'
 *
 * In GREETING the client sends AUTH and SELECT.  In UP the owner sends commands, and reply() gets
 * the replies in order.  The client sends PING after a silence, to detect a dead connection.
 *
 *      struct redis_client *c = redis_client_open(loop, &options, &handlers, owner, why);
 *      redis_client_send(c, (const struct str[]){STR("PING")}, 1);
 *
 * Commands are not queued while the connection is down: the owner sends them again from up(). */
#pragma once
#include <stdbool.h>
#include "net/resp.h"

struct loop;

struct redis_client_options {
    const char *url; /* redis://[user:password@]host[:6379][/0], rediss://..., unix:/path; copied */
    const char *ca;  /* PEM file for rediss://; NULL: the system's authorities; borrowed */
    const char *name;  /* for the log; a literal */
    bool quiet;        /* nothing is logged */
    size_t max_unsent; /* more bytes that wait to be sent end the connection; 0: 16 MiB */
};

struct redis_client_handlers { /* all required; the client may be closed inside each */
    void (*up)(void *ctx);
    void (*down)(void *ctx); /* unanswered commands get no reply any more */
    void (*reply)(void *ctx, const struct resp *r);
};

/* NULL: the address is wrong, and @ret_why (256 bytes) says how. */
struct redis_client *redis_client_open(struct loop *loop,
                                       const struct redis_client_options *options,
                                       const struct redis_client_handlers *handlers, void *ctx,
                                       char *ret_why);
void redis_client_close(struct redis_client *c); /* no handler runs after this; NULL is fine */
bool redis_client_is_up(const struct redis_client *c);
/* One command of @n words.  Dropped unless the connection is UP. */
void redis_client_send(struct redis_client *c, const struct str *argv, size_t n);
size_t redis_client_unsent(const struct redis_client *c);
void redis_client_flush(struct redis_client *c); /* writes what the socket takes now */
/* What an operator is told: "host:port" without the password, why there is no connection ("": there
 * is one), and when the server was heard last, monotonic (0: never). */
const char *redis_client_at(const struct redis_client *c);
const char *redis_client_fault(const struct redis_client *c);
int64_t redis_client_heard_ms(const struct redis_client *c);
/* What to do about an error that the server replied, ": " in front; "" if nothing is known. */
const char *redis_advice(struct str error);
bool redis_url_ok(const char *url, char *ret_why); /* false: @ret_why says what is wrong */
