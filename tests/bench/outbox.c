/* outbox.c - durable sends, as fast as they go.
 *
 *      outbox alone DIR SECONDS           the outbox by itself: a platform that takes all at once
 *      outbox durable|bare DIR SECONDS    over HTTP to a server in a process of its own; bare: what
 *                                         has no record (a reaction), the same way without a disk
 *
 * BOTS bots, each with DEPTH chats that say the next thing when the last one was taken.  Prints one
 * JSON object. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include "base/mem.h"
#include "base/rand.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "net/loop.h"
#include "platform/sender.h"
#include "store/sqlite/sqlite.h"
#include "store/store.h"

enum { BOTS = 8, DEPTH = 48 };

static struct {
    struct loop *loop;
    struct rand rand;
    struct host_env env;
    struct platform bots[BOTS];
    struct sender *senders[BOTS];
    uint64_t numbers, done, failed;
    enum action_op op;
    char url[64];
    bool over;
} b;

static void die(const char *why)
{
    fprintf(stderr, "outbox: %s\n", why);
    exit(2);
}

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- the platform ---- */

static void bench_write(struct platform *p, struct outgoing *o, struct sender_request *q,
                        struct sender_verdict *v)
{
    if (b.url[0] == '\0') {
        v->end = SENDER_DONE;
        return;
    }
    buf_add_z(&q->url, b.url);
    buf_add_z(&q->body,
              "{\"chat_id\":5,\"text\":\"what an agent says, about as long as people do\"}");
    q->headers[0] = "Content-Type: application/json";
    q->once = true;
    v->end = SENDER_GO;
}

static void bench_read(struct platform *p, struct outgoing *o, const struct http_result *res,
                       struct sender_verdict *v)
{
    v->end = res->status == 200 ? SENDER_DONE : SENDER_REFUSED;
}

static void bench_free(struct outgoing *o)
{
    free(o);
}

static void bench_act(struct platform *p, struct action_id id, const struct action_from *from,
                      const struct action *a)
{
    struct outgoing *o = xcalloc(1, sizeof *o);

    o->n_parts = 1;
    sender_act(p->sender, o, &(struct sender_order){.id = id, .from = from, .action = a});
}

static const struct sender_ops ops = {.write = bench_write, .read = bench_read, .free = bench_free};
static const struct platform_ops platform_ops = {.name = "bench",
                                                 .label = "Bench",
                                                 .sender = &ops,
                                                 .act = bench_act};

/* @slot is a chat of a bot. */
static void say(uint32_t slot)
{
    char chat[24], request[32];
    struct action_from from = {.tenant = STR("acme"), .instance = STR("bot")};
    struct action a = {.op = b.op,
                       .content = STR("what an agent says, about as long as what people say")};

    snprintf(chat, sizeof chat, "%u", slot);
    snprintf(request, sizeof request, "r%llu", (unsigned long long)b.numbers);
    from.request_id = str_of(request);
    a.chat_id = str_of(chat);
    bench_act(&b.bots[slot % BOTS], (struct action_id){.index = slot}, &from, &a);
}

/* ---- the host ---- */

const struct host_env *host_env(struct host *h)
{
    return &b.env;
}
void host_result(struct host *h, struct action_id id, const struct action_result *r)
{
    if (b.over)
        return;
    b.done += r->success;
    b.failed += !r->success;
    say(id.index);
}
void host_fail(struct host *h, struct action_id id, const char *fmt, ...)
{
    host_result(h, id, &(struct action_result){0});
}
void host_cut_off(struct host *h, const struct action_from *from, const char *error)
{
}
bool host_had_event(struct host *h, struct platform *p, const struct action_from *from,
                    struct str event_id)
{
    return false;
}
enum gate_sight host_may_act(struct host *h, struct platform *p, const struct action_from *from,
                             const struct action_place *place)
{
    return GATE_SEEN;
}
bool host_revive(struct host *h, struct platform *p, const struct action_from *from,
                 enum action_op op, struct str chat, struct action_id *ret_id)
{
    return false;
}
uint64_t host_number(struct host *h)
{
    return b.env.store->boot << 40 | ++b.numbers;
}

/* ---- its server, elsewhere ---- */

static struct http_server *server;

static void serve(void *ctx, struct http_req *r)
{
    http_answer(server, http_req_id(r),
                &(struct http_answer){.status = 200, .body = STR("{\"ok\":true}")});
}

static void serve_forever(int tell)
{
    struct loop *loop = loop_new();
    char why[256];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    server = http_server_new(loop, NULL, serve, NULL);
    if (http_server_listen(server, STR("127.0.0.1:0"), NULL, 0, why) != BH_OK)
        die("the server cannot listen");
    int port = http_server_port(server);
    if (write(tell, &port, sizeof port) != sizeof port)
        die("nobody listens");
    for (;;)
        loop_turn(loop, 1000);
}

static pid_t start_server(void)
{
    int ends[2], port = 0;

    if (pipe(ends) != 0)
        die("pipe");
    pid_t pid = fork();
    if (pid == 0)
        serve_forever(ends[1]);
    if (pid < 0 || read(ends[0], &port, sizeof port) != sizeof port)
        die("the server did not start");
    snprintf(b.url, sizeof b.url, "http://127.0.0.1:%d/", port);
    return pid;
}

/* ---- the run ---- */

static void open_all(const char *dir)
{
    static char names[BOTS][8];
    char path[512], why[256];

    b.loop = loop_new();
    b.rand = rand_seeded(7);
    snprintf(path, sizeof path, "%s/outbox.db", dir);
    b.env = (struct host_env){.loop = b.loop,
                              .clock = loop_clock(b.loop),
                              .rand = &b.rand,
                              .http = http_client_new(b.loop)};
    if (store_sqlite_open(b.loop, path, &b.env.store, why) != BH_OK)
        die("the store cannot be opened");
    for (int i = 0; i < BOTS; i++) {
        snprintf(names[i], sizeof names[i], "bot%d", i);
        b.bots[i] = (struct platform){.ops = &platform_ops, .env = &b.env, .bot = names[i]};
        if (sender_new(&b.bots[i], why) != BH_OK)
            die("the sender cannot be opened");
        b.senders[i] = b.bots[i].sender;
    }
}

static double cpu_s(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void run(double seconds)
{
    double begin, cpu;
    uint64_t before;

    for (uint32_t i = 0; i < BOTS * DEPTH; i++)
        say(i);
    for (double end = now_s() + 0.3; now_s() < end;) /* warm */
        loop_turn(b.loop, 10);
    begin = now_s();
    cpu = cpu_s();
    before = b.done;
    while (now_s() < begin + seconds)
        loop_turn(b.loop, 10);
    double took = now_s() - begin;
    printf(
        "{\"events\":%llu,\"seconds\":%.3f,\"rate\":%.1f,\"failed\":%llu,\"server_cpu_s\":%.3f}\n",
        (unsigned long long)(b.done - before), took, (double)(b.done - before) / took,
        (unsigned long long)b.failed, cpu_s() - cpu);
}

int main(int argc, char **argv)
{
    pid_t pid = 0;

    if (argc != 4)
        die("outbox alone|durable|bare DIR SECONDS");
    bool alone = strcmp(argv[1], "alone") == 0;
    b.op = strcmp(argv[1], "bare") == 0 ? ACTION_REACT : ACTION_SEND;
    if (!alone)
        pid = start_server();
    open_all(argv[2]);
    run(strtod(argv[3], NULL));
    b.over = true;
    for (int i = 0; i < BOTS; i++)
        sender_free(b.senders[i]);
    store_close(b.env.store);
    http_client_free(b.env.http);
    loop_free(b.loop);
    if (pid > 0)
        kill(pid, SIGKILL);
    return 0;
}
