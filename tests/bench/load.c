/* load.c - one thread that plays every publisher and every receiver, over one of several wires.
 *
 *      load live     receivers connected; each publisher waits for its receipt before the next
 *      load accept   nobody connected; the same publishers, so everything is kept for later
 *      load drain    connect all receivers, take --events events, acknowledge every one
 *      load latency  open loop at --rate per second, timed from the moment an event was due
 *      load idle     connect all receivers, say "ready", stay until stdin ends
 *      load prepare  make persistent sessions (mqtt), so that accept has somewhere to put things
 *
 * What was measured is one JSON object on stdout.  An answer other than the expected one, or a
 * connection that is lost, ends the program with status 1: a figure is valid or there is none.
 *
 * In the latency load a publisher that still waits cannot send; the event then waits for a free one
 * and that wait counts, so a server that stalls cannot hide it by slowing its clients down. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "load.h"

#define CHUNK (1u << 18)
#define OPENING_AT_ONCE 64
#define EVENTS_PER_TURN 256
#define PATIENCE_NS 30000000000 /* without any progress: give up */

struct load {
    const struct wire *wire;
    const struct mode *mode;
    int epoll, port;
    int receivers_port; /* 0: the same */
    uint32_t n_publishers, n_receivers, nonce;
    double seconds, rate;
    uint64_t events; /* publish or expect this many; 0: until @seconds are over */
    char **tokens;   /* owned, one per receiver; NULL: none */
    struct conn *publishers, *receivers;
    struct conn **free; /* publishers with nothing under way; the latency load's stack */
    uint32_t n_free, n_ready, n_barriers, n_closed;
    bool closed_loop, stdin_ended;
    uint64_t sent, accepted, delivered;
    int64_t now_ns, start_ns, end_ns, deadline_ns, progress_ns;
    float *to_receiver_us, *to_receipt_us; /* by event number, when measured */
    struct bytes waits;                    /* closed loop: how long each receipt took, float us */
    struct bytes scratch;
};

struct mode {
    const char *name;
    void (*run)(struct load *l);
    bool measures;
};

static int64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

const char *load_token(const struct load *l, uint32_t receiver)
{
    return l->tokens == NULL ? "" : l->tokens[receiver];
}
uint32_t load_nonce(const struct load *l)
{
    return l->nonce;
}
bool load_is_persistent(const struct load *l)
{
    return strcmp(l->mode->name, "idle") != 0;
}
struct bytes *load_scratch(struct load *l)
{
    return &l->scratch;
}
int load_epoll(const struct load *l)
{
    return l->epoll;
}

/* ---- publishing ---- */

static void publish_next(struct load *l, struct conn *c)
{
    c->event = l->sent++;
    c->busy = true;
    c->sent_ns = l->now_ns;
    l->wire->publish(l, c, (uint32_t)(c->event % l->n_receivers), c->event);
}

static bool may_publish(const struct load *l)
{
    return l->now_ns < l->deadline_ns && (l->events == 0 || l->sent < l->events);
}

static int64_t due_ns(const struct load *l, uint64_t event)
{
    return l->start_ns + (int64_t)((double)event / l->rate * 1e9);
}

static void publish_due(struct load *l)
{
    while (l->n_free > 0 && l->sent < l->events && due_ns(l, l->sent) <= l->now_ns)
        publish_next(l, l->free[--l->n_free]);
}

/* ---- what the wire reports ---- */

void load_ready(struct load *l, struct conn *c)
{
    if (c->ready)
        return;
    c->ready = true;
    l->n_ready++;
}

void load_accepted(struct load *l, struct conn *c)
{
    if (!c->busy)
        die("publisher %u got a receipt it did not ask for", c->index);
    c->busy = false;
    l->accepted++;
    if (l->closed_loop) {
        float us = (float)(l->now_ns - c->sent_ns) / 1e3f; /* of the turns: no clock per event */
        bytes_add(&l->waits, &us, sizeof us);
        if (may_publish(l))
            publish_next(l, c);
        return;
    }
    if (l->to_receipt_us != NULL)
        l->to_receipt_us[c->event] = (float)(clock_ns() - due_ns(l, c->event)) / 1e3f;
    l->free[l->n_free++] = c;
}

void load_event(struct load *l, struct conn *c, const uint8_t *number)
{
    c->received++;
    l->delivered++;
    if (l->to_receiver_us != NULL) {
        uint64_t event = get_index(number);
        if (event < l->events)
            l->to_receiver_us[event] = (float)(clock_ns() - due_ns(l, event)) / 1e3f;
    }
}

void load_barrier(struct load *l, struct conn *c)
{
    (void)c;
    l->n_barriers++;
}

/* ---- the loop ---- */

static void parse(struct load *l, struct conn *c, const uint8_t *p, size_t n)
{
    size_t used, (*f)(struct load *, struct conn *, const uint8_t *, size_t) =
                     c->is_publisher ? l->wire->publisher_bytes : l->wire->receiver_bytes;

    if (c->in.n > 0) {
        bytes_add(&c->in, p, n);
        while (c->in.n > 0 && (used = f(l, c, c->in.p, c->in.n)) > 0)
            bytes_drop(&c->in, used);
        return;
    }
    while (n > 0 && (used = f(l, c, p, n)) > 0) {
        p += used;
        n -= used;
    }
    bytes_add(&c->in, p, n);
}

static void readable(struct load *l, struct conn *c)
{
    static uint8_t chunk[CHUNK];
    ssize_t n = recv(c->fd, chunk, sizeof chunk, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0 || (n == 0 && strcmp(l->mode->name, "prepare") != 0))
        die("%s %u lost its connection: %s", c->is_publisher ? "publisher" : "receiver", c->index,
            n == 0 ? "closed by the server" : strerror(errno));
    if (n == 0) {
        bench_conn_close(c);
        l->n_closed++;
        return;
    }
    parse(l, c, chunk, (size_t)n);
}

static void turn(struct load *l, int64_t wait_ns)
{
    struct epoll_event ev[EVENTS_PER_TURN];
    struct timespec wait = {.tv_sec = wait_ns / 1000000000, .tv_nsec = wait_ns % 1000000000};
    int n = epoll_pwait2(l->epoll, ev, EVENTS_PER_TURN, &wait, NULL);

    if (n < 0 && errno != EINTR)
        die("epoll: %s", strerror(errno));
    l->now_ns = clock_ns();
    if (n > 0)
        l->progress_ns = l->now_ns;
    if (l->now_ns - l->progress_ns > PATIENCE_NS)
        die("nothing happened for 30 s: %lu sent, %lu accepted, %lu delivered", l->sent,
            l->accepted, l->delivered);
    for (int i = 0; i < n; i++) {
        struct conn *c = ev[i].data.ptr;
        if (c == NULL) {
            l->stdin_ended = true;
            continue;
        }
        if (ev[i].events & EPOLLOUT)
            bench_conn_flush(c, l->epoll);
        if (ev[i].events & ~(uint32_t)EPOLLOUT)
            readable(l, c);
    }
}

static struct conn *open_all(struct load *l, uint32_t n, bool is_publisher)
{
    struct conn *all = calloc(n, sizeof *all);
    uint32_t ready_before = l->n_ready;

    if (all == NULL)
        die("out of memory");
    for (uint32_t i = 0; i < n; i++) {
        all[i] = (struct conn){.index = i, .is_publisher = is_publisher};
        bench_conn_connect(&all[i], l->epoll,
                           is_publisher || l->receivers_port == 0 ? l->port : l->receivers_port);
        l->wire->open(l, &all[i]);
        while (i - (l->n_ready - ready_before) >= OPENING_AT_ONCE && l->n_ready - ready_before < i)
            turn(l, 1000000000);
    }
    while (l->n_ready - ready_before < n)
        turn(l, 1000000000);
    return all;
}

static void start_clock(struct load *l)
{
    l->start_ns = l->now_ns = l->progress_ns = clock_ns();
    l->deadline_ns = l->start_ns + (int64_t)(l->seconds * 1e9);
}

/* ---- the loads ---- */

static void publish_closed_loop(struct load *l, bool to_somebody)
{
    l->closed_loop = true;
    start_clock(l);
    for (uint32_t i = 0; i < l->n_publishers && may_publish(l); i++)
        publish_next(l, &l->publishers[i]);
    while (may_publish(l) || l->accepted < l->sent || (to_somebody && l->delivered < l->sent))
        turn(l, 100000000);
}

/* Wait until the server has read every ack: leaving earlier could cut the last ones off. */
static void settle_receivers(struct load *l)
{
    for (uint32_t i = 0; i < l->n_receivers; i++)
        l->wire->barrier(l, &l->receivers[i]);
    while (l->n_barriers < l->n_receivers)
        turn(l, 1000000000);
}

static void run_live(struct load *l)
{
    l->receivers = open_all(l, l->n_receivers, false);
    l->publishers = open_all(l, l->n_publishers, true);
    publish_closed_loop(l, true);
    l->end_ns = clock_ns();
    settle_receivers(l);
}

static void run_accept(struct load *l)
{
    l->publishers = open_all(l, l->n_publishers, true);
    publish_closed_loop(l, false);
    l->end_ns = clock_ns();
}

static void run_drain(struct load *l)
{
    start_clock(l);
    l->receivers = open_all(l, l->n_receivers, false);
    while (l->delivered < l->events)
        turn(l, 1000000000);
    settle_receivers(l);
    l->end_ns = clock_ns();
}

static void run_latency(struct load *l)
{
    l->receivers = open_all(l, l->n_receivers, false);
    l->publishers = open_all(l, l->n_publishers, true);
    l->events = (uint64_t)(l->rate * l->seconds);
    l->to_receiver_us = calloc(l->events, sizeof *l->to_receiver_us);
    l->to_receipt_us = calloc(l->events, sizeof *l->to_receipt_us);
    l->free = calloc(l->n_publishers, sizeof(struct conn *));
    if (l->to_receiver_us == NULL || l->to_receipt_us == NULL || l->free == NULL)
        die("out of memory");
    for (uint32_t i = 0; i < l->n_publishers; i++)
        l->free[l->n_free++] = &l->publishers[i];
    start_clock(l);
    while (l->accepted < l->events || l->delivered < l->events) {
        publish_due(l);
        int64_t wait_ns = 100000000;
        if (l->n_free > 0 && l->sent < l->events)
            wait_ns = due_ns(l, l->sent) - clock_ns();
        turn(l, wait_ns > 0 ? wait_ns : 0);
    }
    l->end_ns = clock_ns();
    settle_receivers(l);
}

static void wait_for_stdin(struct load *l)
{
    struct epoll_event ev = {.events = EPOLLIN};

    if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, STDIN_FILENO, &ev) != 0)
        die("epoll_ctl: %s (stdin must be a pipe)", strerror(errno));
    while (!l->stdin_ended) {
        turn(l, 1000000000);
        l->progress_ns = l->now_ns; /* silence is what is wanted here */
    }
}

static void run_idle(struct load *l)
{
    start_clock(l);
    l->receivers = open_all(l, l->n_receivers, false);
    puts("ready");
    fflush(stdout);
    wait_for_stdin(l);
}

static void run_prepare(struct load *l)
{
    start_clock(l);
    l->receivers = open_all(l, l->n_receivers, false);
    for (uint32_t i = 0; i < l->n_receivers; i++)
        l->wire->leave(l, &l->receivers[i]);
    while (l->n_closed < l->n_receivers)
        turn(l, 1000000000);
}

static const struct mode modes[] = {
    {"live", run_live, true},       {"accept", run_accept, true}, {"drain", run_drain, true},
    {"latency", run_latency, true}, {"idle", run_idle, false},    {"prepare", run_prepare, false},
};

/* ---- the report ---- */

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void print_latency(const char *name, float *us, uint64_t n)
{
    qsort(us, n, sizeof *us, by_size);
    printf(", \"%s\": {\"p50_us\": %.0f, \"p90_us\": %.0f, \"p99_us\": %.0f, \"p999_us\": %.0f, "
           "\"max_us\": %.0f}",
           name, us[n / 2], us[n * 9 / 10], us[n * 99 / 100], us[n * 999 / 1000], us[n - 1]);
}

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void report(struct load *l)
{
    double seconds = (double)(l->end_ns - l->start_ns) / 1e9;
    uint64_t events = l->accepted > 0 ? l->accepted : l->delivered;

    printf("{\"load\": \"%s\", \"wire\": \"%s\", \"events\": %lu, \"delivered\": %lu, "
           "\"seconds\": %.4f, \"rate\": %.1f, \"client_cpu_s\": %.3f",
           l->mode->name, l->wire->name, events, l->delivered, seconds, (double)events / seconds,
           cpu_seconds());
    if (l->waits.n > 0)
        print_latency("receipt", (float *)(void *)l->waits.p, l->waits.n / sizeof(float));
    if (l->to_receiver_us != NULL && l->events > 0) {
        float *later = calloc(l->events, sizeof *later);
        for (uint64_t i = 0; later != NULL && i < l->events; i++)
            later[i] = l->to_receiver_us[i] - l->to_receipt_us[i];
        if (later != NULL)
            print_latency("receiver_after_receipt", later, l->events);
        free(later);
        print_latency("to_receiver", l->to_receiver_us, l->events);
        print_latency("to_receipt", l->to_receipt_us, l->events);
    }
    puts("}");
}

/* ---- options ---- */

static void read_tokens(struct load *l, const char *path)
{
    FILE *f = fopen(path, "re");
    char line[512];

    if (f == NULL)
        die("%s: %s", path, strerror(errno));
    l->tokens = calloc(l->n_receivers, sizeof(char *));
    for (uint32_t i = 0; l->tokens != NULL && i < l->n_receivers; i++) {
        if (fgets(line, sizeof line, f) == NULL)
            die("%s has fewer than %u tokens", path, l->n_receivers);
        line[strcspn(line, "\n")] = '\0';
        l->tokens[i] = strdup(line);
    }
    fclose(f);
}

static void usage(void)
{
    fputs("usage: load live|accept|drain|latency|idle|prepare --port N\n"
          "            [--wire relay|mqtt|nats|redis]\n"
          "            [--receivers N] [--publishers N] [--seconds S] [--events N] [--rate R]\n"
          "            [--receivers-port N]   where receivers connect, if not there\n"
          "            [--tokens FILE]   one bearer per line, for receiver 0, 1, ...\n",
          stderr);
    exit(2);
}

static const struct wire *wire_called(const char *name)
{
    static const struct wire *const wires[] = {&wire_relay, &wire_mqtt, &wire_nats, &wire_redis};

    for (size_t i = 0; i < sizeof wires / sizeof wires[0]; i++)
        if (strcmp(wires[i]->name, name) == 0)
            return wires[i];
    usage();
    return NULL;
}

static void read_options(struct load *l, int argc, char **argv)
{
    static const struct option options[] = {
        {"port", 1, 0, 'p'},           {"wire", 1, 0, 'w'},
        {"receivers", 1, 0, 'r'},      {"seconds", 1, 0, 's'},
        {"events", 1, 0, 'e'},         {"publishers", 1, 0, 'u'},
        {"rate", 1, 0, 'f'},           {"tokens", 1, 0, 't'},
        {"receivers-port", 1, 0, 'q'}, {0},
    };
    const char *tokens = NULL;
    int o;

    for (size_t i = 0; argc > 1 && i < sizeof modes / sizeof modes[0]; i++)
        if (strcmp(modes[i].name, argv[1]) == 0)
            l->mode = &modes[i];
    while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (o) {
        case 'p':
            l->port = atoi(optarg);
            break;
        case 'q':
            l->receivers_port = atoi(optarg);
            break;
        case 'w':
            l->wire = wire_called(optarg);
            break;
        case 'r':
            l->n_receivers = (uint32_t)atoi(optarg);
            break;
        case 'u':
            l->n_publishers = (uint32_t)atoi(optarg);
            break;
        case 's':
            l->seconds = atof(optarg);
            break;
        case 'e':
            l->events = strtoull(optarg, NULL, 10);
            break;
        case 'f':
            l->rate = atof(optarg);
            break;
        case 't':
            tokens = optarg;
            break;
        default:
            usage();
        }
    }
    if (l->mode == NULL || l->port == 0 || l->n_receivers == 0 || l->rate <= 0)
        usage();
    if (tokens != NULL)
        read_tokens(l, tokens);
}

static void allow_many_sockets(void)
{
    struct rlimit r;

    getrlimit(RLIMIT_NOFILE, &r);
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
}

int main(int argc, char **argv)
{
    struct load l = {.wire = &wire_relay,
                     .n_publishers = 128,
                     .n_receivers = 100,
                     .seconds = 3,
                     .rate = 5000,
                     .nonce = (uint32_t)time(NULL) ^ (uint32_t)getpid() << 20};

    read_options(&l, argc, argv);
    allow_many_sockets();
    l.epoll = epoll_create1(EPOLL_CLOEXEC);
    l.now_ns = l.progress_ns = clock_ns();
    l.mode->run(&l);
    if (l.mode->measures)
        report(&l);
    return 0; /* what it owns goes with the process */
}
