/* kept.h - an edge's memory of a gateway's socket, so that the socket can outlive the heart.
 *
 *      gateway --bytes--> kept_up() --TEXT and ACKS, in their order--> heart
 *      heart --DATA, SENT, RESULT--> kept_down() --whole frames--> gateway
 *      heart --COMMITTED--> kept_committed(): those acks need not be said again
 *
 *      the heart is lost --> kept_lost() --> the next heart: kept_present(), then its held acks
 *
 * Three things make a takeover exact.  Only whole frames go down the socket, so the next heart
 * never continues the frame of another one.  A delivery counts as sent when the frame that ends it
 * went down.  The edge holds an ack until the heart reports that the ack is on disk.
 *
 * A gateway that never acks is believed by its pongs, of which the edge hears no more.  So of many
 * deliveries without an ack the oldest are forgotten.  Should one of them wait after all, the next
 * heart sees that it was left out, and closes the socket (relay/session/pump.h: pump_resume()).
 *
 * No I/O and no clock: the simulator runs this file.  Private to src/net/ and the simulator.
 */
#pragma once
#include "net/batch.h"

struct json_parser;

#define KEPT_LINE_BYTES 16384  /* a longer line of a gateway passes in pieces, the rest unread */
#define KEPT_MAX_ROWS 65536    /* deliveries; and acks that are not on disk: then it is full */
#define KEPT_MAX_UNACKED 16384 /* deliveries, while no ack came; of more, the oldest go */
#define KEPT_MAX_ASKED 512     /* unanswered actions of one socket; of more, the oldest go */
#define KEPT_PIECE_BYTES 16384 /* of a message to the heart */

struct kept_socket {     /* zeroed: a socket that nobody knows yet */
    struct buf keep;     /* texts of MSG_KEEP; empty: the socket ends with the heart */
    struct buf personas; /* of its hellos: platform, US, bot, RS each */
    struct buf line;     /* an unfinished line of the gateway */
    struct buf frame;    /* an unfinished frame for the gateway */
    struct buf sent;     /* struct kept_row: maybe unacked, or their acks uncommitted */
    struct buf acked;    /* struct kept_ack: maybe uncommitted */
    struct buf asked;    /* struct kept_asked: unanswered */
    uint32_t frames;     /* whole frames that went down since the heart took the socket */
    uint32_t announced;  /* rows at the end of @sent whose frames have not come */
    bool remote;         /* the heart is another process: something may have to be presented */
    bool passing;        /* the rest of a long line passes unread */
    bool torn;           /* the last text that went down ends inside a line */
    bool closed;         /* a close frame went down */
    bool idle;           /* it said going_idle, and no hello since: it is about to close */
    bool missed;         /* a hello, or the id of an action, may have passed unread */
    bool has_acked;
    bool late_acks; /* a hello said so */
    bool full;      /* it ends with its heart */
};

struct kept_out { /* where messages for the heart go */
    struct buf *batch;
    uint32_t number;          /* of the connection */
    uint64_t *acks;           /* how many acks went over this trunk */
    struct json_parser *json; /* NULL: the lines are not read, except acks */
};

void kept_done(struct kept_socket *k); /* frees the members */

/* ---- while there is a heart ---- */

/* What the gateway said: appends messages to @out->batch.  The payload that was appended. */
size_t kept_up(struct kept_socket *k, struct str bytes, const struct kept_out *out);
/* Orders of the heart.  False: malformed. */
bool kept_keep(struct kept_socket *k, struct str payload);
bool kept_sent(struct kept_socket *k, struct str payload);
bool kept_result(struct kept_socket *k, struct str payload);
/* Bytes for the gateway: appends the frames that are whole to @to. */
void kept_down(struct kept_socket *k, struct str bytes, struct buf *to);
/* The first @n acks of the trunk are on disk. */
void kept_committed(struct kept_socket *k, uint64_t n);

/* ---- when the heart is lost ---- */

/* Forgets what was under way from it.  False: the socket must be closed. */
bool kept_lost(struct kept_socket *k);
/* Appends the presentation, then the acks that may be uncommitted. */
void kept_present(struct kept_socket *k, const struct kept_out *out);
