/* notify.h - telling the service manager that we are well, again and again.
 *
 * With WatchdogSec in the unit the manager restarts a server it has not heard of in time.  It hears
 * from a timer of the loop, so a loop that is stuck is silent; and the timer looks at the store
 * before it speaks, so a store whose threads are stuck is silent too.  A database that is away is
 * not that: its writes fail, and fail in time. */
#pragma once
#include "base/clock.h"

struct store;

struct watchdog {        /* embedded */
    struct clock *clock; /* borrowed */
    struct store *store; /* borrowed */
    struct timer timer;
    int64_t every_ms; /* 0: nobody asked */
};
/* Feed the manager's watchdog from now on, when it has one for us (WATCHDOG_USEC, WATCHDOG_PID). */
void watchdog_start(struct watchdog *w, struct clock *clock, struct store *store);
void watchdog_stop(struct watchdog *w);
