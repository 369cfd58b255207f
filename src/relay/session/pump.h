/* pump.h - the deliveries on a socket: sent to the receiver, acked, or lost with the socket.
 *
 *      mailbox slot --body: in memory, or read ahead--> message --> flight (the window)
 *                                                          '-----> sent_ids (bufferId -> slot id)
 *
 * Deliveries go in order of their ids, several packed into one WebSocket message, with at most
 * `window` messages unacked, or PUMP_LATE_MAX deliveries if the gateway acks late.  No delivery
 * goes down one socket twice: a session remembers the newest id it sent.  Deliveries up to that id
 * are settled by acks, or sent on the next socket.
 *
 * A delivery that was on PUMP_SOLO_ATTEMPTS lost sockets is sent alone: if it crashes its reader,
 * its neighbours are not affected.
 *
 * A delivery is soft when no ack is expected for it.  The pong to a ping sent behind a soft
 * delivery proves that the gateway has read the delivery, and settles it.  Soft are: all deliveries
 * to a gateway that never acks (session.h); passthroughs, which released gateways never ack; and
 * everything while live_acks is off.
 *
 * Modules that change a mailbox or a session call pump_want(); relay.c calls pump_all() at the end
 * of the turn.  Acks and pongs settle deliveries; so does a row that the store has lost.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/str.h"

struct instance;
struct mailbox;
struct relay;
struct session;

#define PUMP_MESSAGE_MAX 1000000u /* the real client refuses messages above 1 MiB */
#define PUMP_SOLO_ATTEMPTS 2
#define PUMP_LATE_MAX 512 /* unacked deliveries on the socket of a gateway that acks late */

struct pump *pump_new(void);
void pump_free(struct relay *r); /* the store must be closed */

void pump_want(struct instance *i); /* schedules @i for pump_all(); idempotent */
/* The parked delivery @id was redriven.  If the receiver has already passed @id and certainly never
 * sent it, the receiver sends it next. */
void pump_again(struct instance *i, uint64_t id);
void pump_all(struct relay *r); /* at the end of a turn */

/* An ack came: settles its delivery, and soft deliveries before it. */
void pump_acked(struct session *s, struct str buffer_id);
/* @rows, by row, went down the socket of @s before this process had it.  Called before the first
 * pump.  False: an earlier delivery still waits, and could only go down the socket out of order. */
struct session_row;
bool pump_resume(struct session *s, const struct session_row *rows, size_t n);
/* A pong came: settles the soft deliveries that were sent before its ping. */
void pump_ponged(struct session *s, uint32_t number);
/* Deliveries up to @last on this socket are soft from now on.  Sends the ping. */
void pump_soften(struct session *s, uint64_t last);
/* The socket is lost: counts an attempt for each unsettled delivery on it, and parks a delivery
 * after max_attempts. */
void pump_lost(struct session *s);

/* ---- flight: the messages on one socket that are not settled yet ----
 *
 * A message is settled when all its deliveries are.  A flight is allocated with the first message
 * and freed by a later ping once it is empty, so an idle socket needs no memory for it. */

struct flight_message {
    uint64_t first, last; /* ids */
    uint32_t left;        /* deliveries not settled */
};
struct flight {
    uint16_t n, cap;
    bool solo; /* the only message is a suspect: no other message is sent beside it */
    bool soft; /* soft deliveries wait for the pong to ping_no */
    uint32_t ping_no;
    uint64_t ping_upto;          /* the newest id that this pong settles */
    struct flight_message msg[]; /* oldest first */
};

/* Adds a message with @n deliveries between @first and @last; allocates or grows *@f. */
void flight_add(struct flight **f, uint64_t first, uint64_t last, uint32_t n);
/* Removes a settled or parked delivery; ignores unknown ids.  True: a message left the window. */
bool flight_forget(struct flight *f, uint64_t id);
uint64_t flight_rows(const struct flight *f);
static inline size_t flight_count(const struct flight *f)
{
    return f != NULL ? f->n : 0;
}

/* ---- sent_ids: maps a bufferId to a delivery ----
 *
 * Acks name a delivery by its bufferId, mailboxes by its row id.  Each instance has a table of the
 * pairs that went down any of its sockets and may be unsettled.  The table has 16 bytes per entry,
 * is at most half full, and is freed when the mailbox is empty or the last socket has closed. */

struct sent_id {
    uint64_t tag; /* from the bufferId's last digits, or its keyed hash; 0: free */
    uint64_t id;
};
struct sent_ids {       /* zeroed: empty */
    struct sent_id *at; /* owned; cap is a power of two */
    uint32_t cap, n;
};

/* Idempotent.  When the table is full, ids that are no longer in @mb are dropped. */
void sent_ids_add(struct sent_ids *t, struct mailbox *mb, uint64_t tag, uint64_t id);
/* Removes the pair and returns its id.  0: never sent since the start, or settled. */
uint64_t sent_ids_take(struct sent_ids *t, uint64_t tag);
void sent_ids_done(struct sent_ids *t);

/* ---- fetch: reads the bodies of a backlog from the store, ahead of the pump ----
 *
 * An instance has at most two reads: one being consumed, one read-ahead.  All reads together stay
 * within FETCH_TOTAL_BYTES; an instance that finds no room is pumped again when memory is freed. */

#define FETCH_BYTES (128u << 10)
#define FETCH_TOTAL_BYTES (64u << 20)

void fetch_drop(struct instance *i); /* discards the reads: the pump stops or changes position */
