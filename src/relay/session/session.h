/* session.h - one WebSocket of a gateway: its state, whether it is alive, whether it acks.
 *
 *      NEW --hello--> RECEIVING <--pong-- MUTE      no pong for pong_patience_ms
 *                       ^    ^----ack---- DEAF      no ack for ack_patience_ms
 *                       |
 *       newest closed   |   a newer socket shook hands
 *                      OLD <----------- RECEIVING, MUTE, DEAF
 *
 *      every state but CLOSING --going_idle--> ASLEEP --hello--> RECEIVING
 *      every state --close--> CLOSING, freed by session_closed()
 *
 * The instance's receiver is the session in RECEIVING, MUTE or DEAF: there is one at most, and only
 * in RECEIVING does the pump run.  OLD and ASLEEP sockets still get results and interrupts of their
 * own requests, and their acks count.
 *
 * A MUTE or DEAF socket is away: the pump stops and the instance is poked, but nothing that was
 * sent on the socket is sent on it again.  After three times that silence the socket is closed.
 *
 * A session is small because most are quiet: what only busy ones need is allocated when needed.
 */
#pragma once
#include "base/list.h"
#include "base/log.h"
#include "relay/relay.h"
#include "relay/session/pump.h"

struct acking;
struct action;
struct instance;
struct line_reader;
struct sessions;
struct slot;

enum session_state {
    SESSION_NEW,
    SESSION_RECEIVING,
    SESSION_MUTE,
    SESSION_DEAF,
    SESSION_ASLEEP,
    SESSION_OLD,
    SESSION_CLOSING,
};

struct acking_signs {     /* what one socket has shown; part of its session */
    uint32_t answer_hash; /* of the message it answered last */
    uint8_t answers;      /* distinct deliveries it answered without ever acking */
    bool acked;           /* it has acked something */
    bool never;           /* its gateway never acks */
    bool spoke;           /* it sent something after a delivery */
};

struct session {
    struct log log;
    struct instance *inst;    /* borrowed */
    struct wire *wire;        /* borrowed until session_closed() */
    const struct gateway *gw; /* borrowed from the facts, which keep tombstones */
    struct list by_inst;      /* instance->sessions */
    struct list by_age;       /* sessions->by_age */
    struct list requests;     /* requests.h */
    struct timer tick;
    struct flight *flight;      /* owned; NULL: nothing unacked */
    struct line_reader *reader; /* owned; NULL: no unfinished line */
    uint64_t *again;     /* owned; redriven ids below sent_id that this socket was never sent */
    char *personas;      /* owned; what it said hello for: frames.h */
    uint64_t sent_id;    /* newest id sent on it */
    uint64_t counted_id; /* attempts are counted up to here */
    int64_t next_ping_ms;
    int64_t quiet_since_ms;     /* oldest unanswered ping */
    int64_t ack_since_ms;       /* last ack, or the first message after all were acked */
    int64_t since_ms;           /* when it was opened, later when it became OLD */
    int64_t malformed_since_ms; /* when the current run of bad frames began */
    uint32_t number;            /* order of opening */
    uint32_t ping_no, pong_no;
    uint32_t sleep_version; /* of the instance's record that its going_idle waits for */
    struct acking_signs acking;
    uint16_t n_requests, n_again;
    uint8_t state;                        /* enum session_state; written by session_enter() only */
    uint8_t malformed;                    /* bad frames in the current run */
    bool sleep_owed : 1, sleep_acked : 1; /* its going_idle_ack: sleep.h */
    bool inside : 1;                      /* no socket: inside.h */
};

struct sessions *sessions_new(void);
void sessions_listen(struct relay *r); /* for revocations: observers.h */
void sessions_free(struct relay *r);
struct list *sessions_by_age(struct relay *r);
/* True: a line about what a gateway did may be logged now. */
bool session_may_log(struct relay *r, uint64_t *ret_skipped);

void session_enter(struct session *s, enum session_state next);
void session_close(struct session *s, enum close_reason why); /* twice is normal */

/* The session is the newest to shake hands: it receives from now on. */
void session_receive(struct session *s);

/* True when @id went down this socket. */
bool session_has_sent(const struct session *s, uint64_t id);
/* True when @id went down any socket of @i that is still open: its ack may come. */
bool session_anyone_has(const struct instance *i, uint64_t id);
/* Given up, for the reason @why: no socket gets it until it is redriven. */
void session_park(struct session *s, struct slot *slot, struct str why);
/* @id is settled: no socket of @i waits for it. */
void session_forget_all(struct instance *i, uint64_t id);

void session_arm(struct session *s); /* its next deadline may have come nearer */
void session_ping(struct session *s);
void session_alive(struct session *s, bool acked); /* a pong, or an ack */

/* ---- acking: does this gateway acknowledge what it is sent? ----
 *
 *      unknown --an ack--> ACKS, remembered as long as bellhop runs
 *         |                  ^
 *         | answers people,  | an ack
 *         v and never acks   |
 *      NEVER ACKS, remembered on the gateway's record
 *
 * What a gateway that never acks was sent is settled when the gateway has read it, which the pong
 * to a later ping tells.  Passthroughs are settled that way for every gateway, because released
 * gateways never ack them, and so is everything with live_acks off.  Such a delivery is soft.
 */
struct acking *acking_new(void);
void acking_free(struct acking *t); /* NULL is fine */

/* True when only a pong, or a later ack, settles @slot on this socket. */
bool acking_is_soft(const struct session *s, const struct slot *slot);
/* A message with something soft in it went out; @last is its newest id. */
void acking_sent_soft(struct session *s, uint64_t last);

void acking_on_ack(struct session *s, uint64_t id); /* settles what is soft before @id */
/* Notices a gateway that answers deliveries without acking them. */
void acking_on_action(struct session *s, const struct action *a);
