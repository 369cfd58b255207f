/* shards.c - opens the shards of a bot, decides when each may start a session, and stores the
 * sessions for a restart.  (discord_priv.h has the calls.)
 *
 * Discord tells the number of shards and how many sessions may still be started today.  A bot that
 * starts more loses its token.  So the bot asks before the first session, and again before a later
 * session if the answer is old.  max_concurrency shards start at a time; shards that share a slot
 * start five seconds apart. */
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "net/ws_client.h"
#include "platform/discord/discord_priv.h"
#include "store/store.h"

enum {
    SLOT_MS = 5250, /* Discord counts in windows of five seconds */
    INFO_MS = 60000,
    RETRY_MS = 5000,
    MAX_SHARDS = 1024,
    MAX_CONCURRENCY = 256,
};

static timer_cb on_start_timer;

/* ---- the wire of a shard: one WebSocket ---- */

static void on_ws_open(void *ctx)
{
    dsocket_opened(((struct discord_shard *)ctx)->socket);
}

static void on_ws_message(void *ctx, struct str message, bool text)
{
    struct discord_shard *s = ctx;

    s->d->base.last_event_ms = clock_wall_ms(s->d->env->clock);
    dsocket_message(s->socket, message);
}

static void on_ws_closed(void *ctx, int code, const char *why)
{
    struct discord_shard *s = ctx;

    s->ws = NULL; /* a closed WebSocket frees itself */
    dsocket_closed(s->socket, code, why);
}

static void wire_open(void *ctx, struct dsocket *socket, const char *url)
{
    static const struct ws_client_handlers handlers = {.on_open = on_ws_open,
                                                       .on_message = on_ws_message,
                                                       .on_closed = on_ws_closed};
    struct discord *d = ctx;
    struct discord_shard *s = &d->shards[dsocket_shard(socket)];

    s->ws = ws_client_open(d->env->loop, &(struct ws_client_options){.url = url}, &handlers, s);
}

static void wire_send(void *ctx, struct dsocket *socket, struct str text)
{
    struct discord *d = ctx;
    struct discord_shard *s = &d->shards[dsocket_shard(socket)];

    if (s->ws != NULL)
        ws_client_send(s->ws, text);
}

static void wire_drop(void *ctx, struct dsocket *socket)
{
    struct discord *d = ctx;
    struct discord_shard *s = &d->shards[dsocket_shard(socket)];

    ws_client_free(s->ws);
    s->ws = NULL;
}

static const struct dsocket_wire wire = {wire_open, wire_send, wire_drop};

/* ---- sessions, kept across restarts ----
 *
 * A session is written at most every two seconds.  So a restart may resume a little too early; the
 * host drops the repeated events by their message id.  The record has the confirmed sequence
 * number, so it never claims an event that is not stored. */

struct stored_session { /* its texts are owned if it was read from the store, else borrowed */
    char *bot;
    uint32_t shard, shards;
    char *id, *url, *user;
    uint64_t seq, intents;
    char name[32]; /* "<shard>/<shards>": its key in discord->stored */
};
static const struct record_field session_fields[] = {
    RECORD_FIELD(struct stored_session, bot, "bot", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct stored_session, shard, "shard", RECORD_KEY),
    RECORD_FIELD(struct stored_session, shards, "shards", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct stored_session, id, "id", RECORD_NEEDED),
    RECORD_FIELD(struct stored_session, url, "url", 0),
    RECORD_FIELD(struct stored_session, user, "user", 0),
    RECORD_FIELD(struct stored_session, seq, "seq", RECORD_NEEDED),
    RECORD_FIELD(struct stored_session, intents, "intents", 0),
};
const struct record_form discord_session_form =
    RECORD_FORM("discord_session", struct stored_session, session_fields, .lossy = true);

void discord_shards_save(struct discord *d)
{
    for (unsigned i = 0; i < d->n_shards; i++) {
        struct discord_shard *s = &d->shards[i];
        struct dsocket_session gs = dsocket_session(s->socket);
        struct stored_session r = {.bot = (char *)d->base.bot,
                                   .shard = i,
                                   .shards = d->n_shards,
                                   .id = (char *)gs.id,
                                   .url = (char *)gs.resume_url,
                                   .user = d->bot_user,
                                   .seq = gs.seq,
                                   .intents = d->intent_bits};

        if (gs.seq == s->saved_seq && strcmp(gs.id, s->saved_id) == 0)
            continue;
        s->saved_seq = gs.seq;
        snprintf(s->saved_id, sizeof s->saved_id, "%s", gs.id);
        if (gs.id[0] != '\0' && gs.seq != 0)
            record_put(d->env->store, &discord_session_form, NULL, &r, false, NULL, NULL);
        else
            record_delete_like(d->env->store, &discord_session_form, &r);
    }
}

static void stored_free(struct stored_session *st)
{
    record_done(&discord_session_form, st);
    free(st);
}

static bool on_session(void *ctx, struct str key, void *thing)
{
    struct discord *d = ctx;
    struct stored_session *st = xmalloc(sizeof *st);

    (void)key;
    *st = *(struct stored_session *)thing;
    snprintf(st->name, sizeof st->name, "%u/%u", st->shard, st->shards);
    struct stored_session *was = map_put(&d->stored, str_of(st->name), st);
    if (was != NULL)
        stored_free(was);
    return true;
}

enum bh_err discord_shards_load(struct discord *d, char *ret_why)
{
    struct stored_session own = {.bot = (char *)d->base.bot};

    return record_load_like(d->env->store, &discord_session_form, &own, 1, on_session, d, ret_why);
}

static bool resume_stored(struct discord *d, unsigned shard, unsigned n_shards,
                          struct dsocket *socket)
{
    char name[32];

    snprintf(name, sizeof name, "%u/%u", shard, n_shards);
    struct stored_session *st = map_del(&d->stored, str_of(name));
    if (st == NULL)
        return false;
    struct str user = str_of(st->user);
    /* A session keeps the intents it began with, so one with other intents is not resumed. */
    bool ok = st->intents == d->intent_bits && snowflake(user) != 0 && user.n < sizeof d->bot_user;
    if (ok) {
        memcpy(d->bot_user, user.p, user.n);
        d->bot_user[user.n] = '\0';
        dcache_set_bot(d->cache, snowflake(user));
        dsocket_set_session(socket, str_of(st->id), str_of(st->url), st->seq);
    }
    stored_free(st);
    return ok;
}

/* ---- shards ---- */

static void shards_free(struct discord *d)
{
    for (unsigned i = 0; i < d->n_shards; i++) {
        discord_inbound_shard_done(&d->shards[i]);
        dsocket_free(d->shards[i].socket);
    }
    free(d->shards);
    d->shards = NULL;
    d->n_shards = 0;
}

static void make_shards(struct discord *d, unsigned n)
{
    shards_free(d);
    d->shards = xcalloc(n, sizeof *d->shards);
    d->n_shards = n;
    for (unsigned i = 0; i < n; i++) {
        struct discord_shard *s = &d->shards[i];
        s->d = d;
        discord_inbound_shard_init(s);
        s->socket = dsocket_new(
            &(struct dsocket_options){.clock = d->env->clock,
                                      .rand = d->env->rand,
                                      .wire = &wire,
                                      .handlers = &discord_socket_handlers,
                                      .ctx = d,
                                      .token = d->cfg->token,
                                      .url = d->gateway_url,
                                      .intents = d->intent_bits,
                                      .shard = i,
                                      .n_shards = n,
                                      .ignore_resume_url = d->cfg->gateway_url != NULL});
        if (!resume_stored(d, i, n, s->socket))
            discord_backfill_mark(d, s);
    }
    for (unsigned i = 0; i < n; i++)
        dsocket_start(d->shards[i].socket);
    log_info(&d->log, "starting: shards=%u", n);
}

/* ---- how many shards, and when each may start ---- */

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
        return; /* retrying is useless until the operator changes the token */
    }
    if (t->end != SENDER_DONE || !read_info(d, t->answer.body, &shards)) {
        d->start_problem = "Discord's API cannot be reached or gave an unusable answer: check the "
                           "network and `api_base`; bellhop keeps trying";
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

void discord_shards_reshard(struct discord *d)
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

/* Starts the queued shards whose slot is free; the timer fires when the next slot is. */
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
        dsocket_identify(s->socket);
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

void discord_shards_want_session(struct discord *d, struct discord_shard *s)
{
    s->queued = true;
    if (!timer_is_set(&d->start_timer))
        timer_set(d->env->clock, &d->start_timer, 0);
}

void discord_shards_init(struct discord *d)
{
    d->remaining = -1;
    timer_init(&d->start_timer, on_start_timer);
    start_ask(d);
}

void discord_shards_done(struct discord *d)
{
    void *v;

    timer_stop(d->env->clock, &d->start_timer);
    sender_cancel(&d->info_call);
    shards_free(d);
    for (size_t at = 0; map_next(&d->stored, &at, &v);)
        stored_free(v);
    map_done(&d->stored);
    free(d->gateway_url);
    free(d->last_start_ms);
}
