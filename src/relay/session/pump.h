/* pump.h - what goes down the receiver's socket, and when.
 *
 * Deliveries go in order of their ids, several packed into one WebSocket message, at most `window`
 * messages unacked.  Nothing goes down one socket twice: a session remembers the newest id it was
 * sent; everything up to there is settled by that socket's acks, or sent again by the next socket.
 *
 *      mailbox slot --body: in memory, or read ahead--> message --> flight (the window)
 *                                                          '-----> sent_ids (bufferId -> slot id)
 *
 * A delivery that was on two sockets when they were lost travels alone, so that one that kills its
 * reader does not take its neighbours along.  A delivery that no ack will settle is followed by a
 * ping: see acking in session.h.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fetches;
struct instance;
struct mailbox;
struct pump;
struct relay;

#define PUMP_MESSAGE_MAX 1000000u /* the real client refuses messages above 1 MiB */
#define PUMP_SOLO_ATTEMPTS 2

struct pump *pump_new(void);
void pump_free(struct pump *p); /* NULL is fine */

void pump_want(struct instance *i); /* something may be sent: look when the turn ends */
/* A parked delivery is back in its old place: a receiver that has passed it by goes back for it,
 * if it was certainly never sent it. */
void pump_again(struct instance *i, uint64_t id);
void pump_all(struct relay *r); /* at the end of a turn */

/* ---- flight: the messages on one socket that are not settled yet ----
 *
 * A message is settled when all its deliveries are.  Allocated with the first message and freed
 * when the socket has been quiet for a while, so an idle socket pays nothing. */

struct flight_message {
    uint64_t first, last; /* ids */
    uint32_t left;        /* deliveries not settled */
};
struct flight {
    uint16_t n, cap;
    bool solo; /* the one message is a suspect: nothing goes beside it */
    bool soft; /* something waits for the pong to ping_no */
    uint32_t ping_no;
    uint64_t ping_upto;          /* the newest id that pong settles */
    struct flight_message msg[]; /* oldest first */
};

/* Add a message; *@f is made or grown.  @n deliveries between @first and @last. */
void flight_add(struct flight **f, uint64_t first, uint64_t last, uint32_t n);
/* A delivery is settled or will not be waited for; unknown ids do nothing.  True: a message left
 * the window. */
bool flight_forget(struct flight *f, uint64_t id);
uint64_t flight_rows(const struct flight *f);
static inline size_t flight_count(const struct flight *f)
{
    return f != NULL ? f->n : 0;
}

/* ---- sent_ids: which delivery a bufferId means ----
 *
 * Acks name deliveries by their bufferId, mailboxes by the number of the row.  This table of one
 * instance has the pairs that went down any of its sockets and are not settled: 16 bytes each, room
 * for twice as many, no memory for an instance that has nothing unsettled. */

struct sent_id {
    uint64_t tag; /* keyed hash of the bufferId; 0: free */
    uint64_t id;
};
struct sent_ids {       /* zeroed: empty */
    struct sent_id *at; /* owned; cap is a power of two */
    uint32_t cap, n;
};

/* Adding a pair twice is fine.  @mb tells which ids are unsettled when the table must grow. */
void sent_ids_add(struct sent_ids *t, struct mailbox *mb, uint64_t tag, uint64_t id);
/* Also forgets the pair.  0: never sent since the start, or settled. */
uint64_t sent_ids_take(struct sent_ids *t, uint64_t tag);
void sent_ids_done(struct sent_ids *t);

/* ---- fetch: bodies of a backlog, read from the store ahead of the pump ----
 *
 * At most two reads per instance: one being used up, one on its way.  All instances together keep
 * within FETCH_TOTAL_BYTES; an instance that finds no room is pumped again when there is. */

#define FETCH_BYTES (128u << 10)
#define FETCH_TOTAL_BYTES (64u << 20)

struct fetches *fetches_new(void);
void fetches_free(struct relay *r);  /* the store holds none of them any more */
void fetch_drop(struct instance *i); /* the pump stops or starts elsewhere */
