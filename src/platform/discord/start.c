/* start.c - design.  (discord_priv.h has the calls.)
 *
 * Discord says how many shards it wants and how many sessions may still be started today; starting
 * more would cost the bot its token.  So it is asked before the first session, and again before any
 * later one when the answer is old.  Shards begin max_concurrency at a time, five seconds apart for
 * those that share a slot. */
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"
#include "net/ws_client.h"
#include "platform/discord/discord_priv.h"

enum {
    SLOT_MS = 5250, /* Discord counts in windows of five seconds */
    INFO_MS = 60000,
    RETRY_MS = 5000,
    MAX_SHARDS = 1024,
    MAX_CONCURRENCY = 256,
};

static timer_cb on_start_timer;

/* ---- the wire of a shard ---- */

static void on_ws_open(void *ctx)
{
    dgateway_opened(((struct discord_shard *)ctx)->gateway);
}

static void on_ws_message(void *ctx, struct str message, bool text)
{
    struct discord_shard *s = ctx;

    s->d->base.last_event_ms = clock_wall_ms(s->d->env->clock);
    dgateway_message(s->gateway, message);
}

static void on_ws_closed(void *ctx, int code, const char *why)
{
    struct discord_shard *s = ctx;

    s->ws = NULL; /* it frees itself */
    dgateway_closed(s->gateway, code, why);
}

static void wire_open(void *ctx, struct dgateway *g, const char *url)
{
    static const struct ws_client_handlers handlers = {.on_open = on_ws_open,
                                                       .on_message = on_ws_message,
                                                       .on_closed = on_ws_closed};
    struct discord *d = ctx;
    struct discord_shard *s = &d->shards[dgateway_shard(g)];

    s->ws = ws_client_open(d->env->loop, &(struct ws_client_options){.url = url}, &handlers, s);
}

static void wire_send(void *ctx, struct dgateway *g, struct str text)
{
    struct discord *d = ctx;
    struct discord_shard *s = &d->shards[dgateway_shard(g)];

    if (s->ws != NULL)
        ws_client_send(s->ws, text);
}

static void wire_drop(void *ctx, struct dgateway *g)
{
    struct discord *d = ctx;
    struct discord_shard *s = &d->shards[dgateway_shard(g)];

    ws_client_free(s->ws);
    s->ws = NULL;
}

static const struct dgateway_wire wire = {wire_open, wire_send, wire_drop};

/* ---- shards ---- */

void discord_start_shards_free(struct discord *d)
{
    for (unsigned i = 0; i < d->n_shards; i++) {
        discord_events_shard_done(&d->shards[i]);
        dgateway_free(d->shards[i].gateway);
    }
    free(d->shards);
    d->shards = NULL;
    d->n_shards = 0;
}

static void make_shards(struct discord *d, unsigned n)
{
    discord_start_shards_free(d);
    d->shards = xcalloc(n, sizeof *d->shards);
    d->n_shards = n;
    for (unsigned i = 0; i < n; i++) {
        struct discord_shard *s = &d->shards[i];
        s->d = d;
        discord_events_shard_init(s);
        s->gateway = dgateway_new(
            &(struct dgateway_options){.clock = d->env->clock,
                                       .rand = d->env->rand,
                                       .wire = &wire,
                                       .handlers = &discord_gateway_handlers,
                                       .ctx = d,
                                       .token = d->cfg->token,
                                       .url = d->gateway_url,
                                       .intents = d->intent_bits,
                                       .shard = i,
                                       .n_shards = n,
                                       .ignore_resume_url = d->cfg->gateway_url != NULL});
        if (!discord_bookmark_session(d, i, n, s->gateway))
            discord_backfill_mark(d, s);
    }
    for (unsigned i = 0; i < n; i++)
        dgateway_start(d->shards[i].gateway);
    log_info(&d->log, "starting: shards=%u", n);
}

/* ---- how many, and when ---- */

static int64_t now_ms(const struct discord *d)
{
    return clock_now_ms(d->env->clock);
}

static bool read_info(struct discord *d, struct json info, unsigned *ret_shards)
{
    struct json limit = json_get(info, "session_start_limit");
    struct str url = json_str(info, "url");
    int64_t shards = 0, remaining = -1, reset = 0, concurrency = 1;

    if (!json_as_i64(json_get(info, "shards"), &shards) || shards < 1 || shards > MAX_SHARDS ||
        !str_starts(url, STR("ws")))
        return false;
    json_as_i64(json_get(limit, "remaining"), &remaining);
    json_as_i64(json_get(limit, "reset_after"), &reset);
    json_as_i64(json_get(limit, "max_concurrency"), &concurrency);
    if (concurrency < 1)
        concurrency = 1;
    if (concurrency > MAX_CONCURRENCY)
        concurrency = MAX_CONCURRENCY;
    d->remaining = remaining;
    d->reset_ms = now_ms(d) + (reset > 0 ? reset : 0);
    d->info_ms = now_ms(d);
    if (d->concurrency != (unsigned)concurrency) {
        d->last_start_ms = xrealloc(d->last_start_ms, (size_t)concurrency * sizeof(int64_t));
        for (int64_t i = 0; i < concurrency; i++)
            d->last_start_ms[i] = now_ms(d) - SLOT_MS;
        d->concurrency = (unsigned)concurrency;
    }
    free(d->gateway_url);
    d->gateway_url = d->cfg->gateway_url != NULL ? xstrdup(d->cfg->gateway_url) : str_dup(url);
    *ret_shards = (unsigned)shards;
    return true;
}

static void on_info(void *ctx, const struct discord_told *t)
{
    struct discord *d = ctx;
    unsigned shards;

    d->info_call = NULL;
    if (d->rest.token_refused) {
        d->base.problem = discord_rest_problem(d);
        return; /* nothing will change until the token does */
    }
    if (t->end != SENDER_DONE || !read_info(d, t->answer.body, &shards)) {
        d->start_problem = "Discord's API cannot be reached or does not answer with sense: check "
                           "the network and `api_base`; bellhop goes on trying";
        d->base.problem = d->start_problem;
        log_warn(&d->log, "gateway/bot: status=%d %s", t->answer.status, t->why);
        timer_set(d->env->clock, &d->start_timer, RETRY_MS);
        return;
    }
    d->start_problem = NULL;
    if (d->n_shards == 0 || d->reshard)
        make_shards(d, shards);
    d->reshard = false;
    timer_set(d->env->clock, &d->start_timer, 0);
}

static void start_ask(struct discord *d)
{
    if (d->info_call != NULL)
        return;
    d->info_call = discord_ask(d,
                               &(struct discord_question){.route = "gateway",
                                                          .path = STR("/gateway/bot"),
                                                          .lane = STR("gateway")},
                               on_info, d);
}

void discord_start_reshard(struct discord *d)
{
    d->reshard = true;
    start_ask(d);
}

static bool any_queued(const struct discord *d)
{
    for (unsigned i = 0; i < d->n_shards; i++)
        if (d->shards[i].queued)
            return true;
    return false;
}

/* Let those begin whose slot is free; come back when the next one is. */
static void start_queued(struct discord *d)
{
    int64_t next = -1;

    for (unsigned i = 0; i < d->n_shards && d->remaining != 0; i++) {
        struct discord_shard *s = &d->shards[i];
        int64_t wait = d->last_start_ms[i % d->concurrency] + SLOT_MS - now_ms(d);

        if (!s->queued)
            continue;
        if (wait > 0) {
            next = next < 0 || wait < next ? wait : next;
            continue;
        }
        s->queued = false;
        d->last_start_ms[i % d->concurrency] = now_ms(d);
        if (d->remaining > 0)
            d->remaining--;
        dgateway_identify(s->gateway);
    }
    d->start_problem = NULL;
    if (d->remaining == 0 && any_queued(d)) {
        d->start_problem =
            "Discord allows this bot no more session starts for now (a day's limit): "
            "bellhop waits until the limit is reset";
        d->base.problem = d->start_problem;
        d->info_ms = 0;
        next = d->reset_ms > now_ms(d) ? d->reset_ms - now_ms(d) : RETRY_MS;
    }
    if (next >= 0)
        timer_set(d->env->clock, &d->start_timer, next);
}

static void on_start_timer(struct timer *t)
{
    struct discord *d = container_of(t, struct discord, start_timer);

    if (d->n_shards == 0 || d->reshard)
        start_ask(d);
    else if (!any_queued(d))
        return;
    else if (d->info_ms == 0 || now_ms(d) - d->info_ms > INFO_MS)
        start_ask(d);
    else
        start_queued(d);
}

void discord_start_wants(struct discord *d, struct discord_shard *s)
{
    s->queued = true;
    if (!timer_is_set(&d->start_timer))
        timer_set(d->env->clock, &d->start_timer, 0);
}

void discord_start_init(struct discord *d)
{
    d->remaining = -1;
    timer_init(&d->start_timer, on_start_timer);
    start_ask(d);
}

void discord_start_done(struct discord *d)
{
    timer_stop(d->env->clock, &d->start_timer);
    sender_cancel(&d->info_call);
    discord_start_shards_free(d);
    free(d->gateway_url);
    free(d->last_start_ms);
}
