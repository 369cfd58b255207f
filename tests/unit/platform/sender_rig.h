/* sender_rig.h - a platform of our own that says "notes", over a real HTTP server and a real
 * SQLite.  The server answers as the test says, by what is asked. */
#pragma once
#include "unit.h"
#include "net/net_test.h"

#include <sys/stat.h>

#include "base/jw.h"
#include "base/rand.h"
#include "core/journal.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "platform/outgoing.h"
#include "platform/sender.h"
#include "store/memory/memory.h"
#include "store/sqlite/sqlite.h"

#define RIG_UNUSED __attribute__((unused))

#define MAX 64
#define SAID 0xfedcba9876543210u /* as the heart hashes it */

struct note { /* what this platform can say: parts with a text each */
    struct outgoing out;
    enum action_op op;
    char lane[16];
    const char *parts[4];
    bool once;
    enum outgoing_twice twice;
    int64_t timeout_ms;
    char text[64]; /* where a part was read from a record */
};

struct rule { /* the server's answer to a text, @times times */
    const char *text;
    int status; /* 0: never */
    int times;
};

static struct {
    struct platform base;
    struct loop *loop;
    struct clock *clock;
    struct store *store;
    struct rand rand;
    struct http_server *server;
    struct host_env env;
    struct sender *sender;
    char dir[64], url[64];
    struct buf heard; /* "text text ", as they arrived */
    struct rule rules[8];
    struct http_id held[MAX];
    size_t n_held;
    int n_heard;
    struct {
        int n;
        bool success, queued;
        struct buf id, error;
    } results[MAX];
    int n_results, n_told, n_freed;
    enum sender_end told;
    char told_why[256];
    struct buf cut_off; /* "tenant/instance/request error\n" */
    uint64_t said;      /* of what was cut off, or goes on */
    bool token;         /* without one, write() holds */
    int records_when_heard;
    uint64_t numbers;
    bool groundless;   /* no instance has a right to speak any more */
    bool nobody_lives; /* whoever asked before the restart is no more */
} w;

/* ---- the host ---- */

const struct host_env *host_env(struct host *h)
{
    return &w.env;
}
void host_result(struct host *h, struct action_id id, const struct action_result *r)
{
    w.n_results++;
    if (id.index >= MAX)
        return; /* nobody waits for it */
    w.results[id.index].n++;
    w.results[id.index].success = r->success;
    w.results[id.index].queued = r->queued;
    buf_reset(&w.results[id.index].id);
    buf_reset(&w.results[id.index].error);
    buf_add_str(&w.results[id.index].id, r->message_id);
    buf_add_str(&w.results[id.index].error, r->error);
}
void host_fail(struct host *h, struct action_id id, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    host_result(h, id, &(struct action_result){.error = str_of(text)});
}
void host_cut_off(struct host *h, const struct action_from *from, const char *error)
{
    w.said = from->said.lo;
    buf_printf(&w.cut_off, "%.*s/%.*s/%.*s %s\n", STR_FMT(from->tenant), STR_FMT(from->instance),
               STR_FMT(from->request_id), error);
}

bool host_had_event(struct host *h, struct platform *p, const struct action_from *from,
                    struct str event_id)
{
    return false;
}
enum gate_sight host_may_act(struct host *h, struct platform *p, const struct action_from *from,
                             const struct action_place *place)
{
    return w.groundless ? GATE_UNSEEN : GATE_SEEN;
}
bool host_revive(struct host *h, struct platform *p, const struct action_from *from,
                 enum action_op op, struct str chat, struct action_id *ret_id)
{
    uint64_t n = 0;

    if (w.nobody_lives)
        return false;
    assert_true(str_to_u64(str_skip(from->request_id, 1), &n)); /* "r7" */
    *ret_id = (struct action_id){.index = (uint32_t)n};
    w.said = from->said.lo;
    return true;
}
uint64_t host_number(struct host *h)
{
    return w.store->boot << 40 | ++w.numbers;
}

/* ---- the platform's server ---- */

static RIG_UNUSED void count_record(void *ctx, struct str key, struct str value)
{
    ++*(int *)ctx;
}

static RIG_UNUSED int n_records(const char *ns)
{
    int n = 0;

    assert_int_equal(w.store->ops->load_records(w.store, ns, STR(""), count_record, &n), BH_OK);
    return n;
}

static RIG_UNUSED void serve(void *ctx, struct http_req *r)
{
    struct str text = http_body(r);
    struct http_answer a = {.status = 200, .body = text};

    w.n_heard++;
    buf_printf(&w.heard, "%.*s ", STR_FMT(text));
    if (w.n_heard == 1)
        w.records_when_heard = n_records("outgoing");
    for (size_t i = 0; i < ARRAY_LEN(w.rules); i++) {
        struct rule *rule = &w.rules[i];
        if (rule->text == NULL || !str_eq(text, str_of(rule->text)) || rule->times == 0)
            continue;
        rule->times--;
        a.status = rule->status;
    }
    if (a.status == 0)
        w.held[w.n_held++] = http_req_id(r);
    else
        http_answer(w.server, http_req_id(r), &a);
}

/* ---- the adapter ---- */

static RIG_UNUSED void note_write(struct platform *p, struct outgoing *o, struct sender_request *q,
                                  struct sender_verdict *v)
{
    struct note *n = container_of(o, struct note, out);

    if (!w.token) {
        v->end = SENDER_HOLD;
        return;
    }
    buf_add_z(&q->url, w.url);
    buf_add_z(&q->body, n->parts[o->at]);
    q->headers[0] = "Content-Type: text/plain";
    q->once = n->once;
    q->timeout_ms = n->timeout_ms;
    v->end = SENDER_GO;
}

static RIG_UNUSED void note_read(struct platform *p, struct outgoing *o,
                                 const struct http_result *res, struct sender_verdict *v)
{
    struct note *n = container_of(o, struct note, out);

    snprintf(v->why, sizeof v->why, "it answers %d", res->status);
    switch (res->status) {
    case 200:
        v->end = SENDER_DONE;
        snprintf(v->message_id, sizeof v->message_id, "id of %s", n->parts[o->at]);
        break;
    case 429:
        v->end = SENDER_AGAIN;
        v->wait_ms = 50;
        break;
    case 430:
        v->end = SENDER_AGAIN;
        v->wait_ms = 60000;
        break;
    case 300:
        v->end = SENDER_REWRITE;
        n->parts[o->at] = "elsewhere";
        break;
    case 400:
        v->end = SENDER_REFUSED;
        break;
    case 420:
        v->end = SENDER_FAILED;
        break;
    case 499:
        v->end = SENDER_REFUSED; /* in words that would make the client send it again */
        snprintf(v->why, sizeof v->why, "no Network today");
        break;
    default:
        break;
    }
}

static RIG_UNUSED void note_told(void *ctx, const struct sender_verdict *v)
{
    w.n_told++;
    w.told = v->end;
    snprintf(w.told_why, sizeof w.told_why, "%s", v->why);
}

static RIG_UNUSED void ask(struct outgoing *o, struct str tenant, const char *lane)
{
    sender_ask(w.sender, o,
               &(struct sender_question){.lane = str_of(lane),
                                         .tenant = tenant,
                                         .patience_ms = 5000,
                                         .told = note_told,
                                         .ctx = xmalloc(1),
                                         .owns_ctx = true});
}

static RIG_UNUSED void note_free(struct outgoing *o)
{
    w.n_freed++;
    free(container_of(o, struct note, out));
}

static void note_act(struct platform *p, struct action_id id, const struct action_from *from,
                     const struct action *a);

/* "?text": is it there? */
static RIG_UNUSED void note_look(struct platform *p, struct outgoing *o, struct sender_request *q,
                                 struct sender_verdict *v)
{
    note_write(p, o, q, v);
    buf_reset(&q->body);
    buf_printf(&q->body, "?%s", container_of(o, struct note, out)->parts[o->at]);
    q->once = false;
}

static RIG_UNUSED void note_looked(struct platform *p, struct outgoing *o,
                                   const struct http_result *res, struct sender_verdict *v)
{
    v->end = res->status == 200   ? SENDER_DONE
             : res->status == 404 ? SENDER_REFUSED
                                  : SENDER_UNKNOWN;
    snprintf(v->message_id, sizeof v->message_id, "%s", res->status == 200 ? "found" : "");
}

static const struct sender_ops note_ops = {.write = note_write,
                                           .read = note_read,
                                           .free = note_free,
                                           .key_ms = 2000,
                                           .look = note_look,
                                           .looked = note_looked};
static const struct platform_ops platform_ops = {.name = "notes",
                                                 .label = "Notes",
                                                 .sender = &note_ops,
                                                 .act = note_act};

/* ---- what a test says ---- */

static RIG_UNUSED void open_sender(void)
{
    char why[256];

    w.base = (struct platform){.ops = &platform_ops, .env = &w.env, .bot = "me"};
    assert_int_equal(sender_new(&w.base, why), BH_OK);
    w.sender = w.base.sender;
}

static RIG_UNUSED void open_store(const char *name)
{
    char path[128], why[256];

    snprintf(path, sizeof path, "%s/%s", w.dir, name);
    assert_int_equal(store_sqlite_open(w.loop, path, &w.store, why), BH_OK);
    w.env.store = w.store;
}

static RIG_UNUSED void close_all(void)
{
    sender_free(w.sender);
    w.sender = NULL;
    store_close(w.store);
    w.store = NULL;
}

static RIG_UNUSED void reopen(void)
{
    close_all();
    open_store("db");
    open_sender();
}

static RIG_UNUSED int setup(void **state)
{
    char why[256];

    memset(&w, 0, sizeof w);
    snprintf(w.dir, sizeof w.dir, "/tmp/bellhop-sender-XXXXXX");
    assert_non_null(mkdtemp(w.dir));
    w.loop = loop_new();
    w.clock = loop_clock(w.loop);
    w.rand = rand_seeded(7);
    w.server = http_server_new(w.loop, NULL, serve, NULL);
    assert_int_equal(http_server_listen(w.server, STR("127.0.0.1:0"), NULL, 0, why), BH_OK);
    snprintf(w.url, sizeof w.url, "http://127.0.0.1:%d/", http_server_port(w.server));
    w.env = (struct host_env){.loop = w.loop,
                              .clock = w.clock,
                              .rand = &w.rand,
                              .journal = journal_new(),
                              .http = http_client_new(w.loop)};
    w.token = true;
    open_store("db");
    open_sender();
    return 0;
}

static RIG_UNUSED int teardown(void **state)
{
    char command[96];

    close_all();
    http_client_free(w.env.http);
    http_server_free(w.server);
    loop_free(w.loop);
    buf_done(&w.heard);
    buf_done(&w.cut_off);
    journal_free(w.env.journal);
    for (size_t i = 0; i < MAX; i++) {
        buf_done(&w.results[i].id);
        buf_done(&w.results[i].error);
    }
    snprintf(command, sizeof command, "rm -r %s", w.dir);
    return system(command);
}

#define PATIENCE_MS 20000
#define wait_for(what) \
    do { \
        for (int64_t end_ = test_now_ms() + PATIENCE_MS; !(what) && test_now_ms() < end_;) \
            loop_turn(w.loop, 20); \
        assert_true(what); \
    } while (0)

static RIG_UNUSED void pass(int64_t ms)
{
    for (int64_t end = test_now_ms() + ms; test_now_ms() < end;)
        loop_turn(w.loop, 5);
}

static RIG_UNUSED struct note *note_new(const char *lane, const char *text)
{
    struct note *n = xcalloc(1, sizeof *n);

    snprintf(n->lane, sizeof n->lane, "%s", lane);
    n->parts[0] = text;
    n->out.n_parts = 1;
    n->once = true;
    return n;
}

static RIG_UNUSED void act(uint32_t index, struct note *n, int64_t deadline_ms)
{
    char request[16];
    struct action_from from = {STR("acme"), STR("bot1"), .said = {SAID, 1}};
    struct action a = {.op = n->op,
                       .chat_id = str_of(n->lane),
                       .content = str_of(n->parts[0]),
                       .message_id = STR("m"),
                       .deadline_ms = deadline_ms};

    snprintf(request, sizeof request, "r%u", index);
    from.request_id = str_of(request);
    sender_act(w.sender, &n->out,
               &(struct sender_order){
                   .id = {.index = index}, .from = &from, .action = &a, .twice = n->twice});
}

/* What an earlier process left, or an edit of what was queued. */
static RIG_UNUSED void note_act(struct platform *p, struct action_id id,
                                const struct action_from *from, const struct action *a)
{
    struct note *n = xcalloc(1, sizeof *n);

    snprintf(n->lane, sizeof n->lane, "%.*s", STR_FMT(a->chat_id));
    snprintf(n->text, sizeof n->text, "%.*s%.*s", a->op == ACTION_EDIT ? 5 : 0,
             "edit:", STR_FMT(a->content));
    n->op = a->op;
    n->parts[0] = n->text;
    n->parts[1] = "p2";
    n->parts[2] = "p3";
    n->out.n_parts = strcmp(n->text, "p1") == 0 ? 3 : 1;
    n->twice = a->left != NULL ? a->left->e.twice : TWICE_IS_ONE;
    n->once = n->twice == TWICE_IS_TWO || n->twice == TWICE_IS_SEEN;
    sender_act(w.sender, &n->out,
               &(struct sender_order){.id = id, .from = from, .action = a, .twice = n->twice});
}

static RIG_UNUSED bool on_newest(void *ctx, uint64_t pos, const struct journal_record *rec)
{
    snprintf(ctx, 32, "%.*s", STR_FMT(rec->how));
    return false;
}

/* How the newest action ended. */
static RIG_UNUSED bool ended(const char *how)
{
    char is[32] = "";

    journal_each(w.env.journal, on_newest, is);
    return strcmp(is, how) == 0;
}

static RIG_UNUSED void say(uint32_t index, const char *lane, const char *text)
{
    act(index, note_new(lane, text), 0);
}

static RIG_UNUSED void when(size_t i, const char *text, int status, int times)
{
    w.rules[i] = (struct rule){text, status, times};
}

static RIG_UNUSED bool error_is(uint32_t index, const char *start)
{
    return !w.results[index].success && str_starts(buf_str(&w.results[index].error), str_of(start));
}

static RIG_UNUSED void answer_held(size_t i, int status)
{
    http_answer(w.server, w.held[i], &(struct http_answer){.status = status});
}

static RIG_UNUSED struct note *three_parts(const char *lane)
{
    struct note *n = note_new(lane, "p1");

    n->parts[1] = "p2";
    n->parts[2] = "p3";
    n->out.n_parts = 3;
    return n;
}
