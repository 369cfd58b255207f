/* ws.h - one accepted WebSocket.
 *
 * A struct ws lives from ws_accept() until its on_closed() returned; after that the pointer is
 * dead.  on_closed() runs exactly once, never inside ws_accept() or ws_close().  Data arrives as a
 * stream of pieces: the relay wire is newline-delimited and does not care about message borders.
 * Frames sent in one turn leave in one write.  permessage-deflate is declined by not offering it.
 */
#pragma once
#include "base/buf.h"

struct http_req;
struct http_server;
struct ws;

struct ws_handlers { /* borrowed until on_closed(): a constant */
    /* A piece of a text or binary message; @end: the message ends with it.  Borrowed bytes. */
    void (*on_data)(void *ctx, struct str bytes, bool end);
    /* The number given to ws_ping(); foreign pongs are dropped.  May be NULL. */
    void (*on_pong)(void *ctx, uint32_t number);
    void (*on_closed)(void *ctx, int code); /* CLOSE_CODE_LOST: vanished */
    /* The queue of unsent bytes fell below half of max_queued again; may be NULL. */
    void (*on_drained)(void *ctx);
};

struct ws_options {
    uint32_t max_message; /* larger incoming messages: close "too large" */
    uint32_t max_queued;  /* unsent bytes beyond this: close "too slow" */
};

/* An upgrade that is answered later: what survives the handler.  With ws_accept_offer(), or like
 * any other request, by its id. */
struct ws_offer {
    struct http_id id;
    char accept[29];
    bool tls;
    char host[128]; /* by which name it dialled; empty: not told, or too long */
};
/* False (and an HTTP 400 was sent): the request is not a correct WebSocket upgrade. */
bool ws_offer(struct http_server *s, const struct http_req *req, struct ws_offer *ret);
/* NULL: the client has gone, or was answered. */
struct ws *ws_accept_offer(struct http_server *s, const struct ws_offer *offer,
                           const struct ws_options *opt, const struct ws_handlers *h, void *ctx);

/* Answer an upgrade request with 101.  NULL (and an HTTP 400 was sent) when the request is not a
 * correct WebSocket upgrade. */
struct ws *ws_accept(struct http_server *s, struct http_req *req, const struct ws_options *opt,
                     const struct ws_handlers *h, void *ctx);
/* It has proved who it is: from now on it counts for @credential, not for its address, and shares
 * the turns of the loop with the other sockets of @tenant.  Holds of its own are taken. */
struct party;
void ws_let_in(struct ws *ws, struct party *credential, struct party *tenant);

void ws_send(struct ws *ws, struct str text); /* one text message; copied */
/* The same in two steps without a copy: append the payload to the returned buffer (which already
 * holds other bytes: only append), then ws_send_end().  Nothing else may touch @ws in between. */
struct buf *ws_send_begin(struct ws *ws);
void ws_send_end(struct ws *ws);

void ws_ping(struct ws *ws, uint32_t number);
/* Start the closing handshake; data from the peer is dropped from now on, the socket is cut after
 * 5 s.  Closing twice is harmless. */
void ws_close(struct ws *ws, int code, const char *reason);
size_t ws_queued(const struct ws *ws);
bool ws_is_closing(const struct ws *ws);
