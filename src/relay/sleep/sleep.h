/* sleep.h - puts an instance to sleep at its request, and pokes its wake URL when mail waits.
 *
 *      AWAKE --going_idle on its receiver--> ASLEEP --a hello on any socket--> AWAKE
 *
 * While an instance sleeps, deliveries stay in its mailbox and its wake URL is poked.  The sleep
 * state is durable, as part of the instance's record.  The gateway gets going_idle_ack once that
 * record and all deliveries accepted before going_idle are on disk.  Then the gateway may shut down
 * without losing mail.
 *
 * Until its going_idle_ack the socket remains the receiver and gets deliveries; they do not delay
 * the ack.  From the ack on the socket is asleep too (SESSION_ASLEEP) and gets no more deliveries.
 * The instance stays awake if another socket is the receiver.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/bucket.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"
#include "core/contract.h"

struct instance;
struct relay;
struct session;

struct sleep {                 /* part of an instance */
    struct bucket_level often; /* rate limit for falling asleep */
    uint64_t mark;             /* newest delivery id at the last going_idle */
    int64_t since_ms;          /* wall time of falling asleep last; 0: never */
    uint32_t owed;             /* sockets that wait for a going_idle_ack */
    bool asleep;               /* written by sleep.c only */
};

void sleep_load(struct instance *i, bool asleep, int64_t since_ms); /* from the record */

void sleep_begin(struct session *s);  /* the gateway sent going_idle */
void sleep_end(struct session *s);    /* the gateway sent hello and becomes the receiver */
void sleep_leave(struct session *s);  /* the socket closes: its going_idle_ack is cancelled */
void sleep_check(struct instance *i); /* sends each going_idle_ack whose data is on disk */

/* ---- wake: pokes agents that are asleep or away ----
 *
 * An instance is poked while it is asleep or away, has a wake URL, and has mail waiting.  Pokes
 * repeat with exponential backoff.  The pause starts at the cooldown and doubles, up to
 * WAKE_LONGEST_MS, with each poke that succeeded and brought no agent back.  A failed poke does not
 * lengthen the pause.  New mail waits for the cooldown only.
 *
 *      QUIET --wake_want()--> WAITING --due--> POKING --answered--> WAITING (until the pause ends)
 *        ^------- live again, or nothing waits --------'
 *
 * At most WAKE_AT_ONCE instances of a tenant are poked at a time, the others queue.  So URLs that
 * never answer do not use up the file descriptors of other tenants.
 *
 * The instance's record has the time of the last poke and the number of pokes in vain, so the
 * backoff survives a restart.  A changed gateway, with maybe a new wake URL, waits for the cooldown
 * only.
 *
 * The waker must have answered or dropped every poke before the relay is freed. */

#define WAKE_LONGEST_MS ((int64_t)CONTRACT_WAKE_LONGEST_MS)
#define WAKE_START_STEP_MS 5 /* after a start: 200 pokes a second */
#define WAKE_AT_ONCE 256     /* of one tenant */
#define WAKE_REDIAL_MS 2000  /* a client that lost its socket reconnects after 1 s by itself */

struct wake {              /* made when a poke is planned, or a record tells of one */
    struct instance *inst; /* borrowed; owns us */
    struct timer timer;    /* armed: WAITING */
    struct list queued;    /* linked: due, queued behind other pokes of its tenant */
    int64_t last_ms;       /* monotonic time of the last poke */
    int64_t last_wall_ms;  /* 0: never poked */
    char *problem;         /* owned; error of the last poke; NULL: none */
    uint8_t in_vain;       /* consecutive pokes that succeeded and brought no agent back */
    bool poking;           /* a poke is pending */
};

struct wakes {
    struct map queues; /* tenant -> its queue of pokes, while there is one */
};
void wakes_done(struct wakes *w);

const struct wake *wake_of(const struct instance *i); /* what is known of its pokes; never NULL */
void wake_done(struct instance *i);                   /* forgets it */
/* Schedules a poke, with the backoff, if the instance needs one. */
void wake_want(struct instance *i);
void wake_for_mail(struct instance *i); /* new mail: schedules a poke after the cooldown only */
/* The socket is lost: gives the client WAKE_REDIAL_MS to reconnect by itself.  New mail for a
 * sleeping instance does not wait for that. */
void wake_redialling(struct instance *i);
/* The agent is connected: cancels the pokes.  Call before sleep_end(), which writes the record. */
void wake_stop(struct instance *i);
/* Subscribes to changes of gateways: observers.h. */
void wake_listen(struct relay *r);
/* Called at start: schedules the pokes of all instances that need one, WAKE_START_STEP_MS apart. */
void wake_after_start(struct relay *r);
/* Restores from the record: time of the last poke (wall; 0: never), number of pokes in vain. */
void wake_load(struct instance *i, int64_t last_wall_ms, int64_t in_vain);
