/* trunk_priv.h - the inside of a trunk: frames, and the connections on it.  Private to src/net/.
 *
 *      frame:  connection (4 bytes), what (1), length (3), then so many bytes; numbers big-endian
 *
 * A connection's number is the porter's: the lower NUMBER_BITS are its place, those above count how
 * often the place was used, so that what is late for the one before is not taken for the next.
 *
 * One struct carried at each end of a connection.  At the porter its conn is a real socket in
 * CONN_CARRIED; at the keeper the conn has no socket, and reads and writes here instead:
 *
 *      events   what conn.c wants to hear of      can   what is possible now
 *      both have something in common: it is in trunk->ready, and conn_ready() is called soon */
#pragma once
#include "net/conn.h"
#include "net/trunk.h"

enum trunk_what {
    TRUNK_CHALLENGE = 1, /* keeper: a number (16 bytes) */
    TRUNK_PROOF,         /* porter: a number (16), HMAC (32), its name */
    TRUNK_WELCOME,       /* keeper: HMAC (32), who it is */
    TRUNK_CONNECT,       /* porter: flags (1), the client's address (0, 4 or 16) */
    TRUNK_DATA,
    TRUNK_END,     /* porter: the client says no more */
    TRUNK_CLOSE,   /* it is over, for both */
    TRUNK_CREDIT,  /* so many bytes (4) were taken */
    TRUNK_LET_IN,  /* keeper: it counts for a credential, not for its address */
    TRUNK_PING,    /* porter */
    TRUNK_PONG,    /* keeper */
    TRUNK_LEAVING, /* porter: trunk_leave() */
    TRUNK_GOING,   /* keeper: it goes down, bring nobody else; porter: understood */
    /* from here on: questions */
    TRUNK_QUESTION, /* keeper: a part of one */
    TRUNK_ASK,      /* keeper: the last part */
    TRUNK_UNASK,    /* keeper: nobody waits for the answer any more */
    TRUNK_ANSWER,   /* porter: a part of one */
    TRUNK_TOLD,     /* porter: the last part */
};
enum trunk_flag { TRUNK_TLS = 1, TRUNK_NO_CERT = 2, TRUNK_ADMIN = 4 };

enum {
    TRUNK_HEAD_BYTES = 8,
    TRUNK_MAX_PAYLOAD = 64 * 1024,
    TRUNK_NONCE_BYTES = 16,
    TRUNK_MAC_BYTES = 32,
    TRUNK_MAX_PROOF = TRUNK_NONCE_BYTES + TRUNK_MAC_BYTES + TRUNK_NAME_BYTES, /* of a stranger */
    TRUNK_HIGH_BYTES = 8 << 20, /* waiting for the trunk: nobody writes on */
    TRUNK_LOW_BYTES = 4 << 20,
    NUMBER_BITS = 20,
    TRUNK_MAX_CONNS = 1 << NUMBER_BITS,
};

struct trunk_frame {
    uint32_t number;
    uint8_t what;
    struct str payload; /* borrowed */
};

struct carried {
    struct trunk *trunk; /* borrowed */
    struct conn *conn;   /* borrowed; it ends with it */
    struct list ready;   /* trunk->ready */
    struct list stalled; /* trunk->stalled */
    struct buf in;       /* keeper: what has come and was not read */
    uint32_t number;
    uint32_t credit; /* bytes we may send */
    uint32_t owed;   /* bytes that came; keeper: were read; the other side was not told yet */
    uint8_t events, can;
    bool ended; /* nothing more will come */
};

struct carried_slot {
    struct carried *is; /* owned; NULL: free */
    uint32_t uses, next_free;
};

struct trunk {
    struct http_server *server; /* borrowed */
    struct loop *loop;          /* borrowed */
    struct conn *conn;          /* keeper: it is over this one */
    struct tcp_client *tcp;     /* porter: owned */
    struct list link;           /* keeper: server->trunks */
    void (*take)(struct trunk *t, const struct trunk_frame *f);
    struct carried_slot *slots; /* owned */
    uint32_t n_slots, free_slot;
    size_t n_carried;
    struct list ready, stalled; /* carried.ready, .stalled */
    struct list asks;           /* keeper: struct trunk_ask; porter: struct question */
    uint32_t last_ask, n_asks;  /* keeper */
    struct buf in;              /* a frame that is not whole */
    struct timer go_on;         /* for @ready and @stalled */
    struct timer beat;
    int64_t heard_ms;
    struct listener public, admin; /* keeper: what its connections were accepted by */
    uint8_t key[TRUNK_KEY_BYTES];  /* wiped when it is up */
    uint8_t challenge[TRUNK_NONCE_BYTES], answer[TRUNK_NONCE_BYTES];
    char name[TRUNK_NAME_BYTES + 1];  /* ours */
    char other[TRUNK_NAME_BYTES + 1]; /* keeper: the porter's, once it is up; porter: expected */
    struct trunk_handlers handlers;   /* porter */
    void *ctx;
    bool up, lost, upgraded; /* upgraded: the porter has read the 101 */
    bool quiet;              /* keeper: nobody new comes over it */
    char why[160];           /* why it is lost */
};

/* ---- trunk.c ---- */
void trunk_init(struct trunk *t, struct http_server *s, struct loop *loop);
void trunk_done(struct trunk *t); /* no connection is on it */
void trunk_send(struct trunk *t, uint32_t number, enum trunk_what what, struct str payload);
void trunk_send_u32(struct trunk *t, uint32_t number, enum trunk_what what, uint32_t value);
void trunk_input(struct trunk *t, struct str bytes); /* calls take() for each whole frame */
/* It cannot go on.  Ends when nobody of us is on the stack. */
void trunk_fail(struct trunk *t, const char *why);
bool trunk_is_full(const struct trunk *t);
void trunk_unstall(struct trunk *t); /* something of it has left */
void trunk_mac(const struct trunk *t, const char *role, struct str name, uint8_t ret_mac[32]);

struct carried *carried_new(struct trunk *t, uint32_t number);        /* NULL: the place is taken */
struct carried *carried_find(const struct trunk *t, uint32_t number); /* NULL: over */
void carried_free(struct carried *k);                                 /* nobody is told */
bool carried_take_credit(struct carried *k, struct str payload);      /* false: nonsense */
void carried_cut_all(struct trunk *t); /* their connections are closed */

/* ---- trunk.c: questions ---- */
void trunk_take_answer(struct trunk *t, const struct trunk_frame *f);   /* keeper */
void trunk_lose_asks(struct trunk *t);                                  /* keeper: it ends */
void trunk_take_question(struct trunk *t, const struct trunk_frame *f); /* porter */
void trunk_drop_questions(struct trunk *t);                             /* porter: it ends */

/* ---- for conn.c ---- */
void carried_watch(struct carried *k, int events);                 /* keeper */
ssize_t carried_read(struct carried *k, char *p, size_t n);        /* as read_some() */
ssize_t carried_write(struct carried *k, const char *p, size_t n); /* as write_some() */
void carried_let_go(struct conn *c);                               /* it is being closed */
size_t carried_may_take(const struct carried *k); /* porter: bytes that may be read for it */
void carried_forward(struct carried *k, struct str bytes); /* porter: the client said so */
void carried_ended(struct carried *k);                     /* porter: it says no more */
void carried_flushed(struct carried *k);                   /* porter: some of the output left */
void carried_told_in(struct carried *k);                   /* keeper: conn_let_in() */
bool trunk_wants(struct conn *c, struct str head);    /* porter: true: it is carried from now on */
bool trunk_waits(struct conn *c, struct str head);    /* the same, when there is one: CONN_HELD */
void trunk_release(struct conn *c);                   /* nobody came for it: it is handled here */
void trunk_tell_going(struct http_server *s);         /* keeper: to all its porters */
size_t trunk_count_idle(const struct http_server *s); /* trunks over which nobody new will come,
                                                       * if it goes down; else all */
bool carried_is_silent(const struct carried *k); /* keeper: it has said nothing that is not read */
void trunk_gone(struct conn *c);                 /* keeper: the trunk's own connection ended */
