/* session.h - one WebSocket of a gateway: its state, its liveness, and the frames that it sends.
 *
 *      bytes --session_data()--> lines --frame_read()--> frames --one handler per type--> relay
 *
 *      NEW --hello--> RECEIVING <--pong-- MUTE      no pong for pong_patience_ms
 *                       ^    ^----ack---- DEAF      no ack for ack_patience_ms
 *                       |
 *       newest closed   |   a newer socket shook hands
 *                      OLD <----------- RECEIVING, MUTE, DEAF
 *
 *      every state but CLOSING --going_idle--> ASLEEP --hello--> RECEIVING
 *                          (the receiver remains the receiver until its going_idle_ack)
 *      every state --close--> CLOSING, freed by session_closed()
 *
 * The instance's receiver is the session in RECEIVING, MUTE or DEAF.  An instance has at most one,
 * and the pump runs only in RECEIVING.  OLD and ASLEEP sockets still get the results of their own
 * requests, and their acks count.
 *
 * A MUTE or DEAF socket is away: the pump stops and the instance is poked.  No delivery is sent
 * twice on one socket.  After three times ack_patience_ms without a pong, or without an ack, the
 * socket is closed.  A NEW or OLD socket is closed after old_socket_ms.
 *
 * A gateway whose hello has late_acks acks when it has finished its work, which may take hours.  It
 * is never DEAF and never taken for one that does not ack; only its pongs tell that it lives.
 *
 * relay.h declares the calls of the WebSocket route (session_open(), session_data() ...); the rest
 * of src/relay calls the functions below.  A session is small because most are idle: fields that
 * only busy sessions need are allocated on demand.
 */
#pragma once
#include "base/list.h"
#include "base/log.h"
#include "relay/relay.h"
#include "relay/session/pump.h"

enum session_state {
    SESSION_NEW,
    SESSION_RECEIVING,
    SESSION_MUTE,
    SESSION_DEAF,
    SESSION_ASLEEP,
    SESSION_OLD,
    SESSION_CLOSING,
};

struct acking_signs {     /* evidence of whether the gateway acks; part of its session */
    uint32_t answer_hash; /* of the message that the gateway answered last */
    uint8_t answers;      /* distinct deliveries answered without any ack */
    bool acked;           /* this socket has acked at least once */
    bool never;           /* the gateway never acks */
    bool spoke;           /* the gateway sent an action while deliveries were unacked */
};

struct again {      /* redriven ids below sent_id that this socket never had, sorted */
    uint16_t n, at; /* its length, and the first that is still to be sent */
    uint64_t ids[];
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
    struct flight *flight; /* owned; NULL: nothing unacked */
    struct buf *line;      /* owned; an unfinished line; NULL: none */
    struct again *again;   /* owned; NULL: none */
    char *personas;        /* owned; the identities of its hellos */
    uint64_t sent_id;      /* newest id sent on this socket */
    uint64_t counted_id;   /* attempts are counted up to this id */
    int64_t next_ping_ms;
    int64_t quiet_since_ms;     /* oldest unanswered ping */
    int64_t ack_since_ms;       /* last ack, or the first message after all were acked */
    int64_t since_ms;           /* time of opening; for an OLD session, when it became OLD */
    int64_t malformed_since_ms; /* when the current run of bad frames began */
    uint32_t number;            /* order of opening */
    uint32_t ping_no, pong_no;
    uint32_t sleep_version; /* record version that must be on disk before going_idle_ack */
    uint32_t late_bytes;    /* with late_acks: of deliveries that it may not have read */
    uint32_t late_ping;     /* the last ping before the newest of them: a later one's pong proves */
    struct acking_signs acking;
    uint16_t n_requests;
    uint8_t state;                        /* enum session_state; written by session_enter() only */
    uint8_t malformed;                    /* bad frames in the current run */
    bool sleep_owed : 1, sleep_acked : 1; /* going_idle_ack is due, was sent: sleep.h */
    bool inside : 1;                      /* an agent in this process, without a socket: inside.h */
    bool pulls : 1;                       /* the agent reads its mail by a cursor: inside.h */
    bool late_acks : 1;                   /* its hello said so: no ack is overdue */
    bool skips_line : 1;                  /* the line is too long: dropped up to its end */
};

struct sessions *sessions_new(void);
void sessions_listen(struct relay *r); /* subscribes to revocations: observers.h */
void sessions_free(struct relay *r);
struct list *sessions_by_age(struct relay *r);
uint32_t session_newest(const struct relay *r); /* number of the session opened last */

void session_enter(struct session *s, enum session_state next);
void session_close(struct session *s, enum close_reason why); /* idempotent */

/* Makes @s the receiver after its hello; the previous receiver becomes OLD. */
void session_receive(struct session *s);

/* Where @id is in @a, or belongs. */
size_t again_seek(const struct again *a, uint64_t id);
/* True when @id went down this socket. */
bool session_has_sent(const struct session *s, uint64_t id);
/* True when @id went down a socket of @i that is still open, so an ack may follow. */
bool session_anyone_has(const struct instance *i, uint64_t id);
/* @id is settled: removes it from the flights of all sockets of @i. */
void session_forget_all(struct instance *i, uint64_t id);

/* True while nothing is sent to @s, because its gateway may still be starting: settle_ms. */
bool session_settles(const struct session *s);
void session_arm(struct session *s); /* call when a deadline may have moved nearer */
void session_ping(struct session *s);
void session_alive(struct session *s, bool acked); /* a pong came, or (@acked) an ack */

/* ---- acking: does this gateway acknowledge deliveries? ----
 *
 *      unknown --an ack--> ACKS, remembered as long as bellhop runs
 *         |                  ^
 *         | answers people,  | an ack
 *         v and never acks   |
 *      NEVER ACKS, remembered on the gateway's record: all its deliveries are soft (pump.h)
 */

/* ---- personas: the (platform, bot) pairs a socket may speak as ---- */

#define PERSONA_MAX 16 /* per socket; further hellos are answered but not remembered */

/* The first pair is the default. */
void persona_add(struct session *s, struct str platform, struct str bot);
/* True when the socket announced this pair.  An empty @bot matches any; @ret_bot receives it. */
bool persona_find(const struct session *s, struct str platform, struct str bot,
                  struct str *ret_bot);
bool persona_default(const struct session *s, struct str *ret_platform, struct str *ret_bot);
