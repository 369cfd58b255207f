/* echo.c - an agent that answers what people write, and sleeps when nobody does.
 *
 * It shows the whole life of a gateway: connect, answer, show that it is typing, edit a message
 * (/count), be interrupted (/stop), go idle after a while of silence, listen for the connector's
 * poke on a tiny HTTP listener, and come back to catch up.
 *
 *      GATEWAY_RELAY_URL=http://127.0.0.1:7077 GATEWAY_RELAY_ID=... GATEWAY_RELAY_SECRET=... echo
 *
 * Exit status: 0 after SIGTERM or SIGINT, 1 failed, 2 misused, 3 the connector revoked us. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "bellhop/gateway.h"

#define MAX_IDENTITIES 8
#define COUNT_TO 5
#define COUNT_MAX 99
#define COUNT_STEP_MS 400

struct echo {
    /* from the command line and the environment */
    const char *url, *id, *secret, *wake_listen, *ca_file;
    struct bhgw_identity identities[MAX_IDENTITIES];
    size_t n_identities;
    int idle_s;
    int think_ms; /* how long it pretends to think */
    bool verbose;

    pthread_mutex_t lock; /* guards what follows */
    struct timespec last_heard;
    char stopped_key[512]; /* session an interrupt named last */
    bool disabled;
    int state_fd; /* eventfd: something for the main thread to look at */
};

static void say(const struct echo *e, const char *what, const char *detail)
{
    (void)e;
    printf("echo: %s%s%s\n", what, detail[0] != '\0' ? ": " : "", detail);
    fflush(stdout);
}

static void wake_main(struct echo *e)
{
    const uint64_t one = 1;

    if (write(e->state_fd, &one, sizeof one) < 0 && errno != EAGAIN)
        perror("echo: eventfd");
}

static void heard_something(struct echo *e)
{
    pthread_mutex_lock(&e->lock);
    clock_gettime(CLOCK_MONOTONIC, &e->last_heard);
    pthread_mutex_unlock(&e->lock);
}

static void sleep_ms(int ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

    nanosleep(&t, NULL);
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

static void forget_stop(struct echo *e)
{
    pthread_mutex_lock(&e->lock);
    e->stopped_key[0] = '\0';
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
        sleep_ms(COUNT_STEP_MS);
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
    forget_stop(e);
    bhgw_typing(gw, ev->chat_id, ev->answer_metadata);
    if (e->think_ms > 0)
        sleep_ms(e->think_ms);
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
    say(ctx, "a webhook was passed through for", fwd->platform);
    return BHGW_ACK;
}

static void on_interrupt(void *ctx, struct bhgw *gw, const char *session_key, const char *chat_id)
{
    struct echo *e = ctx;

    (void)gw, (void)chat_id;
    pthread_mutex_lock(&e->lock);
    snprintf(e->stopped_key, sizeof e->stopped_key, "%s", session_key);
    pthread_mutex_unlock(&e->lock);
    say(e, "interrupted", session_key);
}

static void on_state(void *ctx, struct bhgw *gw, enum bhgw_state state, const char *why)
{
    struct echo *e = ctx;
    char line[256];

    (void)gw;
    snprintf(line, sizeof line, "%s (%s)", bhgw_state_name(state), why);
    say(e, "state", line);
    if (state == BHGW_READY)
        heard_something(e);
    if (state == BHGW_DISABLED) {
        pthread_mutex_lock(&e->lock);
        e->disabled = true;
        pthread_mutex_unlock(&e->lock);
        wake_main(e);
    }
}

static void on_log(void *ctx, enum bhgw_log_level level, const char *line)
{
    static const char *const words[] = {"error", "warn", "info", "debug"};
    const struct echo *e = ctx;

    if (e->verbose || level <= BHGW_LOG_WARN)
        fprintf(stderr, "echo: %s: %s\n", words[level], line);
}

/* ---- the wake listener: one GET, one 200, nothing else ---- */

static int listen_on(const char *address)
{
    char host[256];
    const char *colon = strrchr(address, ':');
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    int fd = -1, yes = 1;

    if (colon == NULL || (size_t)(colon - address) >= sizeof host)
        return -1;
    snprintf(host, sizeof host, "%.*s", (int)(colon - address), address);
    if (getaddrinfo(host[0] != '\0' ? host : NULL, colon + 1, &hints, &found) != 0)
        return -1;
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) < 0 || listen(fd, 16) < 0) {
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

static void say_where(const struct echo *e, int fd)
{
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    char host[64], port[16], line[128];

    if (getsockname(fd, (struct sockaddr *)&at, &n) == 0 &&
        getnameinfo((struct sockaddr *)&at, n, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) == 0) {
        snprintf(line, sizeof line, "http://%s:%s/", host, port);
        say(e, "wake listener", line);
    }
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
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    bool asked = recv(fd, request, sizeof request, 0) > 0;
    if (asked && send(fd, answer, sizeof answer - 1, MSG_NOSIGNAL) < 0)
        perror("echo: poke");
    shutdown(fd, SHUT_WR);
    close(fd);
    return asked;
}

/* ---- the main thread: signals, silence, pokes ---- */

static int ms_until_idle(struct echo *e)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    pthread_mutex_lock(&e->lock);
    long long quiet_ms = (now.tv_sec - e->last_heard.tv_sec) * 1000LL +
                         (now.tv_nsec - e->last_heard.tv_nsec) / 1000000;
    pthread_mutex_unlock(&e->lock);
    long long left_ms = e->idle_s * 1000LL - quiet_ms;
    return left_ms > 0 ? (int)left_ms : 0;
}

static bool is_disabled(struct echo *e)
{
    pthread_mutex_lock(&e->lock);
    bool disabled = e->disabled;
    pthread_mutex_unlock(&e->lock);
    return disabled;
}

/* Sleep only when the connector confirmed that it keeps what arrives; else stay. */
static void fall_asleep(struct echo *e, struct bhgw *gw)
{
    if (bhgw_pending(gw) > 0)
        return heard_something(e);
    say(e, "falling asleep", "nobody wrote for a while");
    if (bhgw_go_idle_wait(gw) == BHGW_OK) {
        say(e, "asleep", "a poke wakes me");
        return;
    }
    say(e, "not confirmed", "staying awake");
    bhgw_open(gw);
    heard_something(e);
}

static int run(struct echo *e, struct bhgw *gw, int signals, int listener)
{
    struct pollfd fds[3] = {{.fd = signals, .events = POLLIN},
                            {.fd = e->state_fd, .events = POLLIN},
                            {.fd = listener, .events = POLLIN}};

    for (;;) {
        bool awake = bhgw_state(gw) == BHGW_READY;
        bool may_sleep = awake && e->idle_s > 0;
        int n = poll(fds, 3, may_sleep ? ms_until_idle(e) : 1000);
        if (n < 0 && errno != EINTR)
            return 1;
        if (fds[0].revents & POLLIN)
            return 0;
        if (is_disabled(e))
            return 3;
        if (fds[2].revents & POLLIN && take_poke(listener)) {
            say(e, "poked", bhgw_state(gw) == BHGW_DORMANT ? "waking up" : "already awake");
            heard_something(e);
            bhgw_open(gw);
        } else if (may_sleep && ms_until_idle(e) == 0) {
            fall_asleep(e, gw);
        }
    }
}

/* ---- starting ---- */

static void usage(FILE *to)
{
    fputs("usage: echo [--url URL] [--id ID] [--secret SECRET] [--idle SECONDS]\n"
          "            [--wake-listen HOST:PORT] [--platform NAME[=BOT]]... [--think MS]\n"
          "            [--ca-file FILE] [--verbose] [--help]\n\n"
          "An example agent: it answers what people write, and sleeps when nobody does.\n\n"
          "  --url, --id, --secret   the connector and the credential; else from the environment:\n"
          "                          GATEWAY_RELAY_URL, GATEWAY_RELAY_ID, GATEWAY_RELAY_SECRET\n"
          "  --idle SECONDS          go idle after that much silence (60; 0: never)\n"
          "  --wake-listen ADDR      where the connector's poke arrives, such as 127.0.0.1:7081;\n"
          "                          without it, echo never sleeps\n"
          "  --platform NAME[=BOT]   say hello as this identity; may be repeated (relay)\n"
          "  --think MS              wait so long before answering (0)\n"
          "  --ca-file FILE          trust these certificates instead of the system's\n"
          "  --verbose               tell what the connection does\n",
          to);
}

static bool add_identity(struct echo *e, char *arg)
{
    char *equals = strchr(arg, '=');

    if (e->n_identities == MAX_IDENTITIES)
        return false;
    if (equals != NULL)
        *equals++ = '\0';
    e->identities[e->n_identities].platform = arg;
    e->identities[e->n_identities++].bot_id = equals != NULL ? equals : "";
    return true;
}

static bool read_int(const char *text, int *ret_value)
{
    char *end;
    long v = strtol(text, &end, 10);

    if (*text == '\0' || *end != '\0' || v < 0 || v > 86400 * 1000L)
        return false;
    *ret_value = (int)v;
    return true;
}

/* -1: go on; else the exit status. */
static int read_arguments(struct echo *e, int argc, char **argv)
{
    static const struct option options[] = {
        {"url", required_argument, NULL, 'u'},
        {"id", required_argument, NULL, 'i'},
        {"secret", required_argument, NULL, 's'},
        {"idle", required_argument, NULL, 'q'},
        {"wake-listen", required_argument, NULL, 'w'},
        {"platform", required_argument, NULL, 'p'},
        {"think", required_argument, NULL, 't'},
        {"ca-file", required_argument, NULL, 'c'},
        {"verbose", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    bool ok = true;

    for (int c; ok && (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'u':
            e->url = optarg;
            break;
        case 'i':
            e->id = optarg;
            break;
        case 's':
            e->secret = optarg;
            break;
        case 'q':
            ok = read_int(optarg, &e->idle_s);
            break;
        case 'w':
            e->wake_listen = optarg;
            break;
        case 'p':
            ok = add_identity(e, optarg);
            break;
        case 't':
            ok = read_int(optarg, &e->think_ms);
            break;
        case 'c':
            e->ca_file = optarg;
            break;
        case 'v':
            e->verbose = true;
            break;
        case 'h':
            usage(stdout);
            return 0;
        default:
            ok = false;
        }
    }
    if (!ok || optind < argc) {
        usage(stderr);
        return 2;
    }
    return -1;
}

static int open_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC);
}

static struct bhgw *make_gateway(struct echo *e)
{
    struct bhgw_options opt = bhgw_options_init();
    char error[256];

    opt.url = e->url;
    opt.gateway_id = e->id;
    opt.secret = e->secret;
    opt.identities = e->identities;
    opt.n_identities = e->n_identities;
    opt.ca_file = e->ca_file;
    opt.ctx = e;
    opt.on_event = on_event;
    opt.on_passthrough = on_passthrough;
    opt.on_interrupt = on_interrupt;
    opt.on_state = on_state;
    opt.log = on_log;
    struct bhgw *gw = bhgw_new(&opt, error, sizeof error);
    if (gw == NULL)
        fprintf(stderr, "echo: %s (see echo --help)\n", error);
    return gw;
}

int main(int argc, char **argv)
{
    struct echo e = {
        .url = getenv("GATEWAY_RELAY_URL"),
        .id = getenv("GATEWAY_RELAY_ID"),
        .secret = getenv("GATEWAY_RELAY_SECRET"),
        .idle_s = 60,
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .state_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
    };
    int listener = -1, status = read_arguments(&e, argc, argv);

    if (status >= 0)
        return status;
    if (e.wake_listen == NULL)
        e.idle_s = 0; /* nobody could wake us */
    else if ((listener = listen_on(e.wake_listen)) < 0) {
        fprintf(stderr, "echo: cannot listen on %s\n", e.wake_listen);
        return 1;
    }
    int signals = open_signals();
    struct bhgw *gw = make_gateway(&e);
    if (gw == NULL)
        return 2;
    if (listener >= 0)
        say_where(&e, listener);
    heard_something(&e);
    if (bhgw_open(gw) != BHGW_OK) {
        fprintf(stderr, "echo: there are no threads left\n");
        return 1;
    }
    status = run(&e, gw, signals, listener);
    say(&e, status == 3 ? "revoked" : "leaving", "");
    bhgw_close(gw);
    bhgw_free(gw);
    close(signals);
    close(e.state_fd);
    if (listener >= 0)
        close(listener);
    return status;
}
