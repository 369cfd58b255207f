/* notify.c - see notify.h. */
#include "cli/notify.h"
#include <stdlib.h>
#include <unistd.h>
#include "base/log.h"
#include "base/mem.h"
#include "base/service.h"
#include "base/str.h"
#include "http/front.h"

static void on_timer(struct timer *t)
{
    struct watchdog *w = container_of(t, struct watchdog, timer);

    if (health_store_is_stuck(w->store))
        log_error(NULL,
                  "a thread of the store is stuck: the service manager is not told we are well");
    else
        service_tell("WATCHDOG=1");
    timer_set(w->clock, &w->timer, w->every_ms);
}

void watchdog_start(struct watchdog *w, struct clock *clock, struct store *store)
{
    const char *us = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    uint64_t n;

    *w = (struct watchdog){.clock = clock, .store = store};
    timer_init(&w->timer, on_timer);
    if (!str_to_u64(str_of(us), &n) || n < 2000)
        return;
    w->every_ms = (int64_t)(n / 2000); /* twice per timeout, as systemd recommends */
    if (pid != NULL && (!str_to_u64(str_of(pid), &n) || n != (uint64_t)getpid()))
        return; /* meant for another process */
    timer_set(clock, &w->timer, 0);
}

void watchdog_stop(struct watchdog *w)
{
    if (w->clock != NULL)
        timer_stop(w->clock, &w->timer);
}
