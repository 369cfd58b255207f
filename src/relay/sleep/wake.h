/* wake.h - ringing agents that sleep or have gone away.
 *
 * One poke when something waits for an instance that is asleep or away and has a wake URL.  It is
 * repeated for as long as that is so: after the cooldown when it failed, and after pauses that
 * double, from the cooldown to WAKE_LONGEST_MS, when it succeeded and brought nobody back.  New
 * mail waits for the cooldown only.
 *
 *      QUIET --wake_want()--> WAITING --due--> POKING --answered--> WAITING (until the pause ends)
 *        ^------- live again, or nothing waits --------'
 *
 * Of one tenant WAKE_AT_ONCE are poked at a time, the others stand in line: URLs that never answer
 * take no descriptors that others need.
 *
 * A restart changes nothing of that: when the last poke was and how many were in vain is in the
 * instance's record, and wake_after_start() rings everybody for whom something waits.
 * Another wake URL is tried at once, or when the cooldown is over.
 *
 * The waker must have answered, or forgotten, every poke before the relay is freed. */
#pragma once
#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"

struct instance;
struct relay;

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
/* From now on, for gateways that change: on the bus, until it is closed. */
void wake_listen(struct relay *r);
/* At start, when all is loaded: whoever has mail and may be poked is, one after the other. */
void wake_after_start(struct relay *r);
/* What the instance's record says: when it was poked last (wall; 0: never), how many in vain. */
void wake_load(struct instance *i, int64_t last_wall_ms, int64_t in_vain);
