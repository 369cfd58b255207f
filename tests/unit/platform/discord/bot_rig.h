/* bot_rig.h - a Discord bot between a host and an API that do exactly what a test says: requests
 * are kept as "METHOD /path" and answered by hand, time passes when it is told to. */
#pragma once
#include "unit.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rand.h"
#include "edge/vault.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "net/loop.h"
#include "platform/no_media.h"
#include "platform/discord/discord_priv.h"
#include "store/memory/memory.h"
#include "store/seal.h"
#include "store/store.h"

#define MAX 64
#define BOT "900"
#define RIG_UNUSED __attribute__((unused))

struct http_call {
    struct buf what, body;
    http_done_cb *done; /* NULL: answered or cancelled */
    void *ctx;
};

static struct {
    struct host_env env;
    struct rand rand;
    struct seal *seal;
    int64_t now_ms, wall_ms;
    struct platform *p;
    struct http_call calls[MAX];
    size_t n_calls;
    struct buf taken; /* "text option label user message tenant/instance;" */
    accepted_cb *done;
    void *ctx;
    struct buf answered; /* to the webhook; empty: nothing yet */
    bool lets_in;
    bool success;
    struct buf result; /* of the last action: its id or its error */
} w;

/* ---- the host ---- */

const struct host_env *host_env(struct host *h)
{
    return &w.env;
}
struct accept_id host_accept(struct host *h, struct platform *p, const struct event *ev,
                             accepted_cb *done, void *ctx)
{
    buf_printf(&w.taken, "%.*s %.*s %.*s %.*s %.*s %.*s/%.*s;", STR_FMT(ev->text),
               STR_FMT(ev->press.option_id), STR_FMT(ev->press.label), STR_FMT(ev->user_id),
               STR_FMT(ev->press.message_id), STR_FMT(ev->only_tenant), STR_FMT(ev->only_instance));
    w.done = done;
    w.ctx = ctx;
    return (struct accept_id){1, 1};
}
struct accept_id host_passthrough(struct host *h, struct platform *p, const struct event *ev,
                                  struct str forward_json, accepted_cb *done, void *ctx)
{
    fail_msg("nothing here is handed on");
    return (struct accept_id){0};
}
void host_accept_cancel(struct host *h, struct accept_id id)
{
    w.done = NULL;
}
void host_each_target(struct host *h, const struct event *ev, target_cb *cb, void *ctx)
{
    if (w.lets_in)
        cb(ctx, ev->only_tenant, ev->only_instance);
}
void host_context(struct host *h, struct context_ask ask, const struct event_said *said, size_t n,
                  bool failed)
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
    static uint64_t n;

    return ++n;
}
void host_cut_off(struct host *h, const struct action_from *from, const char *error)
{
}
void host_result(struct host *h, struct action_id id, const struct action_result *r)
{
    w.success = r->success;
    buf_reset(&w.result);
    buf_add_str(&w.result, r->success ? r->message_id : r->error);
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
void host_media_at(struct host *h, struct media_ask ask, const struct media_at *at)
{
}
void host_media_gone(struct host *h, struct media_ask ask, const char *why)
{
}

/* ---- the network ---- */

struct http_call *http_fetch(struct http_client *c, const struct http_fetch *f, http_done_cb *done,
                             void *ctx)
{
    struct str url = str_of(f->url), base = STR("https://api.example.org");

    assert_true(w.n_calls < MAX && str_starts(url, base));
    struct http_call *call = &w.calls[w.n_calls++];
    buf_printf(&call->what, "%s %.*s", f->method, STR_FMT(str_skip(url, base.n)));
    buf_add_str(&call->body, f->body);
    call->done = done;
    call->ctx = ctx;
    return call;
}
void http_cancel(struct http_call **call)
{
    if (*call != NULL)
        (*call)->done = NULL;
    *call = NULL;
}
struct str http_result_header(const struct http_result *r, const char *name)
{
    return STR_NULL;
}
void http_answer(struct http_server *s, struct http_id id, const struct http_answer *a)
{
    assert_int_equal(w.answered.n, 0); /* once */
    buf_printf(&w.answered, "%d %.*s", a->status, STR_FMT(a->body));
}
void http_answer_error(struct http_server *s, struct http_id id, int status, const char *code,
                       const char *fmt, ...)
{
    buf_printf(&w.answered, "%d %s", status, code);
}

/* ---- what a test says ---- */

static RIG_UNUSED void pass(int64_t ms)
{
    w.now_ms += ms;
    w.wall_ms += ms;
    clock_set(w.env.clock, w.now_ms, w.wall_ms);
    for (int i = 0; i < 8; i++)
        clock_turn(w.env.clock);
}

/* The newest request that is @what and waits for its answer; NULL: there is none. */
static RIG_UNUSED struct http_call *asked(const char *what)
{
    for (size_t i = w.n_calls; i > 0; i--)
        if (w.calls[i - 1].done != NULL && str_eq(buf_str(&w.calls[i - 1].what), str_of(what)))
            return &w.calls[i - 1];
    return NULL;
}

/* 'x' stands for "x". */
static RIG_UNUSED char *quoted(const char *text)
{
    char *z = xstrdup(text);

    for (char *p = z; *p != '\0'; p++)
        *p = *p == '\'' ? '"' : *p;
    return z;
}

static RIG_UNUSED void answer(const char *what, int status, const char *body)
{
    struct http_call *call = asked(what);
    char *text = quoted(body);

    if (call == NULL)
        fail_msg("nobody asks %s", what);
    http_done_cb *done = call->done;
    call->done = NULL;
    done(call->ctx, &(struct http_result){.err = BH_OK,
                                          .status = status,
                                          .body = str_of(text),
                                          .retry_after_ms = -1});
    free(text);
    pass(0);
    pass(10); /* the store commits, the next one starts */
}

static RIG_UNUSED struct discord *bot(void)
{
    return discord_of(w.p);
}

static RIG_UNUSED void open_bot(void)
{
#define Z(text) ((char *)(text)) /* the configuration owns its strings; ours are literals */
    static struct discord_settings cfg = {.base = {Z("discord"), Z(BOT),
                                                   .api_base = Z("https://api.example.org")},
                                          .token = Z("T")};
    char why[256] = "";

    assert_int_equal(platform_open(&discord_ops, &cfg.base, NULL, &w.p, why), BH_OK);
    pass(10);
}

static RIG_UNUSED int setup(void **state)
{
    char why[256];

    memset(&w, 0, sizeof w);
    w.rand = rand_seeded(1);
    w.now_ms = 1000;
    w.wall_ms = 1700000000000;
    w.lets_in = true;
    w.env.loop = loop_new();
    w.env.clock = clock_new();
    clock_set(w.env.clock, w.now_ms, w.wall_ms);
    w.env.store = store_memory_new(w.env.clock);
    w.env.rand = &w.rand;
    assert_int_equal(seal_open_master(STR("a passphrase of some length"), STR("salt"), NULL,
                                      &w.seal, why),
                     BH_OK);
    assert_int_equal(
        vault_open(&(struct vault_env){.clock = w.env.clock, .store = w.env.store, .seal = w.seal},
                   &w.env.vault, why),
        BH_OK);
    open_bot();
    return 0;
}

static RIG_UNUSED int teardown(void **state)
{
    platform_close(w.p);
    pass(100);
    vault_free(w.env.vault);
    seal_free(w.seal);
    store_close(w.env.store);
    clock_free(w.env.clock);
    loop_free(w.env.loop);
    for (size_t i = 0; i < MAX; i++) {
        buf_done(&w.calls[i].what);
        buf_done(&w.calls[i].body);
    }
    buf_done(&w.taken);
    buf_done(&w.answered);
    buf_done(&w.result);
    return 0;
}
