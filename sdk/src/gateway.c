/* gateway.c - the life of a handle.  (bellhop/gateway.h has the contract.)
 *
 * A call sets gw->want and wakes the socket thread; only the socket thread changes the phase.
 * Blocking calls wait on gw->changed, which is signalled whenever the phase changes. */
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include "base/crypto.h"
#include "base/mem.h"
#include "client.h"
#include "core/token.h"
#include "options.h"

const char *bhgw_version(void)
{
    return BELLHOP_VERSION;
}

const char *bhgw_state_name(enum bhgw_state state)
{
    static const char *const names[] = {
        [BHGW_OFF] = "off",           [BHGW_CONNECTING] = "connecting", [BHGW_READY] = "ready",
        [BHGW_DRAINING] = "draining", [BHGW_WAITING] = "waiting",       [BHGW_DORMANT] = "dormant",
        [BHGW_DISABLED] = "disabled", [BHGW_CLOSED] = "closed",
    };

    return (size_t)state < ARRAY_LEN(names) ? names[state] : "unknown";
}

int64_t gwc_now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void gwc_log(struct bhgw *gw, enum bhgw_log_level level, const char *fmt, ...)
{
    char line[512];
    va_list args;

    if (gw->opt.log == NULL)
        return;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    gw->opt.log(gw->opt.ctx, level, line);
}

void gwc_wake_locked(struct bhgw *gw)
{
    const uint64_t one = 1;

    if (gw->wake_sent)
        return;
    gw->wake_sent = true;
    ssize_t n = write(gw->wake_fd, &one, sizeof one);
    assert(n == sizeof one || errno == EAGAIN);
}

/* ---- creating and opening ---- */

static void cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

static struct bhgw *handle_new(const struct bhgw_options *opt, const struct gwc_url *url, int fd)
{
    struct bhgw *gw = xcalloc(1, sizeof *gw);

    *gw = (struct bhgw){.magic = GWC_MAGIC, .opt = *opt, .url = *url, .wake_fd = fd};
    pthread_mutex_init(&gw->lock, NULL);
    cond_init(&gw->changed);
    cond_init(&gw->events_wakeup);
    cond_init(&gw->notices_wakeup);
    gw->conn.fd = CURL_SOCKET_BAD;
    gw->parser = json_parser_new();
    seen_init(&gw->seen, opt->dedup_ids);
    list_init(&gw->deliveries);
    list_init(&gw->requests);
    list_init(&gw->notices);
    list_init(&gw->descriptors);
    return gw;
}

static struct bhgw *refuse(const char *why, char *error, size_t error_bytes)
{
    if (error != NULL)
        snprintf(error, error_bytes, "%s", why);
    return NULL;
}

struct bhgw *bhgw_new(const struct bhgw_options *given, char *error, size_t error_bytes)
{
    struct bhgw_options opt;
    struct gwc_url url;
    int fd = -1;
    char trouble[256];
    const char *why = gwc_options_copy(&opt, given);

    if (why == NULL && !gwc_url_read(&url, opt.url, &why))
        gwc_options_done(&opt);
    if (why == NULL && (fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0) {
        why = "the process has no file descriptor left";
        gwc_url_done(&url);
        gwc_options_done(&opt);
    }
    if (why != NULL)
        return refuse(why, error, error_bytes);
    struct bhgw *gw = handle_new(&opt, &url, fd);
    if (opt.seen_file != NULL &&
        !seen_file_open(&gw->seen_file, opt.seen_file, &gw->seen, trouble)) {
        bhgw_free(gw);
        return refuse(trouble, error, error_bytes);
    }
    return gw;
}

/* Blocks all signals in the library's threads; the application handles them. */
static bool start_thread(pthread_t *thread, void *(*main)(void *), struct bhgw *gw)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(thread, NULL, main, gw);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc == 0;
}

/* All three or none.  The lock is held, so those that were started wait for it until they are told
 * to end. */
static bool start_threads_locked(struct bhgw *gw)
{
    bool notices = start_thread(&gw->notices_thread, gwc_notices_main, gw);
    bool events = notices && start_thread(&gw->events_thread, gwc_events_main, gw);

    gw->started = events && start_thread(&gw->socket_thread, gwc_socket_main, gw);
    if (gw->started || !notices)
        return gw->started;
    gw->quit = gw->notices_quit = true;
    pthread_mutex_unlock(&gw->lock);
    if (events)
        pthread_join(gw->events_thread, NULL);
    pthread_join(gw->notices_thread, NULL);
    pthread_mutex_lock(&gw->lock);
    gw->quit = gw->notices_quit = false;
    return false;
}

/* ---- open, idle, close ---- */

static bool is_over(const struct bhgw *gw)
{
    return gw->disabled || gw->want == GWC_WANT_CLOSED;
}

static bool is_own_thread(const struct bhgw *gw)
{
    return gw->started && (pthread_equal(pthread_self(), gw->events_thread) ||
                           pthread_equal(pthread_self(), gw->notices_thread));
}

static void lock(struct bhgw *gw)
{
    assert(gw->magic == GWC_MAGIC);
    pthread_mutex_lock(&gw->lock);
}

static void unlock(struct bhgw *gw)
{
    pthread_mutex_unlock(&gw->lock);
}

enum bhgw_status bhgw_open(struct bhgw *gw)
{
    enum bhgw_status status = BHGW_OK;

    lock(gw);
    if (is_over(gw)) {
        status = BHGW_STOPPED;
    } else if (!gw->started && (gw->quit || !start_threads_locked(gw))) {
        status = BHGW_NO_THREADS;
    } else {
        gw->want = GWC_WANT_UP;
        gw->dial_now = true;
        gwc_wake_locked(gw);
    }
    unlock(gw);
    return status;
}

/* Requests DORMANT or CLOSED. */
static void ask_rest_locked(struct bhgw *gw, enum gwc_want want)
{
    if (is_over(gw))
        return;
    gw->want = want;
    gw->drain_from_events = gw->started && pthread_equal(pthread_self(), gw->events_thread);
    pthread_cond_broadcast(&gw->changed);
    if (gw->started)
        gwc_wake_locked(gw);
    else if (want == GWC_WANT_CLOSED)
        gw->told = BHGW_CLOSED;
}

void bhgw_go_idle(struct bhgw *gw)
{
    lock(gw);
    if (gw->started)
        ask_rest_locked(gw, GWC_WANT_DORMANT);
    unlock(gw);
}

enum bhgw_status bhgw_go_idle_wait(struct bhgw *gw)
{
    enum bhgw_status status = BHGW_NOT_CONNECTED;

    lock(gw);
    if (is_over(gw)) {
        status = BHGW_STOPPED;
    } else if (gw->started) {
        uint64_t socket = gw->socket_number;
        bool connected = gwc_is_connected(gw);
        ask_rest_locked(gw, GWC_WANT_DORMANT);
        /* Done when OFF, or when another thread reopened it and a new socket exists. */
        while (gw->phase != GWC_OFF && gw->socket_number == socket)
            pthread_cond_wait(&gw->changed, &gw->lock);
        if (gw->disabled)
            status = BHGW_STOPPED;
        else if (connected)
            status = gw->idle_acked ? BHGW_OK : BHGW_TIMEOUT;
    }
    unlock(gw);
    return status;
}

void bhgw_close(struct bhgw *gw)
{
    lock(gw);
    ask_rest_locked(gw, GWC_WANT_CLOSED);
    while (gw->started && !(gw->phase == GWC_OFF && gw->told != BHGW_OFF) && !is_own_thread(gw))
        pthread_cond_wait(&gw->changed, &gw->lock);
    unlock(gw);
}

/* ---- freeing ---- */

static void free_queues(struct bhgw *gw)
{
    list_each (&gw->deliveries, it, next)
        free(list_entry(it, struct gwc_delivery, link));
    list_each (&gw->notices, it2, next2)
        gwc_notice_free(list_entry(it2, struct gwc_notice, link));
    gwc_descriptors_free(gw);
    seen_done(&gw->seen);
    seen_file_done(&gw->seen_file);
    map_done(&gw->request_by_id);
}

static void end_threads(struct bhgw *gw)
{
    lock(gw);
    gw->quit = true;
    gwc_wake_locked(gw);
    pthread_cond_broadcast(&gw->events_wakeup);
    unlock(gw);
    pthread_join(gw->socket_thread, NULL);
    pthread_join(gw->events_thread, NULL);
    lock(gw);
    gwc_requests_fail(gw); /* no result can arrive any more: fail them */
    gw->notices_quit = true;
    pthread_cond_broadcast(&gw->notices_wakeup);
    unlock(gw);
    pthread_join(gw->notices_thread, NULL);
}

void bhgw_free(struct bhgw *gw)
{
    if (gw == NULL)
        return;
    assert(!is_own_thread(gw));
    gw->notices_quit = !gw->started;
    if (gw->started)
        end_threads(gw);
    else
        gwc_notices_main(gw); /* never opened: runs the callbacks of requests here */
    free_queues(gw);
    json_parser_free(gw->parser);
    buf_done(&gw->line);
    buf_done(&gw->acks);
    close(gw->wake_fd);
    gwc_url_done(&gw->url);
    gwc_options_done(&gw->opt);
    pthread_cond_destroy(&gw->changed);
    pthread_cond_destroy(&gw->events_wakeup);
    pthread_cond_destroy(&gw->notices_wakeup);
    pthread_mutex_destroy(&gw->lock);
    gwc_conn_done(&gw->conn);
    gw->magic = 0;
    free(gw);
}

/* ---- state and statistics ---- */

enum bhgw_status bhgw_wait_ready(struct bhgw *gw, int timeout_ms)
{
    int64_t ms = gwc_now_ms() + timeout_ms;
    struct timespec until = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    int rc = 0;

    lock(gw);
    while (gw->told != BHGW_READY && !is_over(gw) && rc != ETIMEDOUT) {
        if (timeout_ms < 0)
            pthread_cond_wait(&gw->changed, &gw->lock);
        else
            rc = pthread_cond_timedwait(&gw->changed, &gw->lock, &until);
    }
    enum bhgw_status status = gw->told == BHGW_READY ? BHGW_OK
                              : is_over(gw)          ? BHGW_STOPPED
                                                     : BHGW_TIMEOUT;
    unlock(gw);
    return status;
}

enum bhgw_state bhgw_state(struct bhgw *gw)
{
    lock(gw);
    enum bhgw_state state = gw->told;
    unlock(gw);
    return state;
}

size_t bhgw_pending(struct bhgw *gw)
{
    lock(gw);
    size_t queued = gw->n_deliveries + gw->events_busy, known = seen_n_pending(&gw->seen);
    unlock(gw);
    return known > queued ? known : queued;
}

void bhgw_ack(struct bhgw *gw, uint64_t delivery)
{
    lock(gw);
    gwc_settle_locked(gw, delivery, BHGW_ACK);
    unlock(gw);
}

void bhgw_release(struct bhgw *gw, uint64_t delivery)
{
    lock(gw);
    gwc_settle_locked(gw, delivery, BHGW_RELEASE);
    unlock(gw);
}

void bhgw_stats_get(struct bhgw *gw, struct bhgw_stats *stats)
{
    size_t n = stats->struct_bytes;

    lock(gw);
    memcpy(stats, &gw->stats, n < sizeof *stats ? n : sizeof *stats);
    unlock(gw);
    stats->struct_bytes = n;
}

/* ---- HTTP calls of the application's own ---- */

static char *url_part(const char *configured, bool ws)
{
    struct gwc_url url;
    const char *why;

    if (!gwc_url_read(&url, configured, &why))
        return NULL;
    char *part = xstrdup(ws ? url.ws : url.http);
    gwc_url_done(&url);
    return part;
}

char *bhgw_ws_url(const char *url)
{
    return url_part(url, true);
}

char *bhgw_http_url(const char *url)
{
    return url_part(url, false);
}

char *bhgw_token(const char *gateway_id, const char *secret, int ttl_s)
{
    struct buf token = BUF_INIT;

    token_mint(&token, str_of(gateway_id), str_of(secret),
               ttl_s > 0 ? (int64_t)time(NULL) + ttl_s : 0);
    return buf_take(&token);
}

void bhgw_string_free(char *s)
{
    if (s != NULL)
        secret_wipe(s, strlen(s));
    free(s);
}
