/* ws.h - one accepted WebSocket.
 *
 * A struct ws lives from ws_accept() until its on_closed() returned; after that the pointer is
 * dead.  on_closed() runs exactly once, never inside ws_accept() or ws_close().  Data arrives as a
 * stream of pieces: the relay wire is newline-delimited and does not care about message borders.
 * Frames sent in one turn leave in one write.  permessage-deflate is declined by not offering it.
 */
#pragma once
#include "base/buf.h"

struct conn;
struct http_req;
struct http_server;
struct ws;

struct ws_handlers {      /* borrowed until on_closed(): a constant */
    uint32_t max_message; /* larger incoming messages: close "too large" */
    uint32_t max_queued;  /* unsent bytes beyond this: close "too slow" */
    /* A piece of a text or binary message; @end: the message ends with it.  Borrowed bytes. */
    void (*on_data)(void *ctx, struct str bytes, bool end);
    /* The number given to ws_ping(); foreign pongs are dropped.  May be NULL. */
    void (*on_pong)(void *ctx, uint32_t number);
    void (*on_closed)(void *ctx, int code); /* CLOSE_CODE_LOST: vanished */
    /* The queue of unsent bytes fell below half of max_queued again; may be NULL. */
    void (*on_drained)(void *ctx);
    /* Set for a gateway's socket: an ack among its lines, which an edge recognised (net/kept.h). */
    void (*on_ack)(void *ctx, struct str buffer_id);
    /* The edge that has the socket cannot be reached, and may present the socket again.
     * on_closed() follows.  May be NULL. */
    void (*on_parted)(void *ctx);
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
                           const struct ws_handlers *h, void *ctx);

/* Answer an upgrade request with 101.  NULL (and an HTTP 400 was sent) when the request is not a
 * correct WebSocket upgrade. */
struct ws *ws_accept(struct http_server *s, struct http_req *req, const struct ws_handlers *h,
                     void *ctx);
/* It has proved who it is: from now on it counts for @credential, not for its address, and shares
 * the turns of the loop with the other sockets of @tenant.  Holds of its own are taken. */
struct party;
void ws_let_in(struct ws *ws, struct party *credential, struct party *tenant);

void ws_send(struct ws *ws, struct str text); /* one text message; copied */
/* The same in two steps without a copy: append the payload to the returned buffer (which already
 * holds other bytes: only append), then ws_send_end().  Nothing else may touch @ws in between. */
struct buf *ws_send_begin(struct ws *ws);
void ws_send_end(struct ws *ws);

/* ---- a socket of an edge on another node, which outlives this process (net/kept.h) ---- */

bool ws_is_remote(const struct ws *ws); /* false: the next calls do nothing */
/* The delivery @row, called @id by its ack, ends with the message being written, or else with the
 * last one. */
void ws_sent(struct ws *ws, uint64_t row, struct str id);
void ws_answered(struct ws *ws, struct str request_id); /* the same for the result of an action */
struct ws_name {
    struct str gateway, tenant, instance;
    struct str since; /* when the gateway was added */
    struct str rank;  /* a number: which of a gateway's sockets is newer */
};
void ws_keep(struct ws *ws, const struct ws_name *name); /* NULL: the socket ends with us */
void ws_park(struct ws *ws); /* the edge presents it to the next process; on_closed() follows */

/* A socket that outlived the process before this one.  All borrowed for the call. */
struct ws_row {
    uint64_t row;
    struct str id;
};
struct ws_past {
    struct conn *conn;         /* for ws_resume() */
    struct ws_name name;       /* of ws_keep() */
    struct str personas;       /* of its hellos: platform, US, bot, RS each */
    const struct ws_row *rows; /* went down it, by row */
    size_t n_rows;
    const struct str *asked; /* requestIds of actions whose results did not go down it */
    size_t n_asked;
    bool acked;     /* the gateway has acked on it */
    bool late_acks; /* its hello said so */
};
/* Called with the handler's ctx for each such socket.  It calls ws_resume(), or the socket is
 * closed. */
typedef void ws_present_cb(void *ctx, const struct ws_past *past);
void http_server_on_present(struct http_server *s, ws_present_cb *on_present);
struct ws *ws_resume(const struct ws_past *past, const struct ws_handlers *h, void *ctx);

void ws_ping(struct ws *ws, uint32_t number);
/* Start the closing handshake; data from the peer is dropped from now on, the socket is cut after
 * 5 s.  Closing twice is harmless. */
void ws_close(struct ws *ws, int code, const char *reason);
size_t ws_queued(const struct ws *ws);
bool ws_is_closing(const struct ws *ws);
