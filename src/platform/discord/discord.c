/* discord.c - opening, closing and looking at one Discord bot.  (discord.h; discord_priv.h has the
 * parts.) */
#include "platform/discord/discord.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "net/work.h"
#include "platform/discord/discord_priv.h"
#include "platform/prompts.h"
#include "platform/recent.h"

#define API_BASE "https://discord.com/api/v10"
#define TICK_MS 2000

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
        discord_events_shard_tick(&d->shards[i]);
    discord_bookmarks_save(d);
    d->base.problem = problem_of(d);
    timer_set(d->env->clock, &d->tick, TICK_MS);
}

static char *trimmed_base(const char *api_base)
{
    struct str s = str_of(api_base != NULL ? api_base : API_BASE);

    while (s.n > 0 && s.p[s.n - 1] == '/')
        s.n--;
    return str_dup(s);
}

static void discord_free(struct discord *d)
{
    discord_start_done(d);
    discord_backfill_done(d);
    discord_hold_done(d);
    discord_bookmarks_done(d);
    discord_sight_done(d);
    discord_webhook_done(d);
    discord_answers_done(d);
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
        abort(); /* the configuration was checked */
    d->api_base = trimmed_base(cfg->api_base);
    d->cache = dcache_new(NULL);
    d->threads = work_pool_new(d->env->loop, 1);
    d->parser = json_parser_new();
    list_init(&d->sights_lru);
    list_init(&d->asked);
    list_init(&d->looking);
    d->recent = cfg->context > 0 ? recent_new(d->env->clock, cfg->context) : NULL;
    discord_auto_init(d);
    awaits_init(&d->awaits, &d->base);
    discord_backfill_init(d);
    timer_init(&d->tick, on_tick);
    snprintf(ret_why, 256, "the store cannot be read");
    enum bh_err err = discord_bookmarks_load(d);
    discord_webhook_init(d);
    if (err == BH_OK)
        err = discord_names_load(d);
    if (err == BH_OK)
        err = prompts_open(&d->base, discord_prompt_over, &d->prompts, ret_why);
    if (err == BH_OK)
        err = discord_rest_open(d, ret_why);
    if (err != BH_OK) {
        discord_free(d);
        return err;
    }
    discord_start_init(d);
    timer_set(d->env->clock, &d->tick, TICK_MS);
    *ret_p = &d->base;
    return BH_OK;
}

static void discord_close(struct platform *p)
{
    struct discord *d = discord_of(p);

    timer_stop(d->env->clock, &d->tick);
    discord_bookmarks_save(d);
    discord_free(d);
}

struct dcache *discord_cache(struct platform *p)
{
    return discord_of(p)->cache;
}

/* Attachments lie on a host of their own, which asks for no credential: @ref is the address. */
static void discord_media_where(struct platform *p, struct media_ask ask, struct str ref)
{
    char *url = str_dup(ref);

    if (memchr(ref.p, '\0', ref.n) == NULL && event_media_is_safe(ref))
        host_media_at(p->host, ask, &(struct media_at){.url = url, .foreign = true});
    else
        host_media_gone(p->host, ask, "Discord named an address that cannot be fetched");
    free(url);
}

static void discord_forget(struct platform *p, struct str person)
{
    if (discord_of(p)->recent != NULL)
        recent_forget(discord_of(p)->recent, person);
}

/* ---- looking ---- */

static const char *state_of(const struct discord *d)
{
    unsigned live = 0;

    for (unsigned i = 0; i < d->n_shards; i++) {
        if (dgateway_state(d->shards[i].gateway) == DGATEWAY_STOPPED)
            return "stopped";
        live += dgateway_state(d->shards[i].gateway) == DGATEWAY_LIVE;
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
        const struct dgateway *g = d->shards[i].gateway;
        jw_obj(w);
        jw_ki64(w, "shard", (int64_t)i);
        jw_kstr(w, "state", str_of(dgateway_state_name(dgateway_state(g))));
        if (dgateway_latency_ms(g) >= 0)
            jw_ki64(w, "latencyMs", dgateway_latency_ms(g));
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

const struct platform_ops discord_ops = {
    .name = "discord",
    .config = &discord_config,
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
    .http = discord_webhook_http,
    .plausible = discord_webhook_plausible,
    .status = discord_status,
    .close = discord_close,
};
