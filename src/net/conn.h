/* conn.h - one accepted socket and the server it belongs to.  Private to src/net/.
 *
 *      accept [-> PROXY] -> HEAD -> BODY -> HANDLING -> IDLE -> HEAD ...
 *                            |               ^ |--> STREAM -> IDLE or LAST
 *                            '----> UPLOAD --' |--> FILE -> IDLE or LAST
 *                                              |--> WS -> WS_CLOSING
 *                                              |--> TRUNK_NEW -> TRUNK (trunk.h: the heart)
 *                                              '--> LAST (a final answer is queued) -> LINGER
 *      HEAD, BODY -> CARRIED -> IDLE or LAST: the heart answers the request (trunk.h: an edge)
 *              '---> HELD -> CARRIED, or IDLE: there is no trunk just now
 *      CARRIED -> PARKED -> CARRIED, or WS: a WebSocket whose heart is lost
 *      every state -> CLOSED: the socket is gone, the memory goes when the turn ends
 *
 * The server keeps one list of connections per state.  Every state has one constant timeout, so
 * each list is sorted by deadline, and one timer checks the fronts of the lists.
 *
 * Memory of a silent connection: struct conn, which holds the state of a WebSocket too.  struct
 * http_req, the WebSocket's decoder and all buffers exist only while a request, part of a
 * message or unsent bytes do. */
#pragma once
#include <ev.h>
#include <openssl/ssl.h>

#include "base/bucket.h"
#include "base/clock.h"
#include "base/handles.h"
#include "base/list.h"
#include "base/addr.h"
#include "net/http_codec.h"
#include "net/http_server.h"
#include "net/http_tls.h"
#include "net/loop.h"
#include "net/trunk.h"
#include "net/ws.h"
#include "net/work.h"
#include "net/ws_codec.h"

enum conn_state {
    CONN_HEAD,          /* nothing yet, or part of a request's head */
    CONN_BODY,          /* part of a request's body */
    CONN_PROXY,         /* waiting for the PROXY protocol header */
    CONN_UPLOAD,        /* part of a body that goes to a sink */
    CONN_UPLOAD_PAUSED, /* the sink has paused the upload */
    CONN_HANDLING,      /* waiting for the handler's answer */
    CONN_IDLE,          /* between requests */
    CONN_STREAM,        /* a streamed answer */
    CONN_FILE,          /* an answer from a file */
    CONN_LAST,          /* close as soon as the output has left */
    CONN_LINGER, /* our side is closed; discard input, so that the peer reads our last answer */
    CONN_WS,
    CONN_WS_CLOSING, /* our close frame is queued */
    CONN_TRUNK_NEW,  /* the peer claims to be a node of the cluster */
    CONN_TRUNK,      /* a trunk */
    CONN_CARRIED,    /* an edge's: the heart has its request, or it is a WebSocket */
    CONN_HELD,       /* a request waits for a trunk, or for room on it */
    CONN_PARKED,     /* a gateway's WebSocket waits for the next heart */
    CONN_CLOSED,
    CONN_N_STATES
};

enum {
    READ_BYTES = 256 * 1024,     /* the shared read buffer */
    HTTP_READ_BYTES = 64 * 1024, /* at most this much of pipelined requests waits in memory */
    LITTLE_BYTES = 16 * 1024,    /* one read after the turn's share is used up */
    OUT_HIGH_BYTES = 256 * 1024, /* answers waiting beyond this: read no further requests */
    WS_CLOSE_MS = 5000,
    LINGER_MS = 2000,
};

struct carried; /* trunk_priv.h */

struct listener {
    ev_io io;
    struct list link;
    struct http_server *server; /* borrowed */
    SSL_CTX *tls;               /* owned; NULL: plain */
    char *path;                 /* owned; the file of a Unix socket, else NULL */
    struct http_listener opt;
    struct timer again; /* armed: accept() found no free descriptor, and is retried then */
};

struct http_server {
    struct loop *loop;   /* borrowed */
    struct ev_loop *ev;  /* borrowed */
    struct clock *clock; /* borrowed */
    struct http_limits limits;
    http_handler *handler;
    http_handler *on_head; /* NULL: none */
    void *ctx;
    struct list listeners;
    struct list by_state[CONN_N_STATES];
    int64_t timeout_ms[CONN_N_STATES]; /* 0: none */
    struct timer sweep;
    int64_t sweep_ms;
    struct conn *dirty;         /* connections with something to do at the end of the turn */
    struct handles conns;       /* of struct conn */
    size_t n_conns, n_reserved; /* all connections, and those of reserved listeners */
    size_t n_carried;           /* connections without a socket that are not reserved */
    struct list trunks;         /* trunk.link */
    int64_t stranger_ms;     /* heart: when the log last reported a stranger asking for a trunk */
    struct trunk *carrier;   /* borrowed; edge: the trunk that is up; NULL: none */
    int64_t carrier_lost_ms; /* edge: when it was lost; 0: there was none yet */
    struct timer presents;   /* edge: parked WebSockets are presented, or adopted */
    bool in_process;         /* edge: a thread of the heart's process: edges.h */
    struct edges *of;        /* borrowed; edge: in_process */
    int port;                /* of the listeners that moved to edges */
    struct edges *edges;     /* owned; heart: threads that have the TCP listeners; NULL: none */
    struct list signers;     /* heart: http_signer.link */
    uint32_t last_signer;    /* heart */
    struct bucket_level forged; /* edge: requests whose signature fits no key */
    bool adopts;                /* this process is the heart: trunk_adopt() */
    struct json_parser *json;   /* owned; edge: reads the lines of gateways; NULL: none yet */
    struct trunk_acks acks;     /* heart */
    struct trunk_door *door;    /* owned; heart: takes trunks over Redis; NULL: none */
    ws_present_cb *on_present;  /* heart; NULL: none */
    bool draining;
    bool leaving;                /* http_server_leave() */
    struct http_req *spare_reqs; /* owned */
    size_t n_spare_reqs;
    struct buf spare_out[128]; /* owned; small buffers to write into */
    size_t n_spare_out;
    struct buf void_out;       /* owned; discards what is sent to a closed WebSocket */
    struct work_pool *readers; /* owned; reads files; created at first use */
    char *read_buf;            /* owned; READ_BYTES, valid inside one read callback */
    int64_t date_s;
    char date[40]; /* "Date: ...\r\n" of that second */
    size_t date_n;
    uint8_t ping_tag[4];
    struct addr_net *proxies; /* owned; the trusted proxies */
    size_t n_proxies;
    bool told_of_proxy;    /* the log has reported an untrusted proxy */
    char **names;          /* owned, NULL-terminated; NULL: any */
    struct ledger *ledger; /* borrowed; NULL: nothing is counted */
    uint64_t turn;         /* number of the current turn */
    size_t turn_bytes;     /* bytes read in this turn */
    struct list hungry;    /* conn.hungry: served first in the next turn, in order */
    uint64_t fed_turn;     /* the turn in which they were served last */
    char last_host[64];    /* the last accepted Host */
    size_t last_host_n;
};

/* What a connection carries instead of requests. */
enum conn_top { TOP_NONE, TOP_WS, TOP_STREAM, TOP_FILE, TOP_TRUNK };

struct ws { /* an accepted WebSocket; its address is that of its connection */
    const struct ws_handlers *handlers; /* borrowed for good */
    void *ctx;
    struct ws_decoder *decoder; /* owned; NULL: between two messages */
    uint32_t frame_at;          /* where the frame begun by ws_send_begin() starts in the output */
    uint16_t code;              /* what on_closed will be told */
    bool writing : 1;           /* between ws_send_begin() and ws_send_end() */
    bool was_high : 1;          /* on_drained is owed */
    bool peer_closed : 1;       /* its close frame came: cut as soon as ours has left */
};

struct conn {
    ev_io io;                   /* .fd is -1 once closed; .data is the tag of the listener */
    struct http_server *server; /* borrowed */
    SSL *ssl;                   /* owned; NULL: plain */
    struct list link;           /* in server->by_state[state] */
    struct list hungry;         /* linked: readable, but its share of the turn is used up */
    struct conn *next_dirty;
    const struct buf *in; /* owned; input of an incomplete or postponed request; &conn_no_input:
                           * none.  conn_in() is writable */
    struct buf out;       /* owned; output, of which @out_sent bytes have left */
    union {               /* owned; @top says which */
        struct {
            struct http_req *req;       /* being read; a handler's belongs to consume() */
            struct http_upload *upload; /* since http_take_body() */
            union {
                struct http_stream *stream; /* since http_stream_begin() */
                struct file_reader *file;   /* while CONN_FILE */
                struct trunk *trunk;        /* in CONN_TRUNK_NEW and CONN_TRUNK */
            };
        };
        struct ws ws; /* TOP_WS, since ws_accept(); there are no requests any more */
    };
    struct carried *carried; /* owned; set if it came over a trunk, or the heart knows it */
    struct handle id;        /* of the request that may be answered now */
    uint32_t out_sent;
    uint32_t due_ms; /* deadline of the state, if that has a timeout; modulo 2^32 */
    uint8_t state;   /* enum conn_state; conn_enter() is the only writer */
    bool is_dirty : 1;
    bool read_off : 1;   /* reading is paused */
    bool tls_stuck : 1;  /* TLS must write before it can read on */
    bool linger : 1;     /* the peer may be sending: close gently */
    bool body_waits : 1; /* the body is unread: an answer now closes the connection */
    bool is_tls : 1;
    bool any_host : 1;  /* any Host is accepted */
    bool reserved : 1;  /* does not count for the limit of connections */
    bool uncounted : 1; /* its edge, a thread of this process, counts it; or it moved to another
                         * party, which is over its limit */
    bool let_in : 1;    /* counts for a credential */
    bool no_socket : 1; /* came over a trunk */
    bool given : 1;     /* its socket moved to the heart: edges.c closes the descriptor */
    bool no_cert : 1;   /* over a trunk, and its client showed no requested certificate */
    /* of the request being handled, after struct http_req has gone */
    bool keep_alive : 1, is_head : 1, http_1_0 : 1;
    uint8_t top;      /* enum conn_top */
    struct addr peer; /* of the socket, or from the PROXY protocol header */
    /* The parties it counts for, one hold each; NULL: none.  @party is its address, or its
     * credential after conn_let_in(); @tenant is NULL before conn_let_in() */
    struct party *party, *tenant;
    uint32_t in_counted, out_counted; /* bytes */
};

struct http_req {
    struct conn *conn; /* borrowed */
    struct http_req *next_spare;
    char *base;    /* borrowed: the first byte of the request; moves between reads */
    size_t kept;   /* parsed bytes at @base: head, then decoded body */
    size_t body_n; /* bytes of the body so far */
    uint64_t left; /* of a body whose length is known */
    size_t max_body;
    struct http_chunks chunks;
    /* At an edge: */
    bool carried;   /* the heart answers it */
    bool streams;   /* its body is long, and follows in pieces */
    bool body_came; /* with its head */
    bool whole;     /* it is held, and @used bytes long */
    bool here;      /* it was held in vain: this process answers it */
    size_t used;
    /* At the heart: */
    bool decoded;             /* by the edge */
    uint32_t signer, checked; /* struct msg_request; an edge fills them, too */
    char peer[48];
    struct http_head head;
};

struct http_stream {
    size_t max_queued;
    http_stream_closed_cb *closed;
    void *ctx;
    struct http_id id;
    bool chunked, mute; /* mute: an answer to HEAD has no body */
};

/* ---- http_server.c ---- */
/* Accept what the TCP listeners of @other get, too.  BH_UNAVAILABLE: no descriptor is left. */
enum bh_err http_server_listen_like(struct http_server *s, const struct http_server *other);
void http_server_leave_ports(struct http_server *s); /* its edges have them */

/* ---- conn.c: socket and TLS ---- */
/* NULL: no memory for TLS; the caller keeps @fd and @party.  @fd -1: no socket, and the caller sets
 * conn->carried at once. */
struct conn *conn_new(struct listener *l, int fd, const struct addr *peer, struct party *party);
void conn_enter(struct conn *c, enum conn_state next);
/* Bytes were queued or the state changed: handle this connection when the turn ends. */
void conn_mark(struct conn *c);
struct buf *conn_out(struct conn *c); /* append here, then conn_mark() */
extern const struct buf conn_no_input;
struct buf *conn_in(struct conn *c); /* conn->in, made if there is none */
void conn_in_done(struct conn *c);
static inline size_t conn_queued(const struct conn *c)
{
    return c->out.n - c->out_sent;
}
void conn_flush(struct conn *c);
/* Bytes were queued that need not leave this turn: wait until the socket is writable. */
void conn_want_write(struct conn *c);
/* The output has left: close, gently if the peer may still be sending. */
void conn_finish(struct conn *c);
/* Close the socket now.  Owners are told at the end of the turn; the memory is valid until then. */
void conn_close(struct conn *c);
void conn_answered(struct conn *c); /* the request has its answer: its number finds nothing now */
void conn_sweep(struct timer *t);   /* of http_server.sweep: closes what is late */
void conn_turn_end(void *server);
void conn_ready(struct conn *c, int events); /* its socket or trunk is readable or writable */

/* ---- conn.c: what a connection holds, and for which party ---- */
/* False: the address has too many connections.  *@ret_party: one hold, for conn_new(). */
struct party *conn_party(struct http_server *s, const struct addr *peer); /* NULL: none */
bool conn_count_in(struct listener *l, const struct addr *peer, struct party **ret_party);
void conn_count_out(struct listener *l, struct party *party); /* it became no connection */
void conn_let_in(struct conn *c, struct party *credential, struct party *tenant);
void conn_uncount(struct conn *c); /* counts for no party from now on */
/* The party whose share of a turn or of a trunk it uses: its tenant, or its address; NULL: none */
struct party *conn_sharer(const struct conn *c);

/* ---- http_request.c: requests ---- */
void http_input(struct conn *c, char *p, size_t n); /* @p: in the server's read buffer */
void http_resume(struct conn *c);                   /* handles postponed input */
void http_too_much(struct conn *c);                 /* refuses a request over the limits */
void http_req_free(struct conn *c);

/* A request that came over a trunk; without its body if it is not @whole.  False: malformed. */
bool http_carried_request(struct conn *c, struct str payload, bool whole);
void http_carried_body(struct conn *c, struct str bytes, bool end);

/* ---- http_getters.c: the client's address ---- */
struct addr http_req_addr(const struct http_req *r); /* the address that http_peer() formats */
bool http_peer_is_trusted(const struct http_server *s, const struct addr *a);

/* ---- signer.c ---- */
void signer_check(struct conn *c, struct http_req *r); /* at an edge: fills @r->signer */

/* ---- http_tls.c ---- */
enum bh_err http_tls_context(const struct http_tls *tls, SSL_CTX **ret_ctx,
                             char *ret_why) BH_MUST_USE;
bool conn_lacks_cert(const struct conn *c); /* see http_lacks_client_cert() */

/* ---- http_request.c: uploads ---- */
void http_upload_end_early(struct conn *c); /* the sink is not told */
void http_upload_late(struct conn *c);      /* the timeout */
void http_upload_gone(struct conn *c);      /* the connection is closed */

/* ---- http_answer.c: files ---- */
void http_file_pump(struct conn *c); /* output has left: read on */
void http_file_gone(struct conn *c);

/* ---- http_answer.c ---- */
struct conn *http_find(struct http_server *s, struct http_id id); /* NULL: not to be answered */
/* Answer a request that never reaches the handler, and close. */
void http_refuse(struct conn *c, int status, const char *code, const char *text);
void http_stream_gone(struct conn *c);

/* ---- ws.c ---- */
void ws_input(struct conn *c, char *p, size_t n);
void ws_flushed(struct conn *c); /* output has left, wholly or in part */
void ws_gone(struct conn *c);
void ws_ponged(struct ws *ws, struct str bytes); /* the payload of a pong */
/* Keeps @used in *@held only in the middle of a message: ten thousand silent sockets need none. */
void ws_decoder_keep(struct ws_decoder **held, struct ws_decoder *used);
