/* rig.h - a Telegram bot on a clock and a store of the test; the test answers its requests. */
#pragma once
/* The adapter between a host and a Telegram that do exactly what a test says: requests are kept by
 * number and answered by hand, time passes when it is told to. */
#include "unit.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/jw.h"
#include "base/mem.h"
#include "base/rand.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "platform/no_media.h"
#include "platform/platform.h"
#include "platform/telegram/telegram.h"
#include "store/memory/memory.h"
#include "store/store.h"
#include "tenancy/facts.h"

#define MAX 128
#define RIG_UNUSED __attribute__((unused))
#define TOKEN "123:SECRET-token"
#define Z(text) ((char *)(text)) /* the configuration owns its strings; ours are literals */

struct http_call {
    struct buf method, body;
    http_done_cb *done; /* NULL: answered or cancelled */
    void *ctx;
    bool once;
};

struct http_req {
    const char *method, *secret, *body;
    struct http_id id;
};

static struct {
    struct host_env env;
    struct rand rand;
    struct http_call calls[MAX];
    size_t n_calls;
    struct {
        struct buf text, chat, route;
        accepted_cb *done;
        void *ctx;
    } events[MAX];
    size_t n_events;
    struct {
        bool success, queued, merged;
        int n;
        struct buf id, error, name;
    } results[MAX];
    size_t n_results, n_cut_off;
    int http_status[MAX];
    const char *routed; /* the only key that is */
    bool revives;       /* instances of before a restart are still there */
    bool lets_in;       /* the gate, whoever presses a button */
    bool rich;          /* the bot's setting */
    int64_t now_ms, wall_ms;
    struct platform *p;
} w;

/* ---- the host ---- */

const struct host_env *host_env(struct host *h)
{
    return &w.env;
}

struct accept_id host_accept(struct host *h, struct platform *p, const struct event *ev,
                             accepted_cb *done, void *ctx)
{
    assert_true(w.n_events < MAX);
    buf_add_str(&w.events[w.n_events].text, ev->text);
    buf_add_str(&w.events[w.n_events].chat, ev->chat_id);
    const struct str keys[] = {ev->route_key, ev->former_key, ev->bot};
    struct str route = ev->route_key;
    for (size_t i = 0; w.routed != NULL && i < ARRAY_LEN(keys); i++)
        if (str_eq(keys[i], str_of(w.routed)))
            route = keys[i];
    buf_add_str(&w.events[w.n_events].route, route);
    w.events[w.n_events].done = done;
    w.events[w.n_events].ctx = ctx;
    return (struct accept_id){.index = (uint32_t)w.n_events++};
}
void host_each_target(struct host *h, const struct event *ev, target_cb *cb, void *ctx)
{
    if (w.lets_in)
        cb(ctx, ev->only_tenant, ev->only_instance);
}
void host_accept_cancel(struct host *h, struct accept_id id)
{
    w.events[id.index].done = NULL;
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
    *ret_id = ACTION_NOBODY;
    return w.revives;
}
uint64_t host_number(struct host *h)
{
    static uint64_t n;

    return ++n;
}
void host_cut_off(struct host *h, const struct action_from *from, const char *error)
{
    w.n_cut_off++;
}
void host_result(struct host *h, struct action_id id, const struct action_result *r)
{
    if (id.index == ACTION_NOBODY.index)
        return;
    assert_true(id.index < MAX);
    w.n_results++;
    w.results[id.index].n++;
    w.results[id.index].success = r->success;
    w.results[id.index].queued = r->queued;
    w.results[id.index].merged = r->merged;
    buf_add_str(&w.results[id.index].id, r->message_id);
    buf_add_str(&w.results[id.index].error, r->error);
    buf_add_str(&w.results[id.index].name, r->chat_name);
}
void host_media_at(struct host *h, struct media_ask ask, const struct media_at *at)
{
}
void host_media_gone(struct host *h, struct media_ask ask, const char *why)
{
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

/* ---- the network ---- */

struct http_call *http_fetch(struct http_client *c, const struct http_fetch *f, http_done_cb *done,
                             void *ctx)
{
    struct str url = str_of(f->url), base = STR("https://api.example.org/bot" TOKEN "/");

    assert_true(w.n_calls < MAX && str_starts(url, base));
    struct http_call *call = &w.calls[w.n_calls++];
    buf_add_str(&call->method, str_skip(url, base.n));
    buf_add_str(&call->body, f->body);
    call->done = done;
    call->ctx = ctx;
    call->once = f->once;
    return call;
}
void http_cancel(struct http_call **call)
{
    if (*call != NULL)
        (*call)->done = NULL;
    *call = NULL;
}
struct str http_method(const struct http_req *r)
{
    return str_of(r->method);
}
struct str http_body(const struct http_req *r)
{
    return str_of(r->body);
}
struct http_id http_req_id(const struct http_req *r)
{
    return r->id;
}
struct str http_header_named(const struct http_req *r, struct str name)
{
    return str_eq_ci(name, STR("X-Telegram-Bot-Api-Secret-Token")) ? str_of(r->secret) : STR_NULL;
}
void http_answer(struct http_server *s, struct http_id id, const struct http_answer *a)
{
    w.http_status[id.index] = a->status;
}
void http_answer_error(struct http_server *s, struct http_id id, int status, const char *code,
                       const char *fmt, ...)
{
    w.http_status[id.index] = status;
}

/* ---- what a test says ---- */

static void pass(int64_t ms)
{
    w.now_ms += ms;
    w.wall_ms += ms;
    clock_set(w.env.clock, w.now_ms, w.wall_ms);
    for (int i = 0; i < 8; i++)
        clock_turn(w.env.clock);
}

static void open_bot(bool webhook)
{
    static struct telegram_settings cfg;
    char why[256] = "";

    cfg = (struct telegram_settings){.base = {Z("telegram"), Z("my_bot"),
                                              .api_base = Z("https://api.example.org/")},
                                     .token = Z(TOKEN),
                                     .drafts = true,
                                     .rich = w.rich,
                                     .mode = webhook ? Z("webhook") : NULL,
                                     .webhook_secret = webhook ? Z("s3cret") : NULL};
    assert_int_equal(platform_open(&telegram_ops, &cfg.base, NULL, &w.p, why), BH_OK);
}

static struct http_call *last_call(void)
{
    assert_true(w.n_calls > 0);
    return &w.calls[w.n_calls - 1];
}

static void answer_call(struct http_call *call, enum bh_err err, int status, const char *body)
{
    http_done_cb *done = call->done;
    char text[2048];

    assert_non_null(done);
    call->done = NULL;
    snprintf(text, sizeof text, "%s", body);
    for (char *p = text; *p != '\0'; p++)
        *p = *p == '\'' ? '"' : *p;
    done(call->ctx, &(struct http_result){.err = err,
                                          .status = status,
                                          .body = str_of(text),
                                          .why = err != BH_OK ? body : NULL,
                                          .retry_after_ms = -1});
    pass(0);
}

static void answer(int status, const char *body)
{
    answer_call(last_call(), BH_OK, status, body);
}

RIG_UNUSED static void accepted(size_t i, enum bh_err err)
{
    accepted_cb *done = w.events[i].done;

    assert_non_null(done);
    w.events[i].done = NULL;
    done(w.events[i].ctx, err);
    pass(0);
}

/* Through getMe and deleteWebhook to the first getUpdates. */
static void reach_polling(void)
{
    open_bot(false);
    assert_str(buf_str(&last_call()->method), "getMe");
    answer(200, "{'ok':true,'result':{'id':777,'username':'my_bot'}}");
    assert_str(buf_str(&last_call()->method), "deleteWebhook");
    answer(200, "{'ok':true,'result':true}");
    assert_str(buf_str(&last_call()->method), "getUpdates");
}

#define UPDATE(id, chat, text) \
    "{'update_id':" id ",'message':{'message_id':" id ",'chat':{'id':" chat \
    ",'type':'private'},'from':{'id':" chat ",'first_name':'A'},'text':'" text "'}}"
#define UPDATES(list) "{'ok':true,'result':[" list "]}"

RIG_UNUSED static bool asks(const char *part)
{
    return str_contains(buf_str(&last_call()->body), str_of(part));
}

RIG_UNUSED static void act(uint32_t index, enum action_op op, const char *chat, const char *content,
                           const char *message_id)
{
    struct action a = {.op = op,
                       .chat_id = str_of(chat),
                       .content = str_of(content),
                       .message_id = str_of(message_id)};

    telegram_ops.act(w.p, (struct action_id){.index = index}, &(struct action_from){0}, &a);
    pass(0);
    pass(10); /* the store commits, the outbox starts */
}

RIG_UNUSED static size_t count_calls(const char *method)
{
    size_t n = 0;

    for (size_t i = 0; i < w.n_calls; i++)
        n += str_eq(buf_str(&w.calls[i].method), str_of(method));
    return n;
}

static int setup(void **state)
{
    memset(&w, 0, sizeof w);
    w.rand = rand_seeded(1);
    w.now_ms = 1000;
    w.wall_ms = 1700000000000;
    w.env.clock = clock_new();
    clock_set(w.env.clock, w.now_ms, w.wall_ms);
    w.env.store = store_memory_new(w.env.clock);
    w.env.rand = &w.rand;
    w.env.public_url = "https://relay.example.org";
    w.routed = "my_bot";
    return 0;
}

static int teardown(void **state)
{
    if (w.p != NULL)
        platform_close(w.p);
    for (size_t i = 0; i < w.n_events; i++)
        assert_null(w.events[i].done); /* answered, or called off */
    pass(100);
    store_close(w.env.store);
    clock_free(w.env.clock);
    for (size_t i = 0; i < MAX; i++) {
        buf_done(&w.calls[i].method);
        buf_done(&w.calls[i].body);
        buf_done(&w.events[i].text);
        buf_done(&w.events[i].chat);
        buf_done(&w.events[i].route);
        buf_done(&w.results[i].id);
        buf_done(&w.results[i].error);
        buf_done(&w.results[i].name);
    }
    return 0;
}
