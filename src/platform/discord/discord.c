/* discord.c - one Discord bot: its settings, open, close, status.  (discord.h; discord_priv.h is
 * the map of the other files.) */
#include "platform/discord/discord.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/config.h"
#include "base/jw.h"
#include "base/mem.h"
#include "net/work.h"
#include "platform/discord/discord_priv.h"
#include "platform/discord/interactions.h"
#include "platform/prompts.h"
#include "platform/recent.h"

#define API_BASE "https://discord.com/api/v10"
#define TICK_MS 2000

/* ---- settings ---- */

#define AT(member) offsetof(struct discord_settings, member)

static const struct config_key keys[] = {
    {"token", CFG_SECRET, CFG_RESTART, AT(token), .what = "The bot's token."},
    {"api_base", CFG_TEXT, CFG_RESTART, AT(api_base),
     .what = "Another API server than the platform's own."},
    {"gateway_url", CFG_TEXT, CFG_RESTART, AT(gateway_url),
     .what = "Another gateway than the one Discord names."},
    {"intents", CFG_TEXT, CFG_RESTART, AT(intents),
     .what = "Gateway intents: a number, or names with commas between them."},
    {"public_key", CFG_TEXT, CFG_RESTART, AT(public_key),
     .what = "The application's public key, for interactions."},
    {"interactions", CFG_CHOICE, CFG_RESTART, AT(interactions), NULL, "passthrough|inbound",
     .what = "`passthrough` or `inbound`."},
    {"context", CFG_NUMBER, CFG_RESTART, AT(context), "20", .max = EVENT_MAX_CONTEXT,
     .what = "How many of the messages before one in a shared channel are told with it."},
    {"auto_thread", CFG_BOOL, CFG_RESTART, AT(auto_thread), "false",
     .what = "Answers to messages of a channel open threads."},
    {"reactions", CFG_BOOL, CFG_RESTART, AT(reactions), "false",
     .what = "People's reactions to what the bot said reach the agent."},
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
    return s->reactions ? UINT64_C(1) << 10 | UINT64_C(1) << 13 : 0;
}

bool discord_intents(const struct discord_settings *s, uint64_t *ret_intents, char *ret_why)
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
        if (part.n > 0 && !add_intent(part, &intents)) {
            snprintf(ret_why, 256,
                     "`intents` has \"%.*s\", which is not an intent: use names such as guilds, "
                     "guild_messages, direct_messages, message_content, with commas between them",
                     (int)(part.n < 60 ? part.n : 60), part.p);
            return false;
        }
    }
    *ret_intents = intents | reaction_intents(s);
    return true;
}

static bool check(void *settings, char *ret_why)
{
    const struct discord_settings *s = settings;
    uint64_t unused;

    if (s->token == NULL) {
        snprintf(ret_why, 256, "a discord platform needs `bot` (the application id) and `token`");
        return false;
    }
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

static void log_prefix(const struct log *log, struct buf *out)
{
    const struct discord *d = container_of(log, struct discord, log);

    buf_printf(out, "platform=discord bot=%s ", d->base.bot);
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
    discord_shards_save(d);
    discord_cursors_save(d);
    d->base.problem = problem_of(d);
    timer_set(d->env->clock, &d->tick, TICK_MS);
}

static void discord_free(struct discord *d)
{
    discord_shards_done(d);
    discord_backfill_done(d);
    discord_inbound_done(d);
    discord_cursors_done(d);
    discord_watched_done(d);
    discord_interactions_done(d);
    discord_context_done(d);
    discord_auto_done(d);
    discord_commands_free(d);
    discord_names_done(d);
    prompts_close(d->prompts);
    discord_rest_close(d);
    work_pool_free(d->threads);
    dcache_free(d->cache);
    discord_normalize_done(&d->norm);
    json_parser_free(d->parser);
    free(d->api_base);
    free(d);
}

static enum bh_err discord_open(const struct platform_settings *settings, struct host *host,
                                struct platform **ret_p, char *ret_why)
{
    const struct discord_settings *cfg =
        container_of(settings, const struct discord_settings, base);
    struct discord *d = xcalloc(1, sizeof *d);

    d->base = (struct platform){.ops = &discord_ops, .host = host, .bot = settings->bot};
    d->descriptor = *discord_ops.descriptor;
    d->descriptor.supports_context = cfg->context > 0;
    d->base.descriptor = &d->descriptor;
    d->log.prefix = log_prefix;
    d->env = host_env(host);
    d->cfg = cfg;
    if (!discord_intents(cfg, &d->intent_bits, ret_why))
        abort(); /* check() accepted the settings */
    struct str base = str_of(cfg->api_base != NULL ? cfg->api_base : API_BASE);
    while (str_ends(base, STR("/")))
        base.n--;
    d->api_base = str_dup(base);
    d->cache = dcache_new(NULL);
    d->threads = work_pool_new(d->env->loop, 1);
    d->parser = json_parser_new();
    list_init(&d->watched_lru);
    list_init(&d->looking);
    d->recent = cfg->context > 0 ? recent_new(d->env->clock, cfg->context) : NULL;
    discord_auto_init(d);
    discord_backfill_init(d);
    timer_init(&d->tick, on_tick);
    discord_interactions_init(d);
    enum bh_err err = discord_shards_load(d, ret_why);
    if (err == BH_OK)
        err = discord_cursors_load(d, ret_why);
    if (err == BH_OK)
        err = discord_names_load(d, ret_why);
    if (err == BH_OK)
        err = prompts_open(&d->base, discord_prompt_over, &d->prompts, ret_why);
    if (err == BH_OK)
        err = discord_rest_open(d, ret_why);
    if (err != BH_OK) {
        discord_free(d);
        return err;
    }
    discord_shards_init(d);
    timer_set(d->env->clock, &d->tick, TICK_MS);
    *ret_p = &d->base;
    return BH_OK;
}

static void discord_close(struct platform *p)
{
    struct discord *d = discord_of(p);

    timer_stop(d->env->clock, &d->tick);
    discord_shards_save(d);
    discord_cursors_save(d);
    discord_free(d);
}

struct dcache *discord_cache(struct platform *p)
{
    return discord_of(p)->cache;
}

/* @ref is the address of an attachment, on a host that needs no credential. */
static void discord_media_where(struct platform *p, struct media_ask ask, struct str ref)
{
    char *url = str_dup(ref);

    if (memchr(ref.p, '\0', ref.n) == NULL && event_media_is_safe(ref))
        host_media_at(p->host, ask, &(struct media_at){.url = url, .foreign = true});
    else
        host_media_gone(p->host, ask, "Discord named an address that bellhop does not fetch");
    free(url);
}

static void discord_forget(struct platform *p, struct str person)
{
    if (discord_of(p)->recent != NULL)
        recent_forget(discord_of(p)->recent, person);
}

/* ---- status ---- */

static const char *state_of(const struct discord *d)
{
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

static void write_shards(const struct discord *d, struct jw *w)
{
    jw_key(w, "shards");
    jw_arr(w);
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
}

static void discord_status(struct platform *p, struct jw *w)
{
    struct discord *d = discord_of(p);
    struct dcache_stats cache;
    struct sender_stats sent;

    p->problem = problem_of(d);
    dcache_stats(d->cache, &cache);
    sender_stats(d->sender, &sent);
    jw_kstr(w, "state", str_of(state_of(d)));
    write_shards(d, w);
    jw_ki64(w, "guilds", (int64_t)cache.guilds);
    jw_ki64(w, "channels", (int64_t)cache.channels);
    jw_ki64(w, "events", (int64_t)d->count.events);
    jw_ki64(w, "ignored", (int64_t)d->count.ignored);
    jw_kbool(w, "interactions", d->sig != NULL);
    jw_ki64(w, "interactionsTaken", (int64_t)d->count.interactions);
    jw_ki64(w, "interactionsRefused", (int64_t)d->count.forged);
    jw_ki64(w, "lost", (int64_t)d->count.lost);
    jw_ki64(w, "emptyMessages", (int64_t)d->count.empty);
    jw_ki64(w, "requests", (int64_t)sent.requests);
    jw_ki64(w, "requestsWaiting", (int64_t)sent.waiting);
    jw_ki64(w, "rateLimited", (int64_t)d->rest.limited);
    jw_ki64(w, "refusedInTenMinutes", discord_rest_refused(d));
    jw_ki64(w, "backfilling", d->backfills);
    jw_ki64(w, "cutOffAtStart", (int64_t)sent.cut_off);
    jw_ki64(w, "openQuestions", (int64_t)prompts_count(d->prompts));
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
    .descriptor = &descriptor,
    .open = discord_open,
    .act = discord_act,
    .sees = discord_sees,
    .home = discord_home,
    .manages = discord_manages,
    .context = discord_context,
    .forget = discord_forget,
    .set_commands = discord_set_commands,
    .media_where = discord_media_where,
    .http = discord_interaction_http,
    .plausible = discord_interaction_plausible,
    .status = discord_status,
    .close = discord_close,
};
