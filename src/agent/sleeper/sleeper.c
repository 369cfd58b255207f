/* sleeper.c - design.  (sleeper.h has the contract and the picture.)
 *
 * Only the connector decides whether an instance is idle.  Every step towards sleep can still end
 * in a wake: a message that arrives meanwhile waits at the connector.  The sleeper asks the
 * connector once more after the process has gone; from then on the connector pokes. */
#include "agent/sleeper/sleeper.h"
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include "agent/sleeper/tell.h"
#include "base/service.h"

#define LIVE_PATIENCE_MS 60000
#define SETTLE_PATIENCE_MS 3000  /* time for the connector to notice the closed socket */
#define ANSWER_PATIENCE_MS 15000 /* timeout of a request to the connector */
#define PROBE_PATIENCE_MS 8000
#define REFUSED_MS 60000 /* pause before the same request is repeated */
#define BACKOFF_MIN_MS 500
#define BACKOFF_MAX_MS 30000
#define STEADY_MS 30000

#define B(s) (1u << s)
static const struct {
    const char *name;
    unsigned next; /* bit set of states that may follow */
} states[] = {
    [LOOKING] = {"looking", B(STARTING) | B(CHECKING) | B(ASLEEP) | B(LEAVING)},
    [STARTING] = {"starting", B(STARTING) | B(AWAKE) | B(ASLEEP) | B(LEAVING)},
    [AWAKE] = {"awake", B(CHECKING) | B(STARTING) | B(LEAVING)},
    [CHECKING] = {"checking", B(AWAKE) | B(DRAINING) | B(ASLEEP) | B(STARTING) | B(LEAVING)},
    [DRAINING] = {"draining", B(SETTLING) | B(STARTING) | B(LEAVING)},
    [SETTLING] = {"settling", B(ASLEEP) | B(STARTING) | B(LEAVING)},
    [ASLEEP] = {"asleep", B(STARTING) | B(LEAVING)},
    [LEAVING] = {"leaving", 0},
};

/* The only place that writes s->state. */
static void enter(struct sleeper *s, enum sleeper_state next, const char *why)
{
    char status[128];

    if (!(states[s->state].next & B(next)))
        abort();
    s->state = next;
    s->since_ms = now_ms();
    say("%s%s%s", states[next].name, *why != '\0' ? ": " : "", why);
    snprintf(status, sizeof status, "READY=1\nSTATUS=%s", states[next].name);
    service_tell(status);
}

static void ask_in(struct sleeper *s, int64_t ms)
{
    s->ask_at_ms = now_ms() + ms;
}

/* ---- waking ---- */

static void start(struct sleeper *s, const char *why)
{
    int64_t now = now_ms();

    s->start_at_ms = INT64_MAX;
    s->knocked = s->hurry = s->probing = false;
    ask_cancel(&s->ask);
    if (s->child.stopped) {
        child_thaw(&s->child);
    } else if (s->child.pid == 0 && !child_start(&s->child)) {
        s->failures++;
        s->start_at_ms = now + BACKOFF_MAX_MS;
    }
    s->started_ms = now;
    s->wakes++;
    enter(s, STARTING, why);
    if (!s->starts_only)
        ask_in(s, s->look_ms);
}

/* When the schedule wakes the process; INT64_MAX: never. */
static int64_t scheduled_ms(const struct sleeper *s)
{
    time_t wall = time(NULL);
    struct tm tm;

    if (s->every_ms > 0)
        return now_ms() + s->every_ms;
    if (s->at_minute < 0 || localtime_r(&wall, &tm) == NULL)
        return INT64_MAX;
    int wait_s = s->at_minute * 60 - (tm.tm_hour * 3600 + tm.tm_min * 60 + tm.tm_sec);
    return now_ms() + (wait_s > 0 ? wait_s : wait_s + 86400) * INT64_C(1000);
}

static void fall_asleep(struct sleeper *s)
{
    s->sleeps++;
    s->ask_at_ms = INT64_MAX;
    s->wake_at_ms = scheduled_ms(s);
    s->knocked = false;
    enter(s, ASLEEP,
          s->freeze && s->child.pid > 0 ? "stopped until a poke arrives" : "until a poke arrives");
}

/* ---- falling asleep ---- */

static void refuse(struct sleeper *s, const char *why)
{
    if (strcmp(s->refusal, why) != 0)
        warn("the process stays awake: %s", why);
    snprintf(s->refusal, sizeof s->refusal, "%s", why);
    s->hurry = false;
    if (s->child.pid == 0) {
        start(s, why);
        return;
    }
    if (s->state == CHECKING)
        enter(s, AWAKE, why);
    ask_in(s, s->idle_ms < REFUSED_MS ? s->idle_ms : REFUSED_MS);
}

static void check_wake_url(struct sleeper *s, const struct answer *r)
{
    unsigned char raw[(PROBE_NONCE - 1) / 2];

    if (s->wake_url == NULL && r->wake_url[0] == '\0') {
        refuse(s, "no wake URL is registered (bellhop gateway set ID --wake-url URL)");
        return;
    }
    snprintf(s->url, sizeof s->url, "%s", s->wake_url != NULL ? s->wake_url : r->wake_url);
    if (getrandom(raw, sizeof raw, 0) != (ssize_t)sizeof raw)
        return;
    for (size_t i = 0; i < sizeof raw; i++)
        snprintf(s->nonce + 2 * i, 3, "%02x", raw[i]);
    s->reached = false;
    s->probing = ask_start(&s->ask, "probe", s->url, s->nonce);
    if (s->state != CHECKING)
        enter(s, CHECKING, "testing the wake URL");
    ask_in(s, PROBE_PATIENCE_MS);
}

static void drain(struct sleeper *s)
{
    s->refusal[0] = '\0';
    enter(s, DRAINING, s->hurry ? "on SIGUSR2" : "idle");
    child_signal(&s->child, s->drain_signal);
    ask_in(s, s->freeze ? s->look_ms : INT64_C(86400000));
}

static bool is_still(const struct answer *r)
{
    return r->unacked == 0 && r->entries == 0;
}

static bool is_idle(const struct sleeper *s, const struct answer *r)
{
    int64_t up_ms = now_ms() - s->started_ms;
    int64_t idle_ms = r->idle_ms < up_ms ? r->idle_ms : up_ms;

    return is_still(r) && (s->hurry || idle_ms >= s->idle_ms);
}

/* ---- answers of the connector, state by state ---- */

static void heard_looking(struct sleeper *s, const struct answer *r)
{
    if (r->ok && strcmp(r->state, "asleep") == 0 && is_still(r))
        check_wake_url(s, r); /* then stay asleep, without a first start */
    else
        start(s, r->ok ? "" : r->problem);
}

static void heard_starting(struct sleeper *s, const struct answer *r)
{
    int64_t now = now_ms();

    if (r->ok && strcmp(r->state, "live") == 0) {
        enter(s, AWAKE, "connected");
        ask_in(s, s->look_ms);
        return;
    }
    if (now - s->started_ms > LIVE_PATIENCE_MS && s->refusal[0] == '\0') {
        snprintf(s->refusal, sizeof s->refusal, "the process does not connect%s%s",
                 r->ok ? "" : ": ", r->ok ? "" : r->problem);
        warn("the process stays awake: %s", s->refusal);
    }
    ask_in(s, now - s->started_ms > 5000 ? 2000 : s->look_ms);
}

static void heard_awake(struct sleeper *s, const struct answer *r)
{
    int64_t left_ms = s->idle_ms - (r->idle_ms < s->idle_ms ? r->idle_ms : s->idle_ms);

    if (!r->ok) {
        refuse(s, r->problem);
    } else if (strcmp(r->state, "live") != 0) {
        refuse(s, "the process is not connected");
    } else if (is_idle(s, r)) {
        check_wake_url(s, r);
    } else {
        int64_t up_left_ms = s->started_ms + s->idle_ms - now_ms();
        left_ms = left_ms > up_left_ms ? left_ms : up_left_ms;
        ask_in(s, s->hurry || left_ms < s->look_ms ? s->look_ms : left_ms);
    }
}

/* The second answer: by now the probe has arrived, or it is lost. */
static void heard_checking(struct sleeper *s, const struct answer *r)
{
    bool there = strcmp(r->state, s->child.pid > 0 ? "live" : "asleep") == 0;

    if (!r->ok)
        refuse(s, r->problem);
    else if (s->child.pid == 0 && there && is_still(r))
        fall_asleep(s);
    else if (s->child.pid == 0)
        start(s, "messages wait");
    else if (there && is_idle(s, r))
        drain(s);
    else {
        enter(s, AWAKE, "a message arrived");
        ask_in(s, s->look_ms);
    }
}

/* The process is dormant but still runs: only with --mode freeze. */
static void heard_draining(struct sleeper *s, const struct answer *r)
{
    if (r->ok && strcmp(r->state, "asleep") == 0 && is_still(r) && !s->knocked) {
        child_freeze(&s->child);
        enter(s, SETTLING, "stopped");
        ask_in(s, 0); /* a message may have arrived between the answer and the stop */
    } else if (r->ok && strcmp(r->state, "asleep") == 0) {
        child_thaw(&s->child); /* SIGCONT makes it reconnect */
        start(s, "messages wait");
    } else {
        ask_in(s, s->look_ms);
    }
}

static void heard_settling(struct sleeper *s, const struct answer *r)
{
    bool asleep = r->ok && strcmp(r->state, "asleep") == 0;

    if (s->knocked || (asleep && r->entries > 0)) {
        start(s, s->knocked ? "poked meanwhile" : "messages wait");
    } else if (asleep && is_still(r)) {
        fall_asleep(s);
    } else if (now_ms() - s->since_ms > (r->ok ? SETTLE_PATIENCE_MS : ANSWER_PATIENCE_MS)) {
        snprintf(s->refusal, sizeof s->refusal, "%s",
                 r->ok ? "the process exited without telling the connector" : r->problem);
        warn("the process stays awake: %s", s->refusal);
        start(s, "the connector did not confirm");
    } else {
        ask_in(s, s->look_ms);
    }
}

void sleeper_heard(struct sleeper *s, const struct answer *r)
{
    static void (*const by_state[])(struct sleeper *, const struct answer *) = {
        [LOOKING] = heard_looking,
        [STARTING] = heard_starting,
        [AWAKE] = heard_awake,
        [CHECKING] = heard_checking,
        [DRAINING] = heard_draining,
        [SETTLING] = heard_settling,
        [ASLEEP] = NULL,
        [LEAVING] = NULL,
    };

    if (s->probing) {
        s->probing = false;
        if (s->state != CHECKING)
            return;
        if (s->reached)
            ask_in(s, 0); /* continue: is it still idle? */
        else
            refuse(s, r->ok ? "the wake URL does not lead to this sleeper" : r->problem);
        return;
    }
    if (by_state[s->state] != NULL)
        by_state[s->state](s, r);
}

/* ---- other inputs ---- */

void sleeper_knocked(struct sleeper *s)
{
    switch (s->state) {
    case LOOKING:
    case ASLEEP:
        start(s, "poked");
        break;
    case DRAINING:
    case SETTLING:
        s->knocked = true;
        break;
    case CHECKING:
        if (s->child.pid == 0)
            start(s, "poked");
        break;
    case STARTING:
    case AWAKE:
    case LEAVING:
        break;
    }
}

static int64_t clock_backoff_ms(unsigned failures)
{
    int64_t ms = BACKOFF_MIN_MS;

    while (failures-- > 1 && ms < BACKOFF_MAX_MS)
        ms *= 2;
    return ms < BACKOFF_MAX_MS ? ms : BACKOFF_MAX_MS;
}

int sleeper_ended(struct sleeper *s, bool well, const char *how)
{
    switch (s->state) {
    case LEAVING:
        say("left: %s", how);
        return well ? 0 : 1;
    case DRAINING:
        if (!well)
            warn("the process failed while shutting down: %s", how);
        enter(s, SETTLING, how);
        ask_cancel(&s->ask);
        ask_in(s, 0);
        return -1;
    case ASLEEP: /* a frozen process was killed: stays asleep, the next wake starts it again */
        warn("the stopped process ended: %s", how);
        return -1;
    case SETTLING:
        return -1;
    case STARTING:
        if (!s->starts_only)
            break;
        if (!well) /* the connector pokes again until the agent connects */
            warn("the command failed: %s", how);
        fall_asleep(s);
        return -1;
    case LOOKING:
    case AWAKE:
    case CHECKING:
        break;
    }
    s->failures = now_ms() - s->started_ms > STEADY_MS ? 1 : s->failures + 1;
    s->start_at_ms = now_ms() + clock_backoff_ms(s->failures);
    warn("the process ended: %s; starting it again in %" PRId64 " ms", how,
         clock_backoff_ms(s->failures));
    if (s->state != STARTING)
        enter(s, STARTING, "it ended");
    s->started_ms = s->start_at_ms;
    return -1;
}

int sleeper_leave(struct sleeper *s)
{
    bool told = s->state == DRAINING && !s->freeze; /* a second signal would skip its grace time */

    if (s->state == LEAVING) { /* a second signal: exit at once */
        child_signal(&s->child, SIGKILL);
        return 1;
    }
    ask_cancel(&s->ask);
    s->ask_at_ms = s->start_at_ms = INT64_MAX;
    enter(s, LEAVING, "");
    service_tell("STOPPING=1");
    if (s->child.pid == 0)
        return 0;
    if (!told)
        child_signal(&s->child, SIGTERM);
    if (s->child.stopped)
        child_thaw(&s->child);
    return -1;
}

void sleeper_woken(struct sleeper *s)
{
    if (s->state == ASLEEP)
        start(s, "signalled");
}

void sleeper_hurried(struct sleeper *s)
{
    if (s->state == AWAKE) {
        s->hurry = true;
        ask_in(s, 0);
    }
}

void sleeper_tick(struct sleeper *s)
{
    int64_t now = now_ms();

    if (s->state == ASLEEP && now >= s->wake_at_ms)
        start(s, "scheduled");
    if (now >= s->start_at_ms)
        start(s, "again");
    if (s->state == DRAINING && now - s->since_ms > s->drain_ms && s->child.pid > 0) {
        warn("the process did not exit in time and was killed; the connector keeps unacknowledged "
             "messages");
        child_signal(&s->child, SIGKILL);
        s->since_ms = now;
    }
    if (now >= s->ask_at_ms && s->ask.pid == 0) {
        s->ask_at_ms = INT64_MAX;
        if (!ask_start(&s->ask, "instance", NULL, NULL))
            ask_in(s, 1000);
    }
}

void sleeper_begin(struct sleeper *s)
{
    s->drain_signal = s->freeze ? SIGUSR1 : SIGTERM;
    s->look_ms = s->idle_ms / 8 < 50 ? 50 : s->idle_ms / 8 > 500 ? 500 : s->idle_ms / 8;
    s->start_at_ms = s->wake_at_ms = INT64_MAX;
    s->state = LOOKING;
    if (s->starts_only)
        fall_asleep(s);
    else
        ask_in(s, 0);
}

/* ---- status ---- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int sleeper_wait_ms(const struct sleeper *s)
{
    int64_t due = least(s->start_at_ms, knock_due_ms(&s->knock)), now = now_ms();

    if (s->ask.pid != 0)
        due = least(due, s->ask.until_ms);
    else
        due = least(due, s->ask_at_ms);
    if (s->state == ASLEEP)
        due = least(due, s->wake_at_ms);
    if (s->state == DRAINING)
        due = least(due, s->since_ms + s->drain_ms);
    if (due == INT64_MAX)
        return -1;
    return due <= now ? 0 : due - now > 3600000 ? 3600000 : (int)(due - now) + 1;
}

void sleeper_describe(const struct sleeper *s, char *out, size_t n)
{
    snprintf(out, n,
             "{\"healthy\":true,\"state\":\"%s\",\"pid\":%d,\"sleeps\":%" PRIu64
             ",\"wakes\":%" PRIu64 ",\"maySleep\":%s}\n",
             states[s->state].name, (int)s->child.pid, s->sleeps, s->wakes,
             s->refusal[0] == '\0' ? "true" : "false");
}
