/* trunk_priv.h - the internals of a trunk and of the connections on it.  Private to src/net/.
 *
 * The edge counts the connections, and a number returns only after four billion others.  So a
 * late message for an old connection never reaches a newer one.
 *
 * There is one struct carried at each end of a connection.  At the edge its conn is a real socket:
 *
 *      HEAD, BODY --the request is whole--> CARRIED --NEXT--> IDLE --> HEAD ...
 *            '--there is no trunk--> HELD --trunk--'  '--WS, its frames are decoded--> the trunk is
 *                                                       lost --> PARKED --the next heart--> CARRIED
 *
 * At the heart its conn has no socket.  Requests come from here, and its output goes here:
 *
 *      conn->io.events   the events that conn.c waits for      can   those that are possible now
 *      if both share a bit, the connection is in trunk->ready, and conn_ready() is called soon
 */
#pragma once
#include "base/map.h"
#include "net/conn.h"
#include "net/kept.h"
#include "net/trunk.h"

enum {
    TRUNK_NONCE_BYTES = 16,
    TRUNK_MAC_BYTES = 32,
    TRUNK_MAX_PROOF =
        TRUNK_NONCE_BYTES + TRUNK_MAC_BYTES + TRUNK_NAME_BYTES, /* limit before the proof */
    TRUNK_BATCH_BYTES = 512 << 10, /* a batch of so many bytes leaves before the turn ends */
    TRUNK_HIGH_BYTES = 8 << 20,    /* unsent bytes at which all connections stop writing */
    TCP_HIGH_BYTES = 1 << 20,      /* the same over TCP: the kernel holds what is on its way */
    RING_HIGH_BYTES = 256 << 10,   /* the same of all edges that are threads: what they have for the
                                    * heart is taken in one turn */
    TRUNK_MAX_CONNS = 1 << 20,
    TRUNK_MARKS = 64,
};

struct carried {
    struct trunk *trunk; /* borrowed; NULL: the edge waits for the next heart */
    struct conn *conn;   /* borrowed; owns this struct */
    struct list ready;   /* trunk->ready */
    struct list stalled; /* trunk_turn.conns */
    uint32_t number;
    uint32_t credit; /* bytes we may send */
    uint32_t owed;   /* bytes received and not credited to the other side yet */
    uint8_t can;
    union {
        struct {                 /* at the heart */
            uint32_t frames;     /* of the WebSocket, since this process took it */
            struct shown *shown; /* owned; a presentation under way; NULL: none */
            bool next_owed;      /* the edge waits for NEXT */
        };
        struct {                        /* at the edge */
            struct kept_socket *kept;   /* owned; of a WebSocket; NULL: none */
            struct ws_decoder *decoder; /* owned; NULL: between two messages */
            struct buf held;            /* what a gateway said while there was no heart */
            uint32_t max_message;
            uint32_t before; /* bytes before the first frame */
            bool asked;      /* the heart has a request of this connection */
            bool has_body;   /* and is sent its body: conn->req */
            bool is_stream;
            bool is_gateway;
        };
    };
};

struct trunk {
    struct http_server *server; /* borrowed */
    struct conn *conn;          /* heart: the connection that carries the trunk */
    struct tcp_client *tcp;     /* edge: owned */
    struct hop_line *line;      /* owned; instead of either: the trunk runs over Redis */
    struct ring *ring;          /* borrowed; instead of all: the other end is another thread */
    size_t high;                /* unsent bytes at which all connections stop writing */
    struct list link;           /* server->trunks */
    void (*take)(struct trunk *t, const struct msg *m);
    struct map carried;        /* by number: struct carried, owned */
    uint32_t last_number;      /* edge: of a connection */
    struct list ready;         /* carried.ready */
    struct list stalled;       /* struct trunk_turn, owned: parties that wait for room, in turn */
    struct map turns;          /* the same by party */
    struct list asks;          /* heart: struct trunk_ask */
    uint32_t last_ask, n_asks; /* heart */
    struct buf in;             /* an incomplete batch */
    struct buf out;            /* the batch of this turn */
    uint64_t heard, sent;      /* numbers of batches */
    struct buf parts;          /* the parts so far of the text that is coming in */
    uint32_t parts_of;         /* its number */
    struct timer go_on;        /* for @ready and @stalled; edge: for sockets to present */
    struct timer beat;
    int64_t heard_ms;
    uint64_t acks;      /* edge: sent; heart: heard */
    uint64_t committed; /* edge: so many of them are on disk */
    struct {
        uint64_t acks, mark;
    } marks[TRUNK_MARKS]; /* heart: oldest first */
    size_t n_marks;
    struct listener public, admin; /* heart: the listeners of carried connections */
    uint8_t key[TRUNK_KEY_BYTES];  /* wiped when the trunk is up */
    uint8_t challenge[TRUNK_NONCE_BYTES], answer[TRUNK_NONCE_BYTES];
    char name[TRUNK_NAME_BYTES + 1];  /* of this node */
    char other[TRUNK_NAME_BYTES + 1]; /* heart: the edge, once up; edge: the expected heart */
    struct map signers;               /* edge: struct known_signer by path, owned: signer.c */
    uint32_t newest_signer;           /* edge */
    struct trunk_handlers handlers;   /* edge */
    void *ctx;
    bool is_heart;
    bool up, lost, upgraded; /* upgraded: the edge has read the 101 */
    bool quiet;              /* heart: the edge sends no new request */
    bool holds;              /* edge: requests in CONN_HELD wait for room, new ones behind them */
    char why[160];           /* why the trunk is lost */
};

/* ---- trunk.c ---- */
void trunk_init(struct trunk *t, struct http_server *s);
void trunk_done(struct trunk *t);                    /* it carries no connection any more */
struct buf *trunk_out(struct trunk *t);              /* the batch of this turn: batch_add() to it */
void trunk_input(struct trunk *t, struct str bytes); /* calls take() for each message */
void trunk_take_batch(void *trunk, struct str whole); /* the same for a batch of a ring */
/* Marks the trunk as lost.  It is freed later, never inside this call. */
void trunk_fail(struct trunk *t, const char *why);
/* The node of an edge whose name is @other, node_owner(): what is before the slash. */
struct str trunk_node(struct str other);
void trunk_unstall(struct trunk *t); /* some of its output was sent */
/* Edge: true: no request may be sent now; edge_go_on() is called when one may. */
bool trunk_is_full(struct trunk *t);
size_t trunk_room(const struct trunk *t); /* bytes until it is full */
void trunk_mac(const struct trunk *t, const char *role, struct str name, uint8_t ret_mac[32]);
void trunk_send_proof(struct trunk *t, enum msg_what what, const char *role, struct str before);

/* NULL: heart: @number is taken; edge: there are too many. */
struct carried *carried_new(struct trunk *t, uint32_t number);
struct carried *carried_find(const struct trunk *t, uint32_t number); /* NULL: closed */
void carried_leave(struct carried *k);                                /* takes it off its trunk */
void carried_free(struct carried *k);                                 /* sends no message */
bool carried_take_credit(struct carried *k, struct str payload);      /* false: malformed */
bool carried_may_write(struct carried *k);           /* false: it is told when it may */
void carried_pay(struct carried *k, uint32_t taken); /* so many bytes of @owed are credited */
static inline void carried_say(struct carried *k, enum msg_what what, struct str payload)
{
    batch_add(trunk_out(k->trunk), k->number, what, payload);
}

/* ---- trunk.c: questions ---- */
void trunk_take_answer(struct trunk *t, const struct msg *m);   /* heart */
void trunk_lose_asks(struct trunk *t);                          /* heart: @t ends */
void trunk_take_question(struct trunk *t, const struct msg *m); /* edge */

/* ---- for conn.c ---- */
bool trunk_turn_end(struct http_server *s); /* closes the batches; true: a trunk has output */
void carried_settle(struct carried *k);     /* heart: what it can or waits for has changed */
void carried_let_go(struct conn *c);        /* @c is being closed */
void carried_flushed(struct carried *k);    /* some output was sent */

/* ---- trunk_heart.c ---- */
ssize_t carried_write(struct carried *k, const char *p, size_t n); /* as write_some() */
void heart_flushed(struct carried *k);
void heart_cut_all(struct trunk *t);          /* closes all connections on @t */
void heart_close_door(struct http_server *s); /* trunk_listen(), and the trunks that came so */
void heart_note_acks(struct trunk *t);
void heart_tell_committed(struct trunk *t);
void trunk_tell_going(struct http_server *s);         /* to all edges */
size_t trunk_count_idle(const struct http_server *s); /* draining: trunks that are @quiet; else
                                                       * all trunks */
void trunk_gone(struct conn *c);                      /* the trunk's own connection ended */
bool trunk_still_asks(const struct conn *c);          /* a drain must not close @c yet */
/* A message of a presentation, for the connection @c.  False: malformed. */
struct shown {
    struct buf keep, asked, rows, ids;
};
bool heart_take_shown(struct conn *c, struct shown *p, const struct msg *m);
void shown_done(struct shown *p);

/* An end of a trunk inside this process; it is up.  trunk_done() and free() end it. */
struct trunk *heart_open_ring(struct http_server *s, struct ring *to);
/* One of @n edges. */
struct trunk *edge_open_ring(struct http_server *s, struct ring *to, size_t n);

/* ---- signer.c ---- */
void signers_tell(struct trunk *t);                     /* heart: @t is up */
bool signer_take(struct trunk *t, const struct msg *m); /* edge; false: malformed */
void signers_forget(struct trunk *t);                   /* edge: @t ends */

/* ---- trunk_edge.c ---- */
size_t edge_holds(const struct carried *k);         /* bytes of a line that is not complete */
size_t edge_may_take(struct carried *k);            /* bytes that may be read for it */
void edge_input(struct conn *c, char *p, size_t n); /* in CONN_CARRIED */
void edge_flushed(struct carried *k);
void edge_close_parked(struct conn *c); /* no heart came in time */
void edge_present_soon(struct http_server *s);
void edge_on_present(struct timer *t); /* of http_server.presents */
void edge_release(struct conn *c);     /* no trunk came: handle @c in this process */
void edge_go_on(struct trunk *t);      /* it has room for requests that wait */
bool edge_carries(const struct conn *c, struct str head); /* the heart answers this request */
/* False: requests wait in CONN_HELD, or strangers could fill the trunk until it is cut. */
static inline bool edge_has_room(const struct http_server *s)
{
    return s->in_process || s->carrier == NULL || !trunk_is_full(s->carrier);
}
/* True: older requests wait for room, and a new one waits behind them. */
static inline bool edge_queues(const struct http_server *s)
{
    return !s->in_process && s->carrier != NULL && s->carrier->holds;
}
/* False: there is no trunk. */
bool edge_send_request(struct conn *c, struct http_req *r, bool whole);
void edge_send_body(struct conn *c, struct str piece, bool end);
