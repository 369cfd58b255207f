/* web_rig.h - one bot of the web platform, with a fake host and a fake HTTP server, and how a test
 * asks it. */
#pragma once
#include "platform/web/fake.h"
#include "base/limits.h"
#include "base/config.h"
#include "base/log.h"
#include "platform/web/web.h"
#include "platform/web/web_priv.h"

#define RIG_UNUSED __attribute__((unused))

#define ADA "ada-0123456789abcdef"
#define BOB "bob-0123456789abcdef"
#define JSON \
    { \
        "Content-Type", "application/json" \
    }

static struct clock *clk;
static struct store *store;
static struct seal *seal;
static struct platform *web;
static struct web_settings cfg;

static void
turn(void) /* until nothing is deferred any more: the store answers over several turns */
{
    for (int i = 0; i < 8; i++)
        clock_turn(clk);
}

static RIG_UNUSED void later(int64_t ms)
{
    clock_set(clk, clock_now_ms(clk) + ms, clock_wall_ms(clk) + ms);
    turn();
}

static RIG_UNUSED void open_bot(uint32_t history)
{
    char why[256];

    cfg = (struct web_settings){.base = {(char *)"web", (char *)"lobby"},
                                .title = (char *)"The <Lobby>",
                                .history = history};
    assert_int_equal(platform_open(&web_ops, &cfg.base, NULL, &web, why), BH_OK);
    turn();
}

static RIG_UNUSED void close_bot(void)
{
    platform_close(web);
    web = NULL;
    turn();
}

static RIG_UNUSED int setup(void **state)
{
    char why[256];

    fake_forget();
    log_setup(LOG_ERROR, false);
    clk = clock_new();
    clock_set(clk, 1000, 1700000000000);
    store = store_memory_new(clk);
    assert_int_equal(seal_open_master(STR("correct horse battery"), STR("salt"), NULL, &seal, why),
                     BH_OK);
    fake.rand = rand_seeded(7);
    fake.env = (struct host_env){.clock = clk,
                                 .store = store,
                                 .rand = &fake.rand,
                                 .seal = seal,
                                 .public_url = "https://chat.example.org"};
    return 0;
}

static RIG_UNUSED int teardown(void **state)
{
    if (web != NULL)
        close_bot();
    store_close(store);
    seal_free(seal);
    clock_free(clk);
    fake_forget();
    return 0;
}

/* ---- asking ---- */

static RIG_UNUSED uint32_t ask(struct http_req r)
{
    r.id = (struct http_id){.index = fake.n_reqs++};
    assert_true(fake.n_reqs < FAKE_MAX);
    web->ops->http(web, &r);
    return r.id.index;
}

static RIG_UNUSED uint32_t post(const char *who, const char *body)
{
    return ask((struct http_req){.method = "POST",
                                 .path = "/chat/lobby/api/message",
                                 .body = body,
                                 .headers = {JSON, {"X-Bellhop-Visitor", who}}});
}

static RIG_UNUSED uint32_t get(const char *who, const char *call, const char *last)
{
    char path[64];

    snprintf(path, sizeof path, "/chat/lobby/api/%s", call);
    uint32_t r = ask((struct http_req){.method = "GET",
                                       .path = path,
                                       .headers = {{"X-Bellhop-Visitor", who},
                                                   {last != NULL ? "Last-Event-ID" : NULL, last}}});
    turn();
    return r;
}

static RIG_UNUSED void accept_all(enum bh_err err)
{
    for (size_t i = 0; i < fake.n_events; i++) {
        accepted_cb *done = fake.events[i].done;
        fake.events[i].done = NULL;
        if (done != NULL)
            done(fake.events[i].ctx, err);
    }
    turn();
}

static RIG_UNUSED uint32_t say(const char *who, const char *body)
{
    uint32_t r = post(who, body);
    accept_all(BH_OK);
    return r;
}

static RIG_UNUSED size_t act(struct action a)
{
    static uint32_t n;
    size_t before = fake.n_results;
    struct action_from from = {STR("acme"), STR("one")};

    web->ops->act(web, (struct action_id){.index = ++n}, &from, &a);
    turn();
    assert_int_equal(fake.n_results, before + 1); /* exactly one result */
    assert_int_equal(fake.results[before].index, n);
    return before;
}

static RIG_UNUSED size_t send_text(const char *chat, const char *text)
{
    return act(
        (struct action){.op = ACTION_SEND, .chat_id = str_of(chat), .content = str_of(text)});
}

static RIG_UNUSED int status_of(uint32_t req)
{
    return fake.reqs[req].status;
}
static RIG_UNUSED const char *body_of(uint32_t req)
{
    return buf_z(&fake.reqs[req].body);
}
static RIG_UNUSED const char *stream_of(uint32_t req)
{
    return buf_z(&fake.reqs[req].stream);
}
static RIG_UNUSED const char *chat_of(size_t event)
{
    return buf_z(&fake.events[event].chat_id);
}

static RIG_UNUSED int count(const char *text, const char *needle)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, needle)) != NULL; at++)
        n++;
    return n;
}

#define assert_has(text, needle) assert_non_null(strstr((text), (needle)))
#define assert_has_not(text, needle) assert_null(strstr((text), (needle)))
