/* socket.c - the socket thread: its phases, its timers, its turn.  (client.h draws the phases.)
 *
 * Each turn of the thread: follow gw->want, run timers, send what is due, wait, read.  The thread
 * never runs the application's code, so the application cannot delay results or acks.
 *
 * Acks are held back for up to ACK_PATIENCE_MS while more deliveries wait for the events thread, so
 * that one WebSocket message acknowledges a burst.  With an empty queue acks are sent at once. */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "base/mem.h"
#include "base/rand.h"
#include "client.h"

#define ACK_PATIENCE_MS 2
#define ACKS_PER_MESSAGE 256
#define CLOSE_PATIENCE_MS 2000
#define CHOKED_RETRY_MS 250
#define FOREVER INT64_MAX

#define B(p) (1u << GWC_##p)
static const struct {
    const char *name;
    unsigned next; /* bit set of phases that may follow */
    enum bhgw_state state;
} phases[] = {
    [GWC_OFF] = {"off", B(OFF) | B(DIALING), BHGW_OFF},
    [GWC_DIALING] = {"dialing", B(UPGRADING) | B(BACKOFF) | B(OFF), BHGW_CONNECTING},
    [GWC_UPGRADING] = {"upgrading", B(HELLO) | B(BACKOFF) | B(OFF), BHGW_CONNECTING},
    [GWC_HELLO] = {"hello", B(READY) | B(DRAINING) | B(CLOSING) | B(BACKOFF) | B(OFF),
                   BHGW_CONNECTING},
    [GWC_READY] = {"ready", B(DRAINING) | B(CLOSING) | B(BACKOFF) | B(OFF), BHGW_READY},
    [GWC_DRAINING] = {"draining", B(CLOSING) | B(OFF), BHGW_DRAINING},
    [GWC_CLOSING] = {"closing", B(BACKOFF) | B(OFF), BHGW_DRAINING},
    [GWC_BACKOFF] = {"backoff", B(DIALING) | B(OFF), BHGW_WAITING},
};

/* The socket is being replaced, because it skipped deliveries. */
static bool is_replacing(const struct bhgw *gw)
{
    return gw->phase == GWC_CLOSING && gw->choked && gw->want == GWC_WANT_UP;
}

static enum bhgw_state state_of(const struct bhgw *gw)
{
    if (is_replacing(gw))
        return BHGW_CONNECTING;
    if (gw->phase != GWC_OFF)
        return phases[gw->phase].state;
    if (gw->disabled)
        return BHGW_DISABLED;
    switch (gw->want) {
    case GWC_WANT_DORMANT:
        return BHGW_DORMANT;
    case GWC_WANT_CLOSED:
        return BHGW_CLOSED;
    case GWC_WANT_UP:
        return BHGW_CONNECTING; /* the next step of this turn */
    case GWC_WANT_NOTHING:
        break;
    }
    return BHGW_OFF;
}

static void tell(struct bhgw *gw, const char *why)
{
    enum bhgw_state state = state_of(gw);

    pthread_cond_broadcast(&gw->changed);
    if (state == gw->told)
        return;
    gw->told = state;
    gwc_log(gw, BHGW_LOG_INFO, "%s: %s", bhgw_state_name(state), why);
    struct gwc_notice *n = xcalloc(1, sizeof *n);
    n->kind = GWC_NOTICE_STATE;
    n->state = state;
    n->a = xstrdup(why);
    gwc_notify_locked(gw, n);
}

/* The only place that writes gw->phase. */
void gwc_enter(struct bhgw *gw, enum gwc_phase next, int64_t timeout_ms, const char *why)
{
    assert(phases[gw->phase].next & (1u << next));
    gwc_log(gw, BHGW_LOG_DEBUG, "%s -> %s", phases[gw->phase].name, phases[next].name);
    gw->phase = next;
    gw->deadline_ms = timeout_ms > 0 ? gwc_now_ms() + timeout_ms : 0;
    tell(gw, why);
}

bool gwc_is_connected(const struct bhgw *gw)
{
    return gw->phase == GWC_HELLO || gw->phase == GWC_READY || gw->phase == GWC_DRAINING;
}

int64_t gwc_backoff_ms(unsigned failures, int64_t min_ms, int64_t max_ms, uint64_t random)
{
    int64_t d = min_ms;

    while (failures-- > 0 && d < max_ms)
        d *= 2;
    if (d > max_ms)
        d = max_ms;
    return d - d / 2 + (int64_t)(random % (uint64_t)(d / 2 + 1));
}

static void back_off(struct bhgw *gw, const char *why)
{
    struct rand r = RAND_SYSTEM;
    int64_t wait_ms = gwc_backoff_ms(gw->failures++, gw->opt.backoff_min_ms, gw->opt.backoff_max_ms,
                                     rand_u64(&r));

    gw->dial_now = false; /* requested before the failure */
    gwc_log(gw, BHGW_LOG_INFO, "dialling again in %lld ms", (long long)wait_ms);
    gwc_enter(gw, GWC_BACKOFF, wait_ms, why);
}

void gwc_drop(struct bhgw *gw, int code, const char *why)
{
    enum gwc_phase was = gw->phase;
    bool replacing = is_replacing(gw);
    bool deliberate = was == GWC_DRAINING || was == GWC_CLOSING || gw->want != GWC_WANT_UP;
    char *reason = xstrdup(why); /* @why may point into memory that is freed next */

    gwc_conn_close(&gw->conn);
    buf_done(&gw->line);
    buf_reset(&gw->acks);
    gw->n_acks = 0;
    gw->ping_at_ms = gw->pong_by_ms = 0;
    if (was == GWC_READY)
        gw->failures = 0;
    if (code == CLOSE_CODE_UNAUTHORIZED && gw->had_hello) {
        gw->disabled = true;
        gwc_requests_fail(gw);
        gwc_enter(gw, GWC_OFF, 0, "the connector revoked this gateway");
    } else if (replacing) {
        gw->dial_now = true;
        gwc_enter(gw, GWC_BACKOFF, 1, "there is room for deliveries again");
    } else if (deliberate) {
        gwc_requests_fail(gw);
        gwc_enter(gw, GWC_OFF, 0, reason);
    } else {
        back_off(gw, reason);
    }
    free(reason);
}

/* ---- writing ---- */

void gwc_send_line(struct bhgw *gw, struct str line)
{
    gwc_conn_add_frame(&gw->conn, WS_TEXT, line);
}

static void send_acks(struct bhgw *gw, int64_t now_ms)
{
    if (gw->n_acks == 0)
        return;
    if (gw->n_deliveries > 0 && gw->n_acks < ACKS_PER_MESSAGE &&
        now_ms < gw->acks_since_ms + ACK_PATIENCE_MS)
        return;
    gwc_send_line(gw, buf_str(&gw->acks));
    gw->stats.acks += gw->n_acks;
    gw->stats.ack_messages++;
    buf_reset(&gw->acks);
    gw->n_acks = 0;
}

/* ---- connecting ---- */

static void dial(struct bhgw *gw)
{
    gw->dial_now = false;
    gw->choked = false;
    gw->socket_number++;
    gw->n_descriptors = 0;
    gw->complained = false;
    gwc_enter(gw, GWC_DIALING, gw->opt.connect_timeout_ms, "dialling");
    if (!gwc_conn_dial(&gw->conn, gw->url.dial, gw->opt.ca_file, gw->opt.connect_timeout_ms))
        gwc_drop(gw, 0, "the URL cannot be dialled");
}

void gwc_ready(struct bhgw *gw)
{
    gw->had_hello = true;
    gw->stats.connects++;
    gw->failures = 0;
    gw->policy_due = gw->opt.policy != NULL && !gw->policy_declared;
    if (gw->policy_due)
        pthread_cond_signal(&gw->events_wakeup);
    if (gw->phase == GWC_HELLO)
        gwc_enter(gw, GWC_READY, 0, "the connector answered");
}

/* ---- closing ---- */

void gwc_idle_acked(struct bhgw *gw)
{
    if (gw->phase == GWC_DRAINING)
        gw->idle_acked = true;
}

/* May the socket close?  What a handler still works on is waited for, because its ack and its
 * answer need the socket; when leaving for good, what no handler started on stays with the
 * connector. */
static bool is_quiet(const struct bhgw *gw)
{
    bool busy = gw->events_busy && !gw->drain_from_events;

    return !busy && (gw->n_deliveries == 0 || gw->want == GWC_WANT_CLOSED || gw->drain_from_events);
}

static void close_politely(struct bhgw *gw, const char *why)
{
    send_acks(gw, FOREVER);
    gwc_conn_add_close(&gw->conn, CLOSE_CODE_NORMAL);
    gwc_enter(gw, GWC_CLOSING, CLOSE_PATIENCE_MS, why);
}

static bool still_choked(const struct bhgw *gw)
{
    size_t known = seen_n_pending(&gw->seen);
    size_t pending = known > gw->n_deliveries ? known : gw->n_deliveries;

    return pending > gw->opt.max_pending / 2 || gw->delivery_bytes > gw->opt.max_pending_bytes / 2;
}

static void obey(struct bhgw *gw)
{
    bool up = gw->want == GWC_WANT_UP;

    switch (gw->phase) {
    case GWC_OFF:
        if (up && !gw->disabled)
            dial(gw);
        else
            tell(gw, "as asked");
        break;
    case GWC_BACKOFF:
        if (!up) {
            gwc_requests_fail(gw);
            gwc_enter(gw, GWC_OFF, 0, "as asked");
        } else if (gw->dial_now) {
            dial(gw);
        }
        break;
    case GWC_DIALING:
    case GWC_UPGRADING:
        if (!up)
            gwc_drop(gw, 0, "as asked");
        break;
    case GWC_HELLO:
    case GWC_READY:
        if (!up) {
            gw->idle_acked = false;
            gwc_send_line(gw, STR("{\"type\":\"going_idle\"}\n"));
            gwc_enter(gw, GWC_DRAINING, gw->opt.idle_ack_timeout_ms, "going idle");
        } else if (gw->choked && !still_choked(gw)) {
            close_politely(gw, "there is room for deliveries again");
        }
        break;
    case GWC_DRAINING:
        if (gw->idle_acked && is_quiet(gw))
            close_politely(gw, "the connector keeps new messages");
        break;
    case GWC_CLOSING:
        break;
    }
}

/* ---- timers ---- */

static void on_deadline(struct bhgw *gw)
{
    switch (gw->phase) {
    case GWC_DIALING:
    case GWC_UPGRADING:
        gwc_drop(gw, 0, "no connection in time");
        break;
    case GWC_HELLO:
        gwc_drop(gw, 0, "no descriptor in time");
        break;
    case GWC_DRAINING:
        gwc_log(gw, BHGW_LOG_WARN, "going_idle was not confirmed in time");
        close_politely(gw, "going idle was not confirmed in time");
        break;
    case GWC_CLOSING:
        gwc_drop(gw, CLOSE_CODE_NORMAL, "closed");
        break;
    case GWC_BACKOFF:
        if (gw->choked && still_choked(gw)) /* it would exceed the limit again at once */
            gw->deadline_ms = gwc_now_ms() + CHOKED_RETRY_MS;
        else
            dial(gw);
        break;
    case GWC_OFF:
    case GWC_READY:
        break;
    }
}

static void timers(struct bhgw *gw)
{
    int64_t now = gwc_now_ms();

    gwc_requests_expire(gw, now);
    if (gw->pong_by_ms != 0 && now >= gw->pong_by_ms)
        gwc_drop(gw, CLOSE_CODE_LOST, "the connector went silent");
    if (gw->ping_at_ms != 0 && now >= gw->ping_at_ms) {
        gwc_conn_add_frame(&gw->conn, WS_PING, STR(""));
        gw->ping_at_ms = 0;
        gw->pong_by_ms = now + gw->opt.ping_interval_ms;
    }
    if (gw->deadline_ms != 0 && now >= gw->deadline_ms)
        on_deadline(gw);
    if (gwc_is_connected(gw))
        send_acks(gw, now);
}

static void sooner(int64_t *due_ms, int64_t other_ms)
{
    if (other_ms != 0 && other_ms < *due_ms)
        *due_ms = other_ms;
}

static int wait_ms(const struct bhgw *gw)
{
    int64_t due = FOREVER, now = gwc_now_ms();

    if (gw->conn.more)
        return 0;
    sooner(&due, gw->deadline_ms);
    sooner(&due, gw->ping_at_ms);
    sooner(&due, gw->pong_by_ms);
    if (gw->n_acks > 0)
        sooner(&due, gw->acks_since_ms + ACK_PATIENCE_MS);
    if (!list_is_empty(&gw->requests))
        sooner(&due, list_first(&gw->requests, struct gwc_request, link)->due_ms);
    if (due == FOREVER)
        return -1;
    return due <= now ? 0 : due - now > 60000 ? 60000 : (int)(due - now);
}

/* ---- the turn ---- */

static void dial_on(struct bhgw *gw)
{
    char why[CURL_ERROR_SIZE + 16];

    switch (gwc_conn_dial_step(&gw->conn)) {
    case GWC_IO_AGAIN:
        break;
    case GWC_IO_DONE:
        gwc_ask_upgrade(gw);
        break;
    case GWC_IO_FAILED:
        snprintf(why, sizeof why, "cannot connect: %s", gw->conn.curl_error);
        gwc_drop(gw, 0, why);
        break;
    }
}

static bool has_socket(const struct bhgw *gw)
{
    return gwc_conn_is_open(&gw->conn) && gw->phase != GWC_DIALING;
}

static void wait_for_something(struct bhgw *gw)
{
    int timeout_ms = wait_ms(gw);
    bool dialling = gw->phase == GWC_DIALING;
    uint64_t count;
    struct pollfd fds[2] = {{.fd = gw->wake_fd, .events = POLLIN},
                            {.fd = gw->conn.fd, .events = POLLIN}};

    if (gw->conn.want_write)
        fds[1].events |= POLLOUT;
    nfds_t n = has_socket(gw) ? 2 : 1;
    pthread_mutex_unlock(&gw->lock);
    if (dialling)
        gwc_conn_dial_wait(&gw->conn, gw->wake_fd, timeout_ms < 0 ? 60000 : timeout_ms);
    else
        poll(fds, n, timeout_ms);
    pthread_mutex_lock(&gw->lock);
    gw->wake_sent = false;
    if (read(gw->wake_fd, &count, sizeof count) < 0)
        assert(errno == EAGAIN || errno == EINTR);
    if (n == 2 && (fds[1].revents & (POLLIN | POLLHUP | POLLERR)))
        gw->conn.more = true;
}

void *gwc_socket_main(void *arg)
{
    struct bhgw *gw = arg;

    pthread_mutex_lock(&gw->lock);
    while (!gw->quit) {
        obey(gw);
        timers(gw);
        if (has_socket(gw) && gwc_conn_flush(&gw->conn) == GWC_IO_FAILED)
            gwc_drop(gw, CLOSE_CODE_LOST, "the connection was lost");
        wait_for_something(gw);
        if (gw->phase == GWC_DIALING)
            dial_on(gw);
        else if (has_socket(gw) && gw->conn.more)
            gwc_receive(gw);
    }
    gwc_conn_close(&gw->conn);
    pthread_mutex_unlock(&gw->lock);
    return NULL;
}
