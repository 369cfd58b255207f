/* trunk_priv.h - the internals of a trunk: frames, and the connections on it.  Private to src/net/.
 *
 *      frame:  connection (4 bytes), what (1), length (3), then so many bytes; numbers big-endian
 *
 * The porter counts the connections, and a number returns only after four billion others.  So a
 * late frame for an old connection never reaches a newer one.
 *
 * There is one struct carried at each end of a connection.  At the porter its conn is a real socket
 * in CONN_CARRIED.  At the keeper its conn has no socket, and reads and writes here instead:
 *
 *      conn->io.events   the events that conn.c waits for      can   those that are possible now
 *      if both share a bit, the connection is in trunk->ready, and conn_ready() is called soon
 */
#pragma once
#include "base/map.h"
#include "net/conn.h"
#include "net/trunk.h"

enum trunk_what {
    TRUNK_CHALLENGE = 1, /* keeper: a number (16 bytes) */
    TRUNK_PROOF,         /* porter: a number (16), HMAC (32), its name */
    TRUNK_WELCOME,       /* keeper: HMAC (32), its name */
    TRUNK_CONNECT,       /* porter: flags (1), the client's address (0, 4 or 16) */
    TRUNK_DATA,
    TRUNK_END,     /* porter: the client closed its sending side */
    TRUNK_CLOSE,   /* the connection is closed, at both ends */
    TRUNK_CREDIT,  /* that many bytes (4) were consumed */
    TRUNK_LET_IN,  /* keeper: the connection counts for a credential, not for its address */
    TRUNK_PING,    /* porter */
    TRUNK_PONG,    /* keeper */
    TRUNK_LEAVING, /* porter: trunk_leave() */
    TRUNK_GOING,   /* keeper: shutting down, carry no new connection; porter: confirmed */
    /* from here on: questions */
    TRUNK_QUESTION, /* keeper: a part of a question */
    TRUNK_ASK,      /* keeper: the last part of a question */
    TRUNK_UNASK,    /* keeper: the question is cancelled */
    TRUNK_ANSWER,   /* porter: a part of an answer */
    TRUNK_TOLD,     /* porter: the last part of an answer */
};
enum trunk_flag { TRUNK_TLS = 1, TRUNK_NO_CERT = 2, TRUNK_ADMIN = 4 };

enum {
    TRUNK_HEAD_BYTES = 8,
    TRUNK_MAX_PAYLOAD = 64 * 1024,
    TRUNK_NONCE_BYTES = 16,
    TRUNK_MAC_BYTES = 32,
    TRUNK_MAX_PROOF =
        TRUNK_NONCE_BYTES + TRUNK_MAC_BYTES + TRUNK_NAME_BYTES, /* limit before the proof */
    TRUNK_HIGH_BYTES = 8 << 20, /* unsent bytes at which all connections stop writing */
    TRUNK_LOW_BYTES = 4 << 20,
    TRUNK_MAX_CONNS = 1 << 20,
};

struct trunk_frame {
    uint32_t number;
    uint8_t what;
    struct str payload; /* borrowed */
};

struct carried {
    struct trunk *trunk; /* borrowed */
    struct conn *conn;   /* borrowed; owns this struct */
    struct list ready;   /* trunk->ready */
    struct list stalled; /* trunk->stalled */
    struct buf in;       /* keeper: received bytes that conn.c has not read */
    uint32_t number;
    uint32_t credit; /* bytes we may send */
    uint32_t owed;   /* bytes received (keeper: read) and not credited to the other side yet */
    uint8_t can;
    bool ended; /* no more bytes will arrive */
};

struct trunk {
    struct http_server *server; /* borrowed */
    struct conn *conn;          /* keeper: the connection that carries the trunk */
    struct tcp_client *tcp;     /* porter: owned */
    struct list link;           /* keeper: server->trunks */
    void (*take)(struct trunk *t, const struct trunk_frame *f);
    struct map carried;         /* by number: struct carried, owned */
    uint32_t last_number;       /* porter: of a connection */
    struct list ready, stalled; /* carried.ready, .stalled */
    struct list asks;           /* keeper: struct trunk_ask */
    uint32_t last_ask, n_asks;  /* keeper */
    struct buf in;              /* an incomplete frame */
    struct buf parts;           /* the parts so far of the text that is coming in */
    uint32_t parts_of;          /* its number */
    struct timer go_on;         /* for @ready and @stalled */
    struct timer beat;
    int64_t heard_ms;
    struct listener public, admin; /* keeper: the listeners of carried connections */
    uint8_t key[TRUNK_KEY_BYTES];  /* wiped when the trunk is up */
    uint8_t challenge[TRUNK_NONCE_BYTES], answer[TRUNK_NONCE_BYTES];
    char name[TRUNK_NAME_BYTES + 1];  /* of this node */
    char other[TRUNK_NAME_BYTES + 1]; /* keeper: the porter, once up; porter: expected keeper */
    struct trunk_handlers handlers;   /* porter */
    void *ctx;
    bool up, lost, upgraded; /* upgraded: the porter has read the 101 */
    bool quiet;              /* keeper: the porter opens no new connection */
    char why[160];           /* why the trunk is lost */
};

/* ---- trunk.c ---- */
void trunk_init(struct trunk *t, struct http_server *s);
void trunk_done(struct trunk *t); /* it carries no connection any more */
void trunk_send(struct trunk *t, uint32_t number, enum trunk_what what, struct str payload);
void trunk_input(struct trunk *t, struct str bytes); /* calls take() for each whole frame */
/* Marks the trunk as lost.  It is freed later, never inside this call. */
void trunk_fail(struct trunk *t, const char *why);
void trunk_unstall(struct trunk *t); /* some of its output was sent */

/* NULL: keeper: @number is taken; porter: there are too many. */
struct carried *carried_new(struct trunk *t, uint32_t number);
struct carried *carried_find(const struct trunk *t, uint32_t number); /* NULL: closed */
void carried_free(struct carried *k);                                 /* sends no frame */
bool carried_take_credit(struct carried *k, struct str payload);      /* false: malformed */
void carried_cut_all(struct trunk *t); /* closes all connections on @t */

/* ---- trunk_conn.c: the proof ---- */
void trunk_mac(const struct trunk *t, const char *role, struct str name, uint8_t ret_mac[32]);

/* ---- trunk.c: questions ---- */
void trunk_take_answer(struct trunk *t, const struct trunk_frame *f);   /* keeper */
void trunk_lose_asks(struct trunk *t);                                  /* keeper: @t ends */
void trunk_take_question(struct trunk *t, const struct trunk_frame *f); /* porter */

/* ---- for conn.c ---- */
void carried_settle(struct carried *k); /* keeper: what it can or waits for has changed */
ssize_t carried_read(struct carried *k, char *p, size_t n);        /* as read_some() */
ssize_t carried_write(struct carried *k, const char *p, size_t n); /* as write_some() */
void carried_let_go(struct conn *c);                               /* @c is being closed */
size_t carried_may_take(const struct carried *k); /* porter: bytes that may be read for it */
void carried_forward(struct carried *k, struct str bytes); /* porter: bytes of the client */
void carried_flushed(struct carried *k);                   /* porter: some output was sent */
bool trunk_wants(struct conn *c, struct str head);         /* porter: true: @c is carried now */
bool trunk_waits(struct conn *c, struct str head);    /* true: @c waits for a trunk, CONN_HELD */
void trunk_release(struct conn *c);                   /* no trunk came: handle @c in this process */
void trunk_tell_going(struct http_server *s);         /* keeper: sends TRUNK_GOING to all porters */
size_t trunk_count_idle(const struct http_server *s); /* draining: trunks that are @quiet; else
                                                       * all trunks */
void trunk_gone(struct conn *c);                      /* keeper: the trunk's own connection ended */
