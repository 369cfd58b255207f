/* discord.c - one Discord bot: its settings, its shards and their sessions, open, close, status.
 * (discord.h; discord_priv.h is the map of the other files.)
 *
 * Discord tells the number of shards and how many sessions may still be started today.  A bot that
 * starts more loses its token.  So the bot asks before the first session, and again before a later
 * session if the answer is old.  max_concurrency shards start at a time; shards that share a slot
 * start five seconds apart. */
#include "platform/discord/discord.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/config.h"
#include "base/json.h"
#include "base/jw.h"
#include "base/mem.h"
#include "net/http_client.h"
#include "net/work.h"
#include "net/ws_client.h"
#include "platform/discord/discord_priv.h"
#include "platform/discord/interactions.h"
#include "platform/prompts.h"
#include "platform/recent.h"
#include "store/store.h"

#define TICK_MS 2000
#define DISCORD_BEAT_MS 44500 /* Discord answers a heartbeat every 41 s */

enum {
    SLOT_MS = 5250, /* Discord counts in windows of five seconds */
    INFO_MS = 60000,
    RETRY_MS = 5000,
    MAX_SHARDS = 1024,
    MAX_CONCURRENCY = 256,
};

/* ---- settings ---- */

#define AT(member) offsetof(struct discord_settings, member)

static const struct config_key keys[] = {
    {"token", CFG_SECRET, CFG_RESTART, AT(token), .ask = "", .what = "The bot's token."},
    PLATFORM_KEY_API_BASE,
    {"gateway_url", CFG_TEXT, CFG_RESTART, AT(gateway_url),
     .what = "Another gateway than the one Discord names."},
    {"intents", CFG_TEXT, CFG_RESTART, AT(intents),
     .what = "Gateway intents: a number, or names with commas between them."},
    {"public_key", CFG_TEXT, CFG_RESTART, AT(public_key),
     .what = "The application's public key, for interactions."},
    {"interactions", CFG_CHOICE, CFG_RESTART, AT(interactions), NULL, "passthrough|inbound",
     .what = "`passthrough` or `inbound`."},
    {"context", CFG_NUMBER, CFG_RESTART, AT(context), "20", .max = EVENT_MAX_CONTEXT,
     .what = "How many earlier messages of a shared channel are delivered as context."},
    {"auto_thread", CFG_BOOL, CFG_RESTART, AT(auto_thread), "false",
     .what = "Answer messages of a channel in a new thread."},
    PLATFORM_KEY_REACTIONS,
    {0},
};

static const struct {
    const char *name;
    int bit;
} intent_names[] = {
    {"guilds", 0},
    {"guild_members", 1},
    {"guild_moderation", 2},
    {"guild_expressions", 3},
    {"guild_integrations", 4},
    {"guild_webhooks", 5},
    {"guild_invites", 6},
    {"guild_voice_states", 7},
    {"guild_presences", 8},
    {"guild_messages", 9},
    {"guild_message_reactions", 10},
    {"guild_message_typing", 11},
    {"direct_messages", 12},
    {"direct_message_reactions", 13},
    {"direct_message_typing", 14},
    {"message_content", 15},
    {"guild_scheduled_events", 16},
    {"auto_moderation_configuration", 20},
    {"auto_moderation_execution", 21},
    {"guild_message_polls", 24},
    {"direct_message_polls", 25},
};

static bool add_intent(struct str name, uint64_t *intents)
{
    for (size_t i = 0; i < ARRAY_LEN(intent_names); i++)
        if (str_eq_ci(name, str_of(intent_names[i].name))) {
            *intents |= UINT64_C(1) << intent_names[i].bit;
            return true;
        }
    return false;
}

static uint64_t reaction_intents(const struct discord_settings *s)
{
    return s->base.reactions ? UINT64_C(1) << 10 | UINT64_C(1) << 13 : 0;
}

static bool discord_intents(const struct discord_settings *s, uint64_t *ret_intents, char *ret_why)
{
    const char *text = s->intents;
    struct str rest = str_of(text), part;
    uint64_t intents = 0;

    if (text == NULL || str_to_u64(rest, &intents)) {
        *ret_intents = (text == NULL ? DISCORD_INTENTS_DEFAULT : intents) | reaction_intents(s);
        return true;
    }
    while (str_split(&rest, ',', &part)) {
        part = str_trim(part);
        if (part.n > 0 && !add_intent(part, &intents))
            return bh_why(
                ret_why,
                "`intents` has \"%.*s\", which is not an intent: use names such as guilds, "
                "guild_messages, direct_messages, message_content, with commas between them",
                (int)(part.n < 60 ? part.n : 60), part.p);
    }
    *ret_intents = intents | reaction_intents(s);
    return true;
}

static bool check(void *settings, char *ret_why)
{
    const struct discord_settings *s = settings;
    uint64_t unused;

    if (s->token == NULL)
        return bh_why(ret_why, "a discord platform needs `bot` (the application id) and `token`");
    if (!discord_intents(s, &unused, ret_why))
        return false;
    struct discord_sig *sig = s->public_key != NULL ? discord_sig_new(str_of(s->public_key)) : NULL;
    bool ok = s->public_key == NULL || sig != NULL;
    discord_sig_free(sig);
    if (!ok)
        snprintf(ret_why, 256,
                 "`public_key` is not a key: copy the 64 hex digits from the Developer Portal "
                 "(General Information)");
    return ok;
}

const struct config_section discord_config = {.name = "discord",
                                              .keys = keys,
                                              .size = sizeof(struct discord_settings),
                                              .check = check};

/* ---- the wire of a shard: one WebSocket ---- */

static void on_ws_open(void *ctx)
{
    dsocket_opened(((struct discord_shard *)ctx)->socket);
}

static void on_ws_message(void *ctx, struct str message, bool text)
{
    struct discord_shard *s = ctx;
    int64_t now_ms = clock_wall_ms(s->d->base.env->clock);

    s->d->base.last_event_ms = now_ms;
    platform_beat(&s->d->base, now_ms, DISCORD_BEAT_MS);
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
    struct discord_shard *s = ctx;

    s->ws =
        ws_client_open(s->d->base.env->loop, &(struct ws_client_options){.url = url}, &handlers, s);
}

static void wire_send(void *ctx, struct dsocket *socket, struct str text)
{
    struct discord_shard *s = ctx;

    if (s->ws != NULL)
        ws_client_send(s->ws, text);
}

static void wire_drop(void *ctx, struct dsocket *socket)
{
    struct discord_shard *s = ctx;

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

static void shards_save(struct discord *d)
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
            record_put(d->base.env->store, &discord_session_form, NULL, &r, false, NULL, NULL);
        else
            record_delete_like(d->base.env->store, &discord_session_form, &r);
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

    *st = *(struct stored_session *)thing;
    snprintf(st->name, sizeof st->name, "%u/%u", st->shard, st->shards);
    struct stored_session *was = map_put(&d->stored, str_of(st->name), st);
    if (was != NULL)
        stored_free(was);
    return true;
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
            &(struct dsocket_options){.clock = d->base.env->clock,
                                      .rand = d->base.env->rand,
                                      .wire = &wire,
                                      .handlers = &discord_socket_handlers,
                                      .ctx = s,
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
    log_info(&d->base.log, "starting: shards=%u", n);
}

/* ---- how many shards, and when each may start ---- */

static int64_t now_ms(const struct discord *d)
{
    return clock_now_ms(d->base.env->clock);
}

static bool read_info(struct discord *d, struct json info, unsigned *ret_shards)
{
    struct json limit = json_get(info, "session_start_limit");
    struct str url = json_str(info, "url");
    int64_t shards = json_i64(info, "shards", 0), reset = json_i64(limit, "reset_after", 0);
    int64_t concurrency = json_i64(limit, "max_concurrency", 1);

    if (shards < 1 || shards > MAX_SHARDS || !str_starts(url, STR("ws")))
        return false;
    if (concurrency < 1)
        concurrency = 1;
    if (concurrency > MAX_CONCURRENCY)
        concurrency = MAX_CONCURRENCY;
    d->remaining = json_i64(limit, "remaining", -1);
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

static void on_info(void *ctx, const struct sender_verdict *v)
{
    struct discord *d = ctx;
    unsigned shards;

    d->info_call = NULL;
    if (d->rest.token_refused) {
        d->base.problem = discord_rest_problem(d);
        return; /* retrying is useless until the operator changes the token */
    }
    if (v->end != SENDER_DONE || !read_info(d, v->answer, &shards)) {
        d->start_problem = "Discord's API cannot be reached or gave an unusable answer: check the "
                           "network and `api_base`; bellhop keeps trying";
        d->base.problem = d->start_problem;
        log_warn(&d->base.log, "gateway/bot: status=%d %s", v->status, v->why);
        timer_set(d->base.env->clock, &d->start_timer, RETRY_MS);
        return;
    }
    d->start_problem = NULL;
    if (d->n_shards == 0 || d->reshard)
        make_shards(d, shards);
    d->reshard = false;
    timer_set(d->base.env->clock, &d->start_timer, 0);
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

static void on_start_timer(struct timer *t)
{
    struct discord *d = container_of(t, struct discord, start_timer);

    if (d->n_shards == 0 || d->reshard)
        start_ask(d);
    else if (!any_queued(d))
        return;
    else if (d->info_ms == 0 || now_ms(d) - d->info_ms > INFO_MS)
        start_ask(d);
    else {
        /* Starts the queued shards whose slot is free; the timer fires when the next slot is. */
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
            timer_set(d->base.env->clock, &d->start_timer, next);
    }
}

void discord_shards_want_session(struct discord_shard *s)
{
    struct discord *d = s->d;

    s->queued = true;
    if (!timer_is_set(&d->start_timer))
        timer_set(d->base.env->clock, &d->start_timer, 0);
}

/* ---- life ---- */

static const char *problem_of(struct discord *d)
{
    if (discord_rest_problem(d) != NULL)
        return discord_rest_problem(d);
    for (unsigned i = 0; i < d->n_shards; i++)
        if (d->shards[i].failing_since_ms > 0)
            return "messages wait at Discord because they cannot be stored: a mailbox is full or "
                   "the disk takes no writes";
    return d->gateway_problem != NULL ? d->gateway_problem : d->start_problem;
}

static void on_tick(struct timer *t)
{
    struct discord *d = container_of(t, struct discord, tick);

    for (unsigned i = 0; i < d->n_shards; i++)
        discord_inbound_shard_tick(&d->shards[i]);
    shards_save(d);
    discord_cursors_save(d);
    d->base.problem = problem_of(d);
    timer_set(d->base.env->clock, &d->tick, TICK_MS);
}

static enum bh_err discord_open(struct platform *p, char *ret_why)
{
    struct discord *d = discord_of(p);

    d->cfg = container_of(p->settings, const struct discord_settings, base);
    d->descriptor = *p->ops->descriptor;
    d->descriptor.supports_context = d->cfg->context > 0;
    p->descriptor = &d->descriptor;
    if (!discord_intents(d->cfg, &d->intent_bits, ret_why))
        abort(); /* check() accepted the settings */
    d->cache = dcache_new(NULL);
    d->threads = work_pool_new(p->env->loop, 1);
    d->parser = json_parser_new();
    d->remaining = -1;
    timer_init(&d->tick, on_tick);
    timer_init(&d->start_timer, on_start_timer);
    discord_watched_init(d);
    discord_interactions_init(d);
    discord_rest_open(d);
    struct stored_session own = {.bot = (char *)p->bot};
    enum bh_err err =
        record_load_like(p->env->store, &discord_session_form, &own, 1, on_session, d, ret_why);
    if (err == BH_OK)
        err = discord_history_open(d, ret_why);
    return err == BH_OK ? discord_threads_open(d, ret_why) : err;
}

static void discord_start(struct platform *p)
{
    start_ask(discord_of(p));
    timer_set(p->env->clock, &discord_of(p)->tick, TICK_MS);
}

static void discord_close(struct platform *p)
{
    struct discord *d = discord_of(p);
    void *v;

    timer_stop(p->env->clock, &d->tick);
    shards_save(d);
    discord_cursors_save(d);
    timer_stop(p->env->clock, &d->start_timer);
    sender_cancel(&d->info_call);
    shards_free(d);
    for (size_t at = 0; map_next(&d->stored, &at, &v);)
        stored_free(v);
    map_done(&d->stored);
    free(d->gateway_url);
    free(d->last_start_ms);
    discord_history_close(d);
    discord_inbound_done(d);
    lru_done(&d->watched);
    discord_interactions_done(d);
    discord_commands_free(d);
    discord_threads_close(d);
    discord_rest_close(d);
    work_pool_free(d->threads);
    dcache_free(d->cache);
    discord_normalize_done(&d->norm);
    json_parser_free(d->parser);
}

/* @ref is the address of an attachment, on a host that needs no credential. */
static void discord_media_where(struct platform *p, struct media_ask ask, struct str ref)
{
    if (memchr(ref.p, '\0', ref.n) == NULL && event_media_is_safe(ref))
        host_media_at(p->host, ask, &(struct media_at){.url = ref, .foreign = true});
    else
        host_media_gone(p->host, ask, "Discord named an address that bellhop does not fetch");
}

static void discord_forget(struct platform *p, struct str person)
{
    if (discord_of(p)->recent != NULL)
        recent_forget(discord_of(p)->recent, person);
}

/* ---- status ---- */

static const char *discord_state(struct platform *p)
{
    const struct discord *d = discord_of(p);
    unsigned live = 0;

    for (unsigned i = 0; i < d->n_shards; i++) {
        if (dsocket_state(d->shards[i].socket) == DSOCKET_STOPPED)
            return "stopped";
        live += dsocket_state(d->shards[i].socket) == DSOCKET_LIVE;
    }
    if (d->rest.token_refused)
        return "stopped";
    return live == d->n_shards && live > 0 ? "live" : live > 0 ? "degraded" : "connecting";
}

static void discord_status(struct platform *p, struct jw *w)
{
    struct discord *d = discord_of(p);
    struct dcache_stats cache;

    p->problem = problem_of(d);
    dcache_stats(d->cache, &cache);
    jw_karr(w, "shards");
    for (unsigned i = 0; i < d->n_shards; i++) {
        const struct dsocket *socket = d->shards[i].socket;
        jw_obj(w);
        jw_ki64(w, "shard", (int64_t)i);
        jw_kstr(w, "state", str_of(dsocket_state_name(dsocket_state(socket))));
        if (dsocket_latency_ms(socket) >= 0)
            jw_ki64(w, "latencyMs", dsocket_latency_ms(socket));
        jw_end_obj(w);
    }
    jw_end_arr(w);
    jw_ki64(w, "guilds", (int64_t)cache.guilds);
    jw_ki64(w, "channels", (int64_t)cache.channels);
    jw_kbool(w, "interactions", d->sig != NULL);
    jw_ki64(w, "interactionsTaken", (int64_t)d->count.interactions);
    jw_ki64(w, "lost", (int64_t)d->count.lost);
    jw_ki64(w, "emptyMessages", (int64_t)d->count.empty);
    jw_ki64(w, "rateLimited", (int64_t)d->rest.limited);
    jw_ki64(w, "refusedInTenMinutes", discord_limits_refused_count(d->rest.limits, now_ms(d)));
    jw_ki64(w, "backfilling", d->backfills);
}

/* ---- check ---- */

/* An application has one of two flags for each privileged intent, by the number of its servers. */
static const struct {
    const char *name;
    int intent, flag;
} privileged[] = {
    {"Presence Intent", 8, 12},
    {"Server Members Intent", 1, 14},
    {"Message Content Intent", 15, 18},
};

/* View channels, send messages, also in threads, create threads, read the history, react, attach
 * files. */
#define INVITE_PERMISSIONS \
    (UINT64_C(1) << 10 | UINT64_C(1) << 11 | UINT64_C(1) << 38 | UINT64_C(1) << 35 | \
     UINT64_C(1) << 16 | UINT64_C(1) << 6 | UINT64_C(1) << 15)

static enum bh_err report_application(const struct discord_settings *cfg, struct json app,
                                      struct platform_report *ret, char *ret_why)
{
    uint64_t flags = (uint64_t)json_i64(app, "flags", 0), intents = 0;

    platform_tell(ret->bot, sizeof ret->bot, json_str(app, "id"));
    platform_tell(ret->name, sizeof ret->name, json_str(app, "name"));
    snprintf(ret->reach, sizeof ret->reach,
             "https://discord.com/oauth2/authorize?client_id=%.40s&scope=bot+applications.commands"
             "&permissions=%llu",
             ret->bot, (unsigned long long)INVITE_PERMISSIONS);
    if (snowflake(str_of(cfg->base.bot)) != 0 && strcmp(cfg->base.bot, ret->bot) != 0)
        platform_warn(ret, "`bot` is %.40s, and this token belongs to the application %.40s",
                      cfg->base.bot, ret->bot);
    if (!discord_intents(cfg, &intents, ret_why))
        return BH_REFUSED;
    for (size_t i = 0; i < ARRAY_LEN(privileged); i++)
        if ((intents >> privileged[i].intent & 1) != 0 && (flags >> privileged[i].flag & 3) == 0)
            return bh_err_why(BH_REFUSED, ret_why,
                              "the %s is off: switch it on at "
                              "https://discord.com/developers/applications/%.40s/bot, under "
                              "Privileged Gateway Intents, and save",
                              privileged[i].name, ret->bot);
    return BH_OK;
}

static enum bh_err discord_check(const struct platform_settings *settings,
                                 struct platform_report *ret, char *ret_why)
{
    const struct discord_settings *cfg =
        container_of(settings, const struct discord_settings, base);
    struct json_parser *parser = json_parser_new();
    BUF_SECRET auth = BUF_INIT;
    struct json app;
    int status;

    buf_printf(&auth, "Authorization: Bot %s", cfg->token);
    const char *const headers[] = {
        buf_z(&auth), "User-Agent: DiscordBot (https://bellhop.invalid, " BELLHOP_VERSION ")",
        NULL};
    enum bh_err err =
        platform_ask_api(&discord_ops, settings, STR("applications/@me"),
                         (struct http_fetch){.headers = headers}, parser, &status, &app, ret_why);
    if (err == BH_OK && status == 200)
        err = report_application(cfg, app, ret, ret_why);
    else if (err == BH_OK)
        err = bh_err_why(BH_REFUSED, ret_why,
                         "Discord refuses the token (%d): copy a new one from "
                         "https://discord.com/developers/applications, the application, Bot, Reset "
                         "Token",
                         status);
    json_parser_free(parser);
    return err;
}

static const struct descriptor descriptor = {
    .platform = "discord",
    .label = "Discord",
    .max_message_length = 2000,
    .supports_edit = true,
    .markdown_dialect = "discord",
    .len_unit = "chars",
    .ops = 1u << ACTION_SEND | 1u << ACTION_EDIT | 1u << ACTION_TYPING | 1u << ACTION_FOLLOW_UP |
           1u << ACTION_GET_CHAT_INFO | 1u << ACTION_SEND_MEDIA | 1u << ACTION_PROMPT |
           1u << ACTION_REACT | 1u << ACTION_THREAD_CREATE | 1u << ACTION_THREAD_RENAME,
};

static const struct record_form *const discord_records[] = {&discord_session_form,
                                                            &discord_cursor_form,
                                                            &discord_thread_form,
                                                            &discord_commands_form, NULL};

const struct platform_ops discord_ops = {
    .name = "discord",
    .config = &discord_config,
    .records = discord_records,
    .eraser = &discord_eraser,
    .descriptor = &descriptor,
    .size = sizeof(struct discord),
    .label = "Discord",
    .api_base = "https://discord.com/api/v10",
    .sender = &discord_sender,
    .prompt_over = discord_prompt_over,
    .open = discord_open,
    .start = discord_start,
    .close = discord_close,
    .check = discord_check,
    .steps = "Open https://discord.com/developers/applications and choose New Application.\n"
             "Bot: switch on Message Content Intent, and save.\n"
             "Bot: Reset Token, and copy the token.",
    .act = discord_act,
    .sees = discord_sees,
    .home = discord_home,
    .manages = discord_manages,
    .context = discord_context,
    .forget = discord_forget,
    .forget_chat = discord_forget_chat,
    .set_commands = discord_set_commands,
    .media_where = discord_media_where,
    .http = discord_interaction_http,
    .plausible = discord_interaction_plausible,
    .state = discord_state,
    .status = discord_status,
};
