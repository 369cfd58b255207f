/* echo.c - an agent that answers what people write, and sleeps when nobody does.
 *
 * It shows the whole life of a gateway: connect, answer, show that it is typing, edit a message
 * (/count), be interrupted (/stop), go idle after a while of silence, listen for the connector's
 * poke, and come back to catch up.
 *
 *      GATEWAY_RELAY_URL=http://127.0.0.1:7077 GATEWAY_RELAY_ID=... GATEWAY_RELAY_SECRET=... echo
 *
 * Exit status: 0 after SIGTERM or SIGINT, 1 failed, 2 misused, 3 the connector revoked us. */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "bellhop/gateway.h"

#define MAX_IDENTITIES 8
#define COUNT_TO 5
#define COUNT_MAX 99
#define COUNT_STEP_MS 400
#define LOOK_MS 500 /* how often the main thread looks at the state */

struct echo {
    struct bhgw_identity identities[MAX_IDENTITIES];
    size_t n_identities;
    const char *wake_listen; /* NULL: nobody could wake us, so we never sleep */
    int idle_s;              /* 0: never sleeps */

    pthread_mutex_t lock; /* guards what follows */
    long long last_heard_ms;
    char stopped_key[512]; /* session an interrupt named last */
};

static void say(const char *what, const char *detail)
{
    printf("echo: %s%s%s\n", what, detail[0] != '\0' ? ": " : "", detail);
    fflush(stdout);
}

static long long now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static void heard_something(struct echo *e)
{
    pthread_mutex_lock(&e->lock);
    e->last_heard_ms = now_ms();
    pthread_mutex_unlock(&e->lock);
}

/* ---- what it says ---- */

static void report_failure(const struct bhgw_result *r)
{
    if (!r->success)
        fprintf(stderr, "echo: an answer failed: %s\n", r->error);
}

static void on_answered(void *ctx, struct bhgw *gw, const struct bhgw_result *r)
{
    (void)ctx, (void)gw;
    report_failure(r);
}

static bool was_stopped(struct echo *e, const char *session_key)
{
    pthread_mutex_lock(&e->lock);
    bool stopped = strcmp(e->stopped_key, session_key) == 0;
    pthread_mutex_unlock(&e->lock);
    return stopped;
}

static void set_stopped(struct echo *e, const char *session_key)
{
    pthread_mutex_lock(&e->lock);
    snprintf(e->stopped_key, sizeof e->stopped_key, "%s", session_key);
    pthread_mutex_unlock(&e->lock);
}

/* One message that counts up by being edited; an interrupt ends it. */
static void count(struct echo *e, struct bhgw *gw, const struct bhgw_event *ev)
{
    struct bhgw_result *first = bhgw_reply_wait(gw, ev, "1…");
    char text[1024] = "1…";
    int to = atoi(ev->text + strlen("/count"));

    if (to < 2 || to > COUNT_MAX)
        to = COUNT_TO;
    report_failure(first);
    for (int i = 2; first->success && i <= to; i++) {
        size_t n = strlen(text);
        usleep(COUNT_STEP_MS * 1000);
        if (was_stopped(e, ev->session_key)) {
            snprintf(text + n, sizeof text - n, " stopped, as you wish.");
            i = to;
        } else {
            snprintf(text + n, sizeof text - n, " %d%s", i, i < to ? "…" : " — done!");
        }
        struct bhgw_result *r =
            bhgw_edit_wait(gw, ev->chat_id, first->message_id, text, ev->answer_metadata);
        report_failure(r);
        bhgw_result_free(r);
    }
    bhgw_result_free(first);
}

static void who(struct bhgw *gw, const struct bhgw_event *ev)
{
    struct bhgw_result *info = bhgw_get_chat_info_wait(gw, ev->chat_id);
    char text[512];

    snprintf(text, sizeof text, "You are %s, and this is %s (%s) on %s.",
             ev->user_name != NULL ? ev->user_name : "somebody without a name",
             info->success && info->chat_name != NULL ? info->chat_name : ev->chat_id,
             ev->chat_type, ev->platform);
    bhgw_result_free(info);
    bhgw_reply(gw, ev, text, on_answered, NULL);
}

static const char *help_text =
    "I am the echo: whatever you write comes back to you.\n"
    "/count – I count to five in one message, by editing it, or so far: /count 20; /stop ends it\n"
    "/who – who and where you are, as far as I am told\n"
    "/help – this\n"
    "When nobody writes for a while I fall asleep. Write anyway: you will wake me.";

static void echo_back(struct bhgw *gw, const struct bhgw_event *ev)
{
    size_t n = ev->text_bytes + 256;
    char *text = malloc(n);

    if (text == NULL)
        abort();
    if (ev->text_bytes == 0)
        snprintf(text, n, "You said nothing, and I could not agree more.");
    else if (ev->text[ev->text_bytes - 1] == '?')
        snprintf(text, n, "%s — I was about to ask you the same.", ev->text);
    else
        snprintf(text, n, "%s", ev->text);
    bhgw_reply(gw, ev, text, on_answered, NULL);
    free(text);
}

static enum bhgw_verdict on_event(void *ctx, struct bhgw *gw, const struct bhgw_event *ev)
{
    struct echo *e = ctx;

    heard_something(e);
    set_stopped(e, "");
    bhgw_typing(gw, ev->chat_id, ev->answer_metadata);
    if (strcmp(ev->text, "/help") == 0 || strcmp(ev->text, "/start") == 0)
        bhgw_reply(gw, ev, help_text, on_answered, NULL);
    else if (strcmp(ev->text, "/count") == 0 || strncmp(ev->text, "/count ", 7) == 0)
        count(e, gw, ev);
    else if (strcmp(ev->text, "/who") == 0)
        who(gw, ev);
    else
        echo_back(gw, ev);
    heard_something(e);
    return BHGW_ACK;
}

static enum bhgw_verdict on_passthrough(void *ctx, struct bhgw *gw,
                                        const struct bhgw_passthrough *fwd)
{
    (void)gw;
    heard_something(ctx);
    say("a webhook was passed through for", fwd->platform);
    return BHGW_ACK;
}

static void on_interrupt(void *ctx, struct bhgw *gw, const char *session_key, const char *chat_id)
{
    (void)gw, (void)chat_id;
    set_stopped(ctx, session_key);
    say("interrupted", session_key);
}

static void on_state(void *ctx, struct bhgw *gw, enum bhgw_state state, const char *why)
{
    char line[256];

    (void)gw;
    snprintf(line, sizeof line, "%s (%s)", bhgw_state_name(state), why);
    say("state", line);
    if (state == BHGW_READY)
        heard_something(ctx);
}

static void on_log(void *ctx, enum bhgw_log_level level, const char *line)
{
    (void)ctx;
    if (level <= BHGW_LOG_WARN)
        fprintf(stderr, "echo: %s\n", line);
}

/* ---- the wake listener: one GET, one 200, nothing else ---- */

/* @address is numbers: "127.0.0.1:7081".  -1: it cannot listen there. */
static int listen_on(const char *address)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    char host[INET_ADDRSTRLEN];
    unsigned port = 0;
    int yes = 1;

    if (sscanf(address, "%15[0-9.]:%u", host, &port) != 2 || port > 65535 ||
        inet_pton(AF_INET, host, &at.sin_addr) != 1)
        return -1;
    at.sin_port = htons((uint16_t)port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 16) == 0)
        return fd;
    close(fd);
    return -1;
}

/* True: somebody knocked.  What they say does not matter, that they came does. */
static bool take_poke(int listener)
{
    static const char answer[] =
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nup\n";
    struct timeval patience = {.tv_sec = 1};
    char request[2048];
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

    if (fd < 0)
        return false;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    bool asked = recv(fd, request, sizeof request, 0) > 0;
    if (asked && send(fd, answer, sizeof answer - 1, MSG_NOSIGNAL) < 0)
        perror("echo: poke");
    close(fd);
    return asked;
}

/* ---- the main thread: signals, silence, pokes ---- */

static bool is_idle(struct echo *e)
{
    pthread_mutex_lock(&e->lock);
    bool idle = now_ms() - e->last_heard_ms >= e->idle_s * 1000LL;
    pthread_mutex_unlock(&e->lock);
    return idle;
}

/* Sleep only when the connector confirmed that it keeps what arrives; else stay. */
static void fall_asleep(struct echo *e, struct bhgw *gw)
{
    if (bhgw_pending(gw) > 0)
        return heard_something(e);
    say("falling asleep", "nobody wrote for a while");
    if (bhgw_go_idle_wait(gw) == BHGW_OK) {
        say("asleep", "a poke wakes me");
        return;
    }
    say("not confirmed", "staying awake");
    bhgw_open(gw);
    heard_something(e);
}

static int run(struct echo *e, struct bhgw *gw, int signals, int listener)
{
    struct pollfd fds[2] = {{.fd = signals, .events = POLLIN}, {.fd = listener, .events = POLLIN}};

    for (;;) {
        poll(fds, 2, LOOK_MS);
        enum bhgw_state state = bhgw_state(gw);
        if (fds[0].revents & POLLIN)
            return 0;
        if (state == BHGW_DISABLED)
            return 3;
        if (fds[1].revents & POLLIN && take_poke(listener)) {
            say("poked", state == BHGW_DORMANT ? "waking up" : "already awake");
            heard_something(e);
            bhgw_open(gw);
        } else if (state == BHGW_READY && e->idle_s > 0 && is_idle(e)) {
            fall_asleep(e, gw);
        }
    }
}

/* ---- starting ---- */

static int usage(FILE *to)
{
    fputs("usage: echo [--idle SECONDS] [--wake-listen HOST:PORT] [--platform NAME[=BOT]]...\n\n"
          "An example agent: it answers what people write, and sleeps when nobody does.  The\n"
          "connector and the credential are in the environment: GATEWAY_RELAY_URL,\n"
          "GATEWAY_RELAY_ID, GATEWAY_RELAY_SECRET.\n\n"
          "  --idle SECONDS          go idle after that much silence (60; 0: never)\n"
          "  --wake-listen ADDR      where the connector's poke arrives, such as 127.0.0.1:7081;\n"
          "                          without it, echo never sleeps\n"
          "  --platform NAME[=BOT]   say hello as this identity; may be repeated (relay)\n",
          to);
    return to == stdout ? 0 : 2;
}

/* -1: go on; else the exit status. */
static int read_arguments(struct echo *e, int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        char *value = argv[i + 1], *end = NULL; /* argv ends with a NULL */
        if (strcmp(argv[i], "--help") == 0)
            return usage(stdout);
        if (value == NULL)
            return usage(stderr);
        if (strcmp(argv[i], "--idle") == 0) {
            e->idle_s = (int)strtol(value, &end, 10);
            if (*value == '\0' || *end != '\0' || e->idle_s < 0)
                return usage(stderr);
        } else if (strcmp(argv[i], "--wake-listen") == 0) {
            e->wake_listen = value;
        } else if (strcmp(argv[i], "--platform") == 0 && e->n_identities < MAX_IDENTITIES) {
            struct bhgw_identity *id = &e->identities[e->n_identities++];
            id->platform = strtok_r(value, "=", &end);
            id->bot_id = end;
        } else {
            return usage(stderr);
        }
    }
    return -1;
}

int main(int argc, char **argv)
{
    struct echo e = {.idle_s = 60, .lock = PTHREAD_MUTEX_INITIALIZER};
    struct bhgw_options opt = bhgw_options_init();
    int listener = -1, status = read_arguments(&e, argc, argv);
    char error[256];
    sigset_t set;

    if (status >= 0)
        return status;
    if (e.wake_listen == NULL)
        e.idle_s = 0;
    else if ((listener = listen_on(e.wake_listen)) < 0) {
        fprintf(stderr, "echo: cannot listen on %s\n", e.wake_listen);
        return 1;
    }
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    opt.url = getenv("GATEWAY_RELAY_URL");
    opt.gateway_id = getenv("GATEWAY_RELAY_ID");
    opt.secret = getenv("GATEWAY_RELAY_SECRET");
    opt.identities = e.identities;
    opt.n_identities = e.n_identities;
    opt.ctx = &e;
    opt.on_event = on_event;
    opt.on_passthrough = on_passthrough;
    opt.on_interrupt = on_interrupt;
    opt.on_state = on_state;
    opt.log = on_log;
    struct bhgw *gw = bhgw_new(&opt, error, sizeof error);
    if (gw == NULL) {
        fprintf(stderr, "echo: %s (see echo --help)\n", error);
        return 2;
    }
    heard_something(&e);
    if (bhgw_open(gw) != BHGW_OK) {
        fprintf(stderr, "echo: there are no threads left\n");
        return 1;
    }
    status = run(&e, gw, signalfd(-1, &set, SFD_CLOEXEC), listener);
    say(status == 3 ? "revoked" : "leaving", "");
    bhgw_close(gw);
    bhgw_free(gw);
    return status;
}
