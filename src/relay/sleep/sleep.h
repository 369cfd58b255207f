/* sleep.h - an instance falls asleep and wakes up again: the state, and the pokes that end it.
 *
 *      AWAKE --going_idle on its receiver--> ASLEEP --a hello on any socket--> AWAKE
 *
 * Asleep, deliveries are only kept, and the wake URL is poked for them.  It is durable: part of the
 * instance's record.  The gateway is told going_idle_ack when that record is on disk and so is all
 * that was accepted before; then it may be shut down, and nothing it was sent is lost.
 *
 * A socket is asleep too once it said going_idle (SESSION_ASLEEP): nothing is sent on it any more.
 * The instance may be awake all the same, when another socket receives.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/bucket.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"

struct instance;
struct relay;
struct session;

struct sleep {                 /* part of an instance */
    struct bucket_level often; /* how often it may still fall asleep */
    uint64_t mark;             /* the newest delivery when it last fell asleep */
    int64_t since_ms;          /* wall; when it fell asleep last; 0: never */
    uint32_t owed;             /* sockets that wait for a going_idle_ack */
    bool asleep;               /* written by sleep.c only */
};

void sleep_load(struct instance *i, bool asleep, int64_t since_ms); /* from the record */

void sleep_begin(struct session *s);  /* it said going_idle */
void sleep_end(struct session *s);    /* it said hello, and receives from now on */
void sleep_leave(struct session *s);  /* it closes: nobody is owed an ack any more */
void sleep_check(struct instance *i); /* tell whoever may go to sleep by now */

/* ---- wake: ringing agents that sleep or have gone away ----
 *
 * An instance that is asleep or away, has a wake URL and has mail waiting is poked once.  The poke
 * is repeated for as long as that is so: after the cooldown when it failed, and after pauses that
 * double, from the cooldown to WAKE_LONGEST_MS, when it succeeded and brought nobody back.  New
 * mail waits for the cooldown only.
 *
 *      QUIET --wake_want()--> WAITING --due--> POKING --answered--> WAITING (until the pause ends)
 *        ^------- live again, or nothing waits --------'
 *
 * Of one tenant WAKE_AT_ONCE are poked at a time, the others queue: URLs that never answer take no
 * descriptors that others need.
 *
 * The instance's record has the time of the last poke and the number of pokes in vain, so a restart
 * changes nothing; wake_after_start() rings every instance with mail.  A new wake URL is tried at
 * once, or when the cooldown is over.
 *
 * The waker must have answered, or forgotten, every poke before the relay is freed. */

#define WAKE_LONGEST_MS (15 * 60 * 1000ll)
#define WAKE_START_STEP_MS 5 /* after a start: 200 pokes a second */
#define WAKE_AT_ONCE 256     /* of one tenant */
#define WAKE_REDIAL_MS 2000  /* a client that lost its socket is back after 1 s by itself */

struct wake {
    struct timer timer;    /* armed: WAITING */
    struct list line;      /* linked: it is due, and others of its tenant are poked */
    int64_t last_ms;       /* monotonic time of the last poke */
    int64_t not_before_ms; /* monotonic */
    int64_t last_wall_ms;  /* 0: never poked */
    char *problem;         /* owned; of the last poke; NULL: fine */
    uint8_t in_vain;       /* pokes in a row that succeeded and brought nobody back */
    bool poking;
};

struct wakes { /* tenants that are poked for */
    struct map lines;
};
void wakes_done(struct wakes *w);

void wake_init(struct wake *w);
void wake_done(struct instance *i);
/* Something waits, or the receiver has gone.  Does nothing unless a poke is due some time. */
void wake_want(struct instance *i);
void wake_for_mail(struct instance *i); /* something new has come */
/* Its socket has gone: give it time to come back by itself.  A sleeper that gets something new is
 * poked at once all the same. */
void wake_redialling(struct instance *i);
void wake_stop(struct instance *i); /* it is here; before sleep_end(), which writes the record */
/* From now on, for gateways that change: observers.h. */
void wake_listen(struct relay *r);
/* At start, when all is loaded: whoever has mail and may be poked is, one after the other. */
void wake_after_start(struct relay *r);
/* What the instance's record says: when it was poked last (wall; 0: never), how many in vain. */
void wake_load(struct instance *i, int64_t last_wall_ms, int64_t in_vain);
