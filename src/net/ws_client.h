/* ws_client.h - an outgoing WebSocket on the loop, for Discord and Slack.  libcurl connects (DNS,
 * proxies, TLS), ws_codec frames.
 *
 * A struct ws_client lives from ws_client_open() until its on_closed() returned or
 * ws_client_free(), whichever is first; after ws_client_free() no handler runs. */
#pragma once
#include "base/buf.h"

struct loop;

struct ws_client_handlers {
    void (*on_open)(void *ctx);
    /* Whole messages, borrowed.  A text is UTF-8: a peer that sends another is closed with 1007. */
    void (*on_message)(void *ctx, struct str message, bool text);
    void (*on_closed)(void *ctx, int code, const char *why); /* 0: never opened */
    void (*on_alive)(void *ctx); /* a ping or a pong of the peer; NULL: nobody asks */
};
struct ws_client_options {
    const char *url;            /* ws:// or wss:// */
    const char *const *headers; /* "Name: value", NULL-terminated; NULL: none */
    int64_t connect_timeout_ms; /* 0: 10 s */
    uint32_t max_message;       /* 0: 16 MiB */
    const char *ca_path;        /* PEM file of the authorities to trust; NULL: the system's */
};

struct ws_client *ws_client_open(struct loop *loop, const struct ws_client_options *opt,
                                 const struct ws_client_handlers *h, void *ctx);
void ws_client_send(struct ws_client *c, struct str text);
void ws_client_ping(struct ws_client *c);            /* on_alive follows, if the peer is there */
void ws_client_close(struct ws_client *c, int code); /* on_closed follows */
void ws_client_free(struct ws_client *c);            /* at once, silently; NULL is fine */
