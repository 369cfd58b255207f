/* wake.h - ringing agents that sleep or have gone away.
 *
 * One poke when something waits for an instance that is asleep or away and has a wake URL, then at
 * most one per cooldown for as long as that is so, whether pokes succeed or not.
 *
 *      QUIET --wake_want()--> WAITING --due--> POKING --answered--> WAITING (until the cooldown
 * ends)
 *        ^------- live again, or nothing waits --------'
 *
 * The waker must have answered, or forgotten, every poke before the relay is freed. */
#pragma once
#include "base/clock.h"

struct instance;

#define WAKE_REDIAL_MS 2000 /* a client that lost its socket is back after 1 s by itself */

struct wake {
    struct timer timer;    /* armed: WAITING */
    int64_t last_ms;       /* monotonic time of the last poke */
    int64_t not_before_ms; /* monotonic */
    int64_t last_wall_ms;  /* 0: never poked */
    char *problem;         /* owned; of the last poke; NULL: fine */
    bool poking;
};

void wake_init(struct wake *w);
void wake_done(struct instance *i);
/* Something waits, or the receiver has gone.  Does nothing unless a poke is due some time. */
void wake_want(struct instance *i);
/* Its socket has gone: give it time to come back by itself.  A sleeper that gets something new is
 * poked at once all the same. */
void wake_redialling(struct instance *i);
void wake_stop(struct instance *i); /* it is here */
