/* notify.h - feeds the watchdog of the service manager.
 *
 * With WatchdogSec in the unit, systemd restarts a server that sends no sign of life in time.  A
 * timer of the loop sends it, so a loop that hangs is restarted.  The timer checks the store first,
 * so a server whose store threads hang is restarted too.  An unreachable database is no reason for
 * a restart: its writes fail in time. */
#pragma once
#include "base/clock.h"

struct watchdog {        /* embedded */
    struct clock *clock; /* borrowed */
    struct store *store; /* borrowed */
    struct timer timer;
    int64_t every_ms; /* 0: no watchdog */
};
/* Starts the timer, if the manager watches this process (WATCHDOG_USEC, WATCHDOG_PID). */
void watchdog_start(struct watchdog *w, struct clock *clock, struct store *store);
void watchdog_stop(struct watchdog *w);
