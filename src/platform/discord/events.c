/* events.c - design.  (discord_priv.h has the parts.)
 *
 * A gateway event is confirmed - may be left out of a later resume - when it and everything
 * before it is safe: handed to the relay and accepted, or none of its business.  struct
 * discord_pending is one such event; a shard keeps them in order and confirms from the front.
 * An event the relay could not take stays unconfirmed, and after a pause Discord is asked to
 * send everything from there on again; what had been accepted behind it comes twice and is
 * dropped by its message id. */
#include <stdlib.h>
#include "base/mem.h"
#include "platform/discord/discord_priv.h"

enum { FIRST_REPLAY_MS = 2000, MAX_REPLAY_MS = 60000, GIVE_UP_MS = 600000, WELL_MS = 10000 };

/* ---- the ledger ---- */

static void confirm_front(struct discord_shard *s)
{
    while (!list_is_empty(&s->pendings)) {
        struct discord_pending *p = list_first(&s->pendings, struct discord_pending, link);

        if (!p->done)
            return;
        list_remove(&p->link);
        if (p->message_id != 0)
            discord_bookmark_note(s->d, p->guild_id, p->channel_id, p->message_id);
        dgateway_confirm(s->gateway, p->seq);
        free(p);
    }
}

static struct discord_pending *pending_new(struct discord_shard *s, uint64_t seq)
{
    struct discord_pending *p = xcalloc(1, sizeof *p);

    p->d = s->d;
    p->shard = s;
    p->seq = seq;
    list_init(&p->link);
    list_append(&s->pendings, &p->link);
    return p;
}

void discord_pending_done(struct discord_pending *p)
{
    p->done = true;
    confirm_front(p->shard);
}

/* An event that is nobody's business: safe as soon as those before it are. */
static void note_safe(struct discord_shard *s, uint64_t seq)
{
    struct discord_pending *last = list_entry(s->pendings.prev, struct discord_pending, link);

    if (list_is_empty(&s->pendings))
        dgateway_confirm(s->gateway, seq);
    else if (last->done && last->message_id == 0)
        last->seq = seq;
    else
        pending_new(s, seq)->done = true;
}

/* The events behind the confirmed number come again, or never: forget what is under way. */
static void reset_ledger(struct discord_shard *s)
{
    discord_hold_forget_shard(s->d, s);
    list_each (&s->pendings, it, nxt) {
        struct discord_pending *p = list_entry(it, struct discord_pending, link);
        if (p->taken)
            host_accept_cancel(s->d->base.host, p->accept);
        list_remove(&p->link);
        free(p);
    }
}

static void on_replay(struct timer *t)
{
    struct discord_shard *s = container_of(t, struct discord_shard, replay);

    s->n_failed_channels = 0;
    reset_ledger(s);
    dgateway_replay(s->gateway, 0);
}

/* During the pause the later messages of such a channel are not even tried: they come again, behind
 * the one that failed. */
static bool channel_waits(const struct discord_shard *s, uint64_t channel_id)
{
    if (s->n_failed_channels == ARRAY_LEN(s->failed_channels))
        return true; /* too many to tell apart */
    for (size_t i = 0; i < s->n_failed_channels; i++)
        if (s->failed_channels[i] == channel_id)
            return true;
    return false;
}

static void ask_again(struct discord_shard *s)
{
    struct discord *d = s->d;

    if (timer_is_set(&s->replay))
        return;
    s->replay_ms = s->replay_ms == 0 ? FIRST_REPLAY_MS : s->replay_ms * 2;
    if (s->replay_ms > MAX_REPLAY_MS)
        s->replay_ms = MAX_REPLAY_MS;
    log_warn(&d->log, "an event could not be stored: asking Discord again in %lld ms",
             (long long)s->replay_ms);
    timer_set(d->env->clock, &s->replay, s->replay_ms);
}

void discord_pending_failed(struct discord_pending *p)
{
    struct discord_shard *s = p->shard;
    int64_t now_ms = clock_now_ms(p->d->env->clock);

    s->failed_ms = now_ms;
    if (s->failing_since_ms == 0)
        s->failing_since_ms = now_ms;
    if (now_ms - s->failing_since_ms < GIVE_UP_MS) {
        if (!channel_waits(s, p->channel_id))
            s->failed_channels[s->n_failed_channels++] = p->channel_id;
        ask_again(s);
        return;
    }
    log_error(&p->d->log, "a message of channel %llu is given up: it cannot be stored",
              (unsigned long long)p->channel_id);
    p->d->count.lost++;
    discord_pending_done(p);
}

/* No failure since the last pause ended: all is well again. */
void discord_events_shard_tick(struct discord_shard *s)
{
    if (s->failing_since_ms == 0 || timer_is_set(&s->replay) ||
        clock_now_ms(s->d->env->clock) - s->failed_ms < s->replay_ms + WELL_MS)
        return;
    s->failing_since_ms = s->replay_ms = 0;
}

static void on_accepted(void *ctx, enum bh_err err)
{
    struct discord_pending *p = ctx;

    p->taken = false;
    if (err == BH_BUSY || err == BH_UNAVAILABLE || err == BH_UNKNOWN)
        discord_pending_failed(p);
    else
        discord_pending_done(p);
}

void discord_events_shard_init(struct discord_shard *s)
{
    list_init(&s->pendings);
    timer_init(&s->replay, on_replay);
}

void discord_events_shard_done(struct discord_shard *s)
{
    timer_stop(s->d->env->clock, &s->replay);
    reset_ledger(s);
}

/* ---- messages ---- */

static enum discord_verdict normalize_message(struct discord *d, struct json message,
                                              struct str guild_id, bool lenient)
{
    struct discord_normalize_in in = {.message = message,
                                      .guild_id = guild_id,
                                      .cache = d->cache,
                                      .bot = str_of(d->base.bot),
                                      .bot_user = str_of(d->bot_user),
                                      .in_parent = d->cfg->auto_thread,
                                      .lenient = lenient};
    enum discord_verdict v = discord_normalize(&in, &d->norm);

    if (v == DISCORD_IGNORED) {
        d->count.ignored++;
        d->count.empty += strcmp(d->norm.why, "empty") == 0;
    } else if (v == DISCORD_MALFORMED) {
        d->count.malformed++;
        log_warn(&d->log, "a message without the fields of one");
    }
    return v;
}

/* Hand d->norm over. */
static struct accept_id accept_event(struct discord *d, accepted_cb *done, void *ctx)
{
    struct event *ev = &d->norm.ev;

    d->count.events++;
    discord_context_add(d);
    discord_auto_note(d, ev);
    struct accept_id id = host_accept(d->base.host, &d->base, ev, done, ctx);
    discord_context_note(d, &d->norm);
    return id;
}

void discord_pending_accept(struct discord_pending *p)
{
    p->taken = true;
    p->accept = accept_event(p->d, on_accepted, p);
}

enum discord_verdict discord_pending_try(struct discord_pending *p, struct json message,
                                         bool lenient)
{
    enum discord_verdict v = normalize_message(p->d, message, STR_NULL, lenient);

    if (v == DISCORD_EVENT)
        discord_pending_accept(p);
    return v;
}

enum discord_verdict discord_events_try(struct discord *d, struct json message, struct str guild_id,
                                        struct discord_taker *taker)
{
    enum discord_verdict v = normalize_message(d, message, guild_id, true);

    if (v == DISCORD_EVENT)
        taker->accept = accept_event(d, taker->done, taker->ctx);
    return v;
}

/* The author changed a message; what Discord adds to one by itself (previews) has no text. */
static void on_edited(struct discord *d, struct json message)
{
    struct discord_normalize_in in = {.message = message,
                                      .cache = d->cache,
                                      .bot = str_of(d->base.bot),
                                      .bot_user = str_of(d->bot_user),
                                      .in_parent = d->cfg->auto_thread,
                                      .lenient = true};

    if (json_get(message, "content").doc != NULL &&
        discord_normalize(&in, &d->norm) == DISCORD_EVENT)
        discord_context_edited(d);
}

static void on_deleted(struct discord *d, struct json where, struct str message_id)
{
    discord_context_deleted(d, json_snowflake(where, "guild_id"),
                            json_snowflake(where, "channel_id"), message_id);
}

static void on_message(struct discord *d, struct json message, struct discord_pending *p)
{
    enum discord_verdict v = normalize_message(d, message, STR_NULL, false);
    const struct discord_normalize_out *n = &d->norm;

    if (v == DISCORD_MALFORMED) {
        discord_pending_done(p);
        return;
    }
    p->message_id = n->message_id;
    p->channel_id = n->channel_id;
    p->guild_id = n->guild_id;
    dcache_note_member(d->cache, n->guild_id, n->user_id, n->nick, n->roles);
    if (p->shard->n_failed_channels > 0 && channel_waits(p->shard, p->channel_id))
        return;
    struct discord_bookmark *seen = map_get(&d->seen, id_key(&p->channel_id));
    if (seen != NULL && seen->gap != 0 && !seen->filling)
        discord_backfill_channel(d, seen); /* what was missed comes first */
    bool needs = v == DISCORD_NEED_GUILD || v == DISCORD_NEED_CHANNEL;
    if (needs && !discord_hold_has(d, p->channel_id))
        discord_hold_need(d, p->channel_id, p->guild_id, v);
    if (discord_hold_has(d, p->channel_id)) {
        discord_hold_push(d, message, p);
    } else if (v == DISCORD_EVENT) {
        discord_pending_accept(p);
    } else {
        discord_pending_done(p);
    }
}

/* ---- what the gateway tells ---- */

static void on_dispatch(void *ctx, struct dgateway *g, struct str type, struct json d, uint64_t seq)
{
    struct discord *dc = ctx;
    struct discord_shard *s = &dc->shards[dgateway_shard(g)];

    if (str_eq(type, STR("MESSAGE_CREATE"))) {
        on_message(dc, d, pending_new(s, seq));
        return;
    }
    bool added = str_eq(type, STR("MESSAGE_REACTION_ADD"));
    if (dc->cfg->reactions && (added || str_eq(type, STR("MESSAGE_REACTION_REMOVE")))) {
        discord_reaction(dc, d, added, pending_new(s, seq));
        return;
    }
    if (str_eq(type, STR("MESSAGE_UPDATE")))
        on_edited(dc, d);
    if (str_eq(type, STR("MESSAGE_DELETE")))
        on_deleted(dc, d, json_str(d, "id"));
    if (str_eq(type, STR("MESSAGE_DELETE_BULK")))
        for (struct json_iter it = {0}; json_next(json_get(d, "ids"), &it);)
            on_deleted(dc, d, json_as_str(it.value));
    if (str_eq(type, STR("INTERACTION_CREATE")))
        discord_webhook_dispatch(dc, d);
    if (dcache_dispatch(dc->cache, type, d) && str_eq(type, STR("GUILD_CREATE"))) {
        discord_hold_guild_known(dc, json_snowflake(d, "id"));
        discord_backfill_guild_known(dc, json_snowflake(d, "id"));
    }
    note_safe(s, seq);
}

static void on_live(void *ctx, struct dgateway *g, struct json ready)
{
    struct discord *d = ctx;
    struct str id = json_str(json_get(ready, "user"), "id");

    if (id.n > 0 && id.n < sizeof d->bot_user && snowflake(id) != 0) {
        memcpy(d->bot_user, id.p, id.n);
        d->bot_user[id.n] = '\0';
        dcache_set_bot(d->cache, snowflake(id));
    }
    d->gateway_problem = NULL;
    /* Soon, not with the next tick: a crash now must find the session, or its events are gone. */
    timer_set(d->env->clock, &d->tick, 0);
    /* After READY the guilds follow, and say in which channels nothing happened. */
    discord_backfill_soon(d, ready.doc != NULL ? 5000 : 0);
}

static void on_session_lost(void *ctx, struct dgateway *g)
{
    struct discord *d = ctx;
    struct discord_shard *s = &d->shards[dgateway_shard(g)];

    timer_stop(d->env->clock, &s->replay);
    s->n_failed_channels = 0;
    timer_stop(d->env->clock, &d->backfill_timer);
    reset_ledger(s);
    discord_backfill_mark(d, s);
    discord_context_gap(d, s);
}

static void on_stopped(void *ctx, struct dgateway *g, int code, const char *problem)
{
    struct discord *d = ctx;

    d->gateway_problem = d->base.problem = problem;
}

static void on_wants_identify(void *ctx, struct dgateway *g)
{
    struct discord *d = ctx;

    discord_start_wants(d, &d->shards[dgateway_shard(g)]);
}

static void on_wants_shards(void *ctx, struct dgateway *g)
{
    struct discord *d = ctx;

    log_warn(&d->log, "Discord wants more shards than %u", d->n_shards);
    discord_start_reshard(d);
}

const struct dgateway_handlers discord_gateway_handlers = {
    .wants_identify = on_wants_identify,
    .live = on_live,
    .dispatch = on_dispatch,
    .session_lost = on_session_lost,
    .stopped = on_stopped,
    .wants_shards = on_wants_shards,
};
