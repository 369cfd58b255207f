/* Promises of cli/notify.h. */
#include "unit.h"
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/mem.h"
#include "base/service.h"
#include "cli/notify.h"
#include "store/store.h"

struct manager { /* the service manager's end */
    int fd;
    char path[64], heard[64];
    struct clock *clock;
    int64_t now_ms;
};

static int64_t age_us; /* of the store's oldest write */

static void stats(struct store *st, struct store_stats *ret)
{
    *ret = (struct store_stats){.queue_age_us = age_us, .healthy = true};
}

static const struct store_ops ops = {.stats = stats};
static struct store store = {.ops = &ops};

static int setup(void **state)
{
    struct manager *m = calloc(1, sizeof *m);
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    snprintf(m->path, sizeof m->path, "/tmp/bellhop-notify-%d", (int)getpid());
    snprintf(a.sun_path, sizeof a.sun_path, "%s", m->path);
    unlink(m->path);
    m->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(m->fd, (struct sockaddr *)&a, sizeof a), 0);
    setenv("NOTIFY_SOCKET", m->path, 1);
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    m->clock = clock_new();
    m->now_ms = clock_now_ms(m->clock);
    age_us = 0;
    *state = m;
    return 0;
}

static int teardown(void **state)
{
    struct manager *m = *state;

    close(m->fd);
    unlink(m->path);
    clock_free(m->clock);
    free(m);
    return 0;
}

/* The next word, or "" when there is none. */
static const char *hear(struct manager *m)
{
    ssize_t n = recv(m->fd, m->heard, sizeof m->heard - 1, 0);

    m->heard[n > 0 ? n : 0] = '\0';
    return m->heard;
}

static void after(struct manager *m, int64_t ms)
{
    m->now_ms += ms;
    clock_set(m->clock, m->now_ms, m->now_ms);
    clock_turn(m->clock);
}

static void words_reach_the_manager(void **state)
{
    struct manager *m = *state;

    service_tell("READY=1");
    assert_string_equal(hear(m), "READY=1");
    setenv("NOTIFY_SOCKET", "relative", 1);
    service_tell("READY=1");
    unsetenv("NOTIFY_SOCKET");
    service_tell("READY=1");
    assert_string_equal(hear(m), "");
}

static void the_watchdog_is_fed_twice_in_its_patience(void **state)
{
    struct manager *m = *state;
    struct watchdog w;

    setenv("WATCHDOG_USEC", "2000000", 1);
    watchdog_start(&w, m->clock, &store);
    assert_string_equal(hear(m), ""); /* not inside the call */
    after(m, 1);
    assert_string_equal(hear(m), "WATCHDOG=1");
    after(m, 900);
    assert_string_equal(hear(m), "");
    after(m, 101);
    assert_string_equal(hear(m), "WATCHDOG=1");
    watchdog_stop(&w);
    after(m, 5000);
    assert_string_equal(hear(m), "");
}

static void a_stuck_store_is_not_called_well(void **state)
{
    struct manager *m = *state;
    struct watchdog w;

    setenv("WATCHDOG_USEC", "2000000", 1);
    watchdog_start(&w, m->clock, &store);
    age_us = 61000000;
    after(m, 1);
    after(m, 1000);
    assert_string_equal(hear(m), "");
    age_us = 5000000; /* slow, or away, is not stuck */
    after(m, 1000);
    assert_string_equal(hear(m), "WATCHDOG=1");
    watchdog_stop(&w);
}

static void nobody_is_fed_who_did_not_ask(void **state)
{
    static const char *const patience[] = {NULL, "", "0", "x", "100"};
    struct manager *m = *state;
    struct watchdog w;

    for (size_t i = 0; i < ARRAY_LEN(patience); i++) {
        if (patience[i] != NULL)
            setenv("WATCHDOG_USEC", patience[i], 1);
        watchdog_start(&w, m->clock, &store);
        after(m, 100000);
        assert_string_equal(hear(m), "");
        watchdog_stop(&w);
    }
    setenv("WATCHDOG_USEC", "2000000", 1);
    setenv("WATCHDOG_PID", "1", 1); /* somebody else's */
    watchdog_start(&w, m->clock, &store);
    after(m, 100000);
    assert_string_equal(hear(m), "");
    watchdog_stop(&w);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

UNIT(cli_test_notify)
{
    const struct CMUnitTest tests[] = {
        T(words_reach_the_manager),
        T(the_watchdog_is_fed_twice_in_its_patience),
        T(a_stuck_store_is_not_called_well),
        T(nobody_is_fed_who_did_not_ask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
