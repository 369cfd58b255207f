/* inbound.c - hands Discord's events to the host and confirms them.  (discord_priv.h has the
 * calls.)
 *
 *      socket --dispatch--> cache, interactions        updated at once
 *                 '-------> message, reaction --> normalize --> host_accept() --> confirm
 *                                   '--a fact is missing, or a backfill runs--> deferred
 *
 * A shard keeps a struct discord_pending for each event, in order, and confirms from the front: an
 * event is confirmed once it and all before it are stored or need no storing.  Discord does not
 * resend confirmed events.  An event that the host could not store stays unconfirmed; after a pause
 * the shard reconnects and Discord sends everything from that event on again.  The host drops the
 * repeated ones by their message id.
 *
 * After a resume Discord does not list the channels again, so a message may come from a channel
 * that is not in the cache and could be a thread.  The messages of that channel are deferred, in
 * order, while the guild or the channel is read over REST; other channels go on.  A channel whose
 * missed messages are being fetched (history.c) defers its new messages the same way.  If Discord
 * does not answer, the message is delivered with the channel's id alone. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "platform/discord/discord_priv.h"

enum {
    FIRST_REPLAY_MS = 2000,
    MAX_REPLAY_MS = 60000,
    GIVE_UP_MS = 600000,
    WELL_MS = 10000,
    MAX_DEFERRED_BYTES = 32 << 20,
    LOAD_PATIENCE_MS = 60000,
};

/* ---- pending events ---- */

static struct discord_pending *pending_new(struct discord_shard *s, uint64_t seq)
{
    struct discord_pending *p = xcalloc(1, sizeof *p);

    p->d = s->d;
    p->shard = s;
    p->seq = seq;
    list_append(&s->pendings, &p->link);
    return p;
}

/* Confirms the events at the front that are done. */
static void pending_done(struct discord_pending *p)
{
    struct discord_shard *s = p->shard;

    p->done = true;
    while (!list_is_empty(&s->pendings)) {
        struct discord_pending *front = list_first(&s->pendings, struct discord_pending, link);

        if (!front->done)
            return;
        list_remove(&front->link);
        if (front->message_id != 0)
            discord_cursor_advance(s->d, front->guild_id, front->channel_id, front->message_id);
        dsocket_confirm(s->socket, front->seq);
        free(front);
    }
}

/* An event that needs no storing is confirmed once those before it are. */
static void skip_event(struct discord_shard *s, uint64_t seq)
{
    struct discord_pending *last = list_entry(s->pendings.prev, struct discord_pending, link);

    if (list_is_empty(&s->pendings))
        dsocket_confirm(s->socket, seq);
    else if (last->done && last->message_id == 0)
        last->seq = seq;
    else
        pending_new(s, seq)->done = true;
}

/* During the pause before a replay, later messages of a channel that failed are not tried: Discord
 * sends them again, behind the one that failed. */
static bool channel_waits(const struct discord_shard *s, uint64_t channel_id)
{
    if (s->n_failed_channels == ARRAY_LEN(s->failed_channels))
        return true; /* the table is full: all channels wait */
    for (size_t i = 0; i < s->n_failed_channels; i++)
        if (s->failed_channels[i] == channel_id)
            return true;
    return false;
}

/* Asks Discord for the event again after a pause; gives it up when that has failed for too long. */
static void pending_failed(struct discord_pending *p)
{
    struct discord *d = p->d;
    struct discord_shard *s = p->shard;
    int64_t now_ms = clock_now_ms(d->base.env->clock);

    s->failed_ms = now_ms;
    if (s->failing_since_ms == 0)
        s->failing_since_ms = now_ms;
    if (now_ms - s->failing_since_ms >= GIVE_UP_MS) {
        log_error(&d->base.log,
                  "a message of channel %" PRIu64 " is lost: it could not be stored for %d minutes",
                  p->channel_id, GIVE_UP_MS / 60000);
        d->count.lost++;
        pending_done(p);
        return;
    }
    if (!channel_waits(s, p->channel_id))
        s->failed_channels[s->n_failed_channels++] = p->channel_id;
    if (timer_is_set(&s->replay))
        return;
    s->replay_ms = s->replay_ms == 0 ? FIRST_REPLAY_MS : s->replay_ms * 2;
    if (s->replay_ms > MAX_REPLAY_MS)
        s->replay_ms = MAX_REPLAY_MS;
    log_warn(&d->base.log,
             "an event could not be stored: asking Discord for it again in %" PRId64 " ms",
             s->replay_ms);
    timer_set(d->base.env->clock, &s->replay, s->replay_ms);
}

static void on_accepted(void *ctx, enum bh_err err)
{
    struct discord_pending *p = ctx;

    p->taken = false;
    if (err == BH_BUSY || err == BH_UNAVAILABLE || err == BH_UNKNOWN)
        pending_failed(p);
    else
        pending_done(p);
}

/* ---- normalize and accept ---- */

enum discord_verdict discord_normalize_for(struct discord *d, struct json message,
                                           struct str guild_id, bool lenient)
{
    struct discord_normalize_in in = {.message = message,
                                      .guild_id = guild_id,
                                      .cache = d->cache,
                                      .bot = str_of(d->base.bot),
                                      .bot_user = str_of(d->bot_user),
                                      .in_parent = d->cfg->auto_thread,
                                      .lenient = lenient};

    return discord_normalize(&in, &d->norm);
}

static enum discord_verdict normalize_message(struct discord *d, struct json message,
                                              struct str guild_id, bool lenient)
{
    enum discord_verdict v = discord_normalize_for(d, message, guild_id, lenient);

    if (v == DISCORD_IGNORED) {
        d->base.n.ignored++;
        d->count.empty += strcmp(d->norm.why, "empty") == 0;
    } else if (v == DISCORD_MALFORMED) {
        d->base.n.malformed++;
        log_warn(&d->base.log, "Discord sent a message without an id, a channel or an author");
    }
    return v;
}

/* Hands d->norm to the host. */
static struct accept_id accept_event(struct discord *d, accepted_cb *done, void *ctx)
{
    struct event *ev = &d->norm.ev;

    if (d->norm.in_private)
        dcache_join_thread(d->cache, d->norm.channel_id, d->norm.user_id);
    discord_context_add(d);
    if (d->cfg->auto_thread)
        discord_auto_note(d, ev);
    struct accept_id id = host_accept(d->base.host, &d->base, ev, done, ctx);
    discord_context_note(d, &d->norm);
    return id;
}

static void pending_accept(struct discord_pending *p)
{
    p->taken = true;
    p->accept = accept_event(p->d, on_accepted, p);
}

enum discord_verdict discord_accept_message(struct discord *d, struct json message,
                                            struct str guild_id, struct discord_taker *taker)
{
    enum discord_verdict v = normalize_message(d, message, guild_id, true);

    if (v == DISCORD_EVENT && d->norm.guild_id == 0)
        discord_cursor_person(d, d->norm.channel_id, d->norm.user_id);
    if (v == DISCORD_EVENT)
        taker->accept = accept_event(d, taker->done, taker->ctx);
    return v;
}

/* ---- channels whose messages are deferred ---- */

enum deferred_until { UNTIL_NOTHING, UNTIL_GUILD, UNTIL_CHANNEL, UNTIL_BACKFILL };

struct deferred_message {
    struct list link;
    struct discord_pending *p; /* borrowed from its shard */
    struct buf text;           /* owned; the message */
};

struct deferred_channel {
    uint64_t channel_id, guild_id;
    struct discord *d; /* borrowed */
    struct list messages;
    enum deferred_until until;
    bool lenient;          /* Discord did not answer: deliver without the missing facts */
    bool running;          /* deferred_run() is on the stack */
    struct outgoing *call; /* reads the channel; NULL: none */
};

struct guild_load { /* a guild that is being read over REST */
    uint64_t guild_id;
    struct discord *d; /* borrowed */
    struct outgoing *call;
    size_t step; /* index of load_steps */
};

static void deferred_run(struct deferred_channel *c);

static void message_free(struct discord *d, struct deferred_message *m)
{
    list_remove(&m->link);
    d->deferred_bytes -= m->text.n;
    buf_done(&m->text);
    free(m);
}

static struct deferred_channel *deferred_get(struct discord *d, uint64_t channel_id)
{
    struct deferred_channel *c = map_get(&d->deferred, id_key(&channel_id));

    if (c != NULL)
        return c;
    c = xcalloc(1, sizeof *c);
    c->channel_id = channel_id;
    c->d = d;
    list_init(&c->messages);
    map_put(&d->deferred, id_key(&c->channel_id), c);
    return c;
}

static void deferred_free(struct deferred_channel *c)
{
    list_each (&c->messages, it, nxt)
        message_free(c->d, list_entry(it, struct deferred_message, link));
    sender_cancel(&c->call);
    map_del(&c->d->deferred, id_key(&c->channel_id));
    free(c);
}

static bool is_deferred(const struct discord *d, uint64_t channel_id)
{
    return map_count(&d->deferred) > 0 && map_get(&d->deferred, id_key(&channel_id)) != NULL;
}

static uint64_t first_seq(const struct deferred_channel *c)
{
    return list_is_empty(&c->messages)
               ? 0
               : list_first(&c->messages, struct deferred_message, link)->p->seq;
}

/* Delivers the messages that wait for this guild; the channel that has waited longest is first. */
static void run_deferred_of(struct discord *d, uint64_t guild_id, bool lenient)
{
    for (;;) {
        struct deferred_channel *oldest = NULL;
        void *v;

        for (size_t at = 0; map_next(&d->deferred, &at, &v);) {
            struct deferred_channel *c = v;
            if (c->until == UNTIL_GUILD && c->guild_id == guild_id && !c->running &&
                (oldest == NULL || first_seq(c) < first_seq(oldest)))
                oldest = c;
        }
        if (oldest == NULL)
            return;
        oldest->until = UNTIL_NOTHING;
        oldest->lenient = lenient;
        deferred_run(oldest);
    }
}

static void guild_load_free(struct guild_load *l)
{
    sender_cancel(&l->call);
    map_del(&l->d->guild_loads, id_key(&l->guild_id));
    free(l);
}

static void guild_load_end(struct guild_load *l, bool known)
{
    struct discord *d = l->d;
    uint64_t guild_id = l->guild_id;

    guild_load_free(l);
    if (known)
        dcache_guild_loaded(d->cache, guild_id);
    const struct dcache_guild *g = dcache_guild(d->cache, guild_id); /* NULL: the cache is full */
    run_deferred_of(d, guild_id, g == NULL || !g->loaded);
    char guild[24];
    snprintf(guild, sizeof guild, "%" PRIu64, guild_id);
    host_sight(d->base.host, &d->base, str_of(guild));
}

static const struct {
    const char *path, *route;
} load_steps[] = {
    {"", "guild"},
    {"/channels", "guild channels"},
    {"/threads/active", "guild threads"},
};

static void guild_load_next(struct guild_load *l);

static void on_loaded(void *ctx, const struct sender_verdict *v)
{
    struct guild_load *l = ctx;
    struct json list = v->answer;

    l->call = NULL;
    if (v->end != SENDER_DONE) {
        log_warn(&l->d->base.log,
                 "guild %" PRIu64
                 " could not be read, its messages go on without channel names: %s",
                 l->guild_id, v->why);
        guild_load_end(l, false);
        return;
    }
    if (l->step == 0)
        dcache_put_guild(l->d->cache, v->answer);
    if (l->step == 2)
        list = json_get(v->answer, "threads");
    if (l->step > 0)
        for (struct json_iter it = {0}; json_next(list, &it);)
            dcache_put_channel(l->d->cache, it.value, l->guild_id);
    if (++l->step == ARRAY_LEN(load_steps))
        guild_load_end(l, true);
    else
        guild_load_next(l);
}

static void guild_load_next(struct guild_load *l)
{
    char path[64], lane[32];

    snprintf(path, sizeof path, "/guilds/%" PRIu64 "%s", l->guild_id, load_steps[l->step].path);
    snprintf(lane, sizeof lane, "guild %" PRIu64, l->guild_id);
    l->call = discord_ask(l->d,
                          &(struct discord_question){.route = load_steps[l->step].route,
                                                     .major = l->guild_id,
                                                     .path = str_of(path),
                                                     .lane = str_of(lane),
                                                     .patience_ms = LOAD_PATIENCE_MS},
                          on_loaded, l);
}

static void on_channel(void *ctx, const struct sender_verdict *v)
{
    struct deferred_channel *c = ctx;

    c->call = NULL;
    if (v->end == SENDER_DONE)
        dcache_put_channel(c->d->cache, v->answer, 0);
    c->lenient = v->end != SENDER_DONE || dcache_channel(c->d->cache, c->channel_id) == NULL;
    if (c->until != UNTIL_CHANNEL)
        return; /* a backfill began meanwhile */
    c->until = UNTIL_NOTHING;
    deferred_run(c);
}

void discord_load_guild(struct discord *d, uint64_t guild_id)
{
    if (map_get(&d->guild_loads, id_key(&guild_id)) != NULL)
        return;
    struct guild_load *l = xcalloc(1, sizeof *l);
    l->d = d;
    l->guild_id = guild_id;
    map_put(&d->guild_loads, id_key(&l->guild_id), l);
    guild_load_next(l);
}

/* Reads the guild or the channel that the normalizer needs (@what), and defers the channel's
 * messages meanwhile. */
static void defer_until_known(struct discord *d, uint64_t channel_id, uint64_t guild_id,
                              enum discord_verdict what)
{
    struct deferred_channel *c = deferred_get(d, channel_id);
    char path[64];

    c->guild_id = guild_id;
    c->until = what == DISCORD_NEED_GUILD ? UNTIL_GUILD : UNTIL_CHANNEL;
    if (c->until == UNTIL_GUILD) {
        discord_load_guild(d, guild_id);
    } else if (c->until == UNTIL_CHANNEL && c->call == NULL) {
        snprintf(path, sizeof path, "/channels/%" PRIu64, channel_id);
        c->call = discord_ask(d,
                              &(struct discord_question){.route = "channel",
                                                         .major = channel_id,
                                                         .path = str_of(path),
                                                         .lane = STR("channels"),
                                                         .patience_ms = LOAD_PATIENCE_MS},
                              on_channel, c);
    }
}

/* Delivers the deferred messages in order, until a fact is missing again or none is left. */
static void deferred_run(struct deferred_channel *c)
{
    struct discord *d = c->d;

    c->running = true;
    while (!list_is_empty(&c->messages)) {
        struct deferred_message *m = list_first(&c->messages, struct deferred_message, link);
        struct discord_pending *p = m->p;
        struct json doc;

        if (!json_parse(d->parser, buf_str(&m->text), &doc)) {
            message_free(d, m);
            pending_done(p);
            continue;
        }
        enum discord_verdict v = normalize_message(d, doc, STR_NULL, c->lenient);
        if (v == DISCORD_EVENT)
            pending_accept(p);
        if (v == DISCORD_NEED_GUILD || v == DISCORD_NEED_CHANNEL) {
            c->running = false;
            defer_until_known(d, c->channel_id, p->guild_id, v);
            return;
        }
        message_free(d, m);
        if (v != DISCORD_EVENT)
            pending_done(p);
    }
    deferred_free(c);
}

void discord_defer_channel(struct discord *d, uint64_t channel_id)
{
    deferred_get(d, channel_id)->until = UNTIL_BACKFILL;
}

void discord_undefer_channel(struct discord *d, uint64_t channel_id)
{
    struct deferred_channel *c = map_get(&d->deferred, id_key(&channel_id));

    if (c == NULL || c->until != UNTIL_BACKFILL)
        return;
    c->until = UNTIL_NOTHING;
    deferred_run(c);
}

void discord_inbound_done(struct discord *d)
{
    void *v;

    for (size_t at = 0; map_next(&d->deferred, &at, &v);)
        deferred_free(v);
    for (size_t at = 0; map_next(&d->guild_loads, &at, &v);)
        guild_load_free(v);
    map_done(&d->deferred);
    map_done(&d->guild_loads);
}

/* ---- asking Discord for events again ---- */

/* Forgets the unconfirmed events: a resumed session sends them again, and a backfill reads the
 * messages of a lost one. */
static void forget_pendings(struct discord_shard *s)
{
    void *v;

    for (size_t at = 0; map_next(&s->d->deferred, &at, &v);) {
        struct deferred_channel *c = v;
        list_each (&c->messages, it, nxt) {
            struct deferred_message *m = list_entry(it, struct deferred_message, link);
            if (m->p->shard == s)
                message_free(s->d, m);
        }
    }
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
    forget_pendings(s);
    dsocket_replay(s->socket, 0);
}

void discord_inbound_shard_init(struct discord_shard *s)
{
    list_init(&s->pendings);
    timer_init(&s->replay, on_replay);
}

/* Resets the backoff once no event has failed for a while. */
void discord_inbound_shard_tick(struct discord_shard *s)
{
    if (s->failing_since_ms == 0 || timer_is_set(&s->replay) ||
        clock_now_ms(s->d->base.env->clock) - s->failed_ms < s->replay_ms + WELL_MS)
        return;
    s->failing_since_ms = s->replay_ms = 0;
}

void discord_inbound_shard_done(struct discord_shard *s)
{
    timer_stop(s->d->base.env->clock, &s->replay);
    forget_pendings(s);
}

/* ---- messages ---- */

/* Ignores updates that Discord makes itself (link previews): they are not edits by the author. */
static void on_edited(struct discord *d, struct json message, struct discord_pending *p)
{
    struct event *ev = &d->norm.ev;

    if (json_str(message, "content").p == NULL || json_str(message, "edited_timestamp").n == 0 ||
        discord_normalize_for(d, message, STR_NULL, true) != DISCORD_EVENT) {
        pending_done(p);
        return;
    }
    discord_context_edited(d);
    ev->edit.text = ev->text;
    ev->edit.set = ev->edit.silent = true; /* an agent that has the message is not told */
    p->taken = true;
    p->accept = host_accept(d->base.host, &d->base, ev, on_accepted, p);
}

/* Discord does not name the author of a deleted message; recent.h may still know the author. */
static void on_deleted(struct discord *d, struct json where, struct str message_id,
                       struct discord_pending *p)
{
    struct str guild = json_str(where, "guild_id"), channel = json_str(where, "channel_id");
    uint64_t channel_id = snowflake(channel);
    const struct dcache_channel *ch = dcache_channel(d->cache, channel_id);
    char parent[24], user[24], route[32];
    struct event ev = {.platform = STR("discord"),
                       .bot = str_of(d->base.bot),
                       .route_key = guild,
                       .scope_id = guild,
                       .message_id = message_id,
                       .chat_id = channel,
                       .chat_type = STR("group"),
                       .edit = {.set = true, .silent = true, .deletes = true}};

    ev.user_id = discord_context_deleted(d, snowflake(guild), channel_id, message_id, user);
    if (guild.n == 0) {
        const struct discord_cursor *seen = map_get(&d->cursors, id_key(&channel_id));
        if (seen == NULL || seen->user_id == 0) {
            pending_done(p); /* its author and route are unknown */
            return;
        }
        snprintf(user, sizeof user, "%" PRIu64, seen->user_id);
        snprintf(route, sizeof route, "dm:%s", user);
        ev.chat_type = STR("dm");
        ev.route_key = str_of(route);
        ev.scope_id = STR_NULL;
        ev.user_id = str_of(user);
    }
    if (ch != NULL && discord_channel_is_thread(ch->type)) {
        snprintf(parent, sizeof parent, "%llu", (unsigned long long)ch->parent_id);
        ev.thread_id = channel;
        ev.parent_chat_id = str_of(parent);
        ev.chat_type = STR("thread");
        if (d->cfg->auto_thread)
            ev.chat_id = ev.parent_chat_id;
    }
    p->taken = true;
    p->accept = host_accept(d->base.host, &d->base, &ev, on_accepted, p);
}

static void on_message(struct discord *d, struct json message, struct discord_pending *p)
{
    enum discord_verdict v = normalize_message(d, message, STR_NULL, false);
    const struct discord_normalize_out *n = &d->norm;

    if (v == DISCORD_MALFORMED) {
        pending_done(p);
        return;
    }
    p->message_id = n->message_id;
    p->channel_id = n->channel_id;
    p->guild_id = n->guild_id;
    dcache_note_member(d->cache, n->guild_id, n->user_id, n->nick, n->roles);
    if (p->shard->n_failed_channels > 0 && channel_waits(p->shard, p->channel_id))
        return;
    if (v == DISCORD_EVENT && p->guild_id == 0)
        discord_cursor_person(d, p->channel_id, n->user_id);
    struct discord_cursor *seen = map_get(&d->cursors, id_key(&p->channel_id));
    if (seen != NULL && seen->gap != 0 && !seen->filling)
        discord_backfill_channel(d, seen); /* the missed messages come first */
    bool needs = v == DISCORD_NEED_GUILD || v == DISCORD_NEED_CHANNEL;
    if (needs && !is_deferred(d, p->channel_id))
        defer_until_known(d, p->channel_id, p->guild_id, v);
    if (is_deferred(d, p->channel_id)) {
        struct deferred_channel *c = deferred_get(d, p->channel_id);
        struct deferred_message *m = xcalloc(1, sizeof *m);
        struct jw w = jw_begin(&m->text);
        jw_value(&w, message);
        d->deferred_bytes += m->text.n;
        if (d->deferred_bytes > MAX_DEFERRED_BYTES) {
            message_free(d, m);
            pending_failed(p);
            return;
        }
        m->p = p;
        list_append(&c->messages, &m->link);
    } else if (v == DISCORD_EVENT) {
        pending_accept(p);
    } else {
        pending_done(p);
    }
}

/* ---- people's reactions to the bot's messages become texts: "reaction:added:<emoji>" ----
 *
 * Gateways know this format from other platforms.  Reactions to other messages are ignored.
 * Discord names the author of the message only when a reaction is added.  d->reacted remembers the
 * bot's messages with a reaction, so that a removal is recognised. */

static bool is_ours(struct discord *d, struct json reaction, uint64_t message_id, bool added)
{
    if (added && str_eq(json_str(reaction, "message_author_id"), str_of(d->bot_user))) {
        d->reacted[d->n_reacted++ % ARRAY_LEN(d->reacted)] = message_id;
        return true;
    }
    for (size_t i = 0; !added && i < ARRAY_LEN(d->reacted); i++)
        if (d->reacted[i] == message_id)
            return true;
    return false;
}

/* Writes the reaction as a message of the person, so that the normalizer finds chat and name. */
static void write_reaction_as_message(struct buf *out, struct json reaction, bool added)
{
    struct json emoji = json_get(reaction, "emoji"), member = json_get(reaction, "member");
    struct str name = json_str(emoji, "name");
    const char *around = str_is_empty(json_str(emoji, "id")) ? "" : ":";
    BUF_LOCAL text = BUF_INIT;
    struct jw w = jw_begin(out);

    buf_printf(&text, "reaction:%s:%s%.*s%s", added ? "added" : "removed", around, STR_FMT(name),
               around);
    jw_obj(&w);
    jw_kstr(&w, "id", json_str(reaction, "message_id"));
    jw_kstr(&w, "channel_id", json_str(reaction, "channel_id"));
    jw_kstr_opt(&w, "guild_id", json_str(reaction, "guild_id"));
    jw_ki64(&w, "type", 0);
    jw_kstr(&w, "content", buf_str(&text));
    if (json_is_object(member))
        jw_kvalue(&w, "member", member);
    jw_key(&w, "author");
    if (json_is_object(json_get(member, "user"))) {
        jw_value(&w, json_get(member, "user"));
    } else {
        jw_obj(&w);
        jw_kstr(&w, "id", json_str(reaction, "user_id"));
        jw_end_obj(&w);
    }
    jw_end_obj(&w);
}

static void on_reaction(struct discord *d, struct json reaction, bool added,
                        struct discord_pending *p)
{
    uint64_t message_id = json_snowflake(reaction, "message_id");
    bool own = str_eq(json_str(reaction, "user_id"), str_of(d->bot_user));
    BUF_LOCAL message = BUF_INIT;
    struct json doc;
    char id[96];

    if (own || message_id == 0 || !is_ours(d, reaction, message_id, added)) {
        pending_done(p);
        return;
    }
    write_reaction_as_message(&message, reaction, added);
    if (json_parse(d->parser, buf_str(&message), &doc) &&
        discord_normalize_for(d, doc, STR_NULL, false) == DISCORD_EVENT) {
        struct event *ev = &d->norm.ev;
        snprintf(id, sizeof id, "%" PRIu64 ":r%" PRIu64 ":%.*s", message_id, p->seq,
                 (int)(ev->user_id.n < 24 ? ev->user_id.n : 24), ev->user_id.p);
        ev->event_id = str_of(id);
        ev->reply_to_message_id = ev->message_id;
        ev->reply_to.set = ev->reply_to.is_own = ev->replies_to_bot = true;
        p->channel_id = d->norm.channel_id;
        pending_accept(p);
    } else {
        pending_done(p);
    }
}

/* ---- handlers of the socket ---- */

static void on_dispatch(void *ctx, struct dsocket *socket, struct str type, struct json d,
                        uint64_t seq)
{
    struct discord_shard *s = ctx;
    struct discord *dc = s->d;

    if (str_eq(type, STR("MESSAGE_CREATE"))) {
        on_message(dc, d, pending_new(s, seq));
        return;
    }
    if (str_eq(type, STR("MESSAGE_UPDATE"))) {
        on_edited(dc, d, pending_new(s, seq));
        return;
    }
    if (str_eq(type, STR("MESSAGE_DELETE"))) {
        on_deleted(dc, d, json_str(d, "id"), pending_new(s, seq));
        return;
    }
    if (str_eq(type, STR("MESSAGE_DELETE_BULK"))) {
        for (struct json_iter it = {0}; json_next(json_get(d, "ids"), &it);)
            on_deleted(dc, d, json_as_str(it.value), pending_new(s, seq));
        skip_event(s, seq);
        return;
    }
    bool added = str_eq(type, STR("MESSAGE_REACTION_ADD"));
    if (dc->cfg->base.reactions && (added || str_eq(type, STR("MESSAGE_REACTION_REMOVE")))) {
        on_reaction(dc, d, added, pending_new(s, seq));
        return;
    }
    if (str_eq(type, STR("INTERACTION_CREATE")))
        discord_interaction_dispatch(dc, d);
    if (dcache_dispatch(dc->cache, type, d) && str_eq(type, STR("GUILD_CREATE"))) {
        uint64_t guild_id = json_snowflake(d, "id");
        const struct dcache_guild *g = dcache_guild(dc->cache, guild_id);
        struct guild_load *l = map_get(&dc->guild_loads, id_key(&guild_id));
        bool known = g != NULL && g->loaded;
        if (known && l != NULL)
            guild_load_free(l);
        if (known)
            run_deferred_of(dc, guild_id, false);
        discord_backfill_guild_known(dc, guild_id);
    }
    skip_event(s, seq);
}

static void on_live(void *ctx, struct dsocket *socket, struct json ready)
{
    struct discord *d = ((struct discord_shard *)ctx)->d;
    struct str id = json_str(json_get(ready, "user"), "id");

    if (id.n > 0 && id.n < sizeof d->bot_user && snowflake(id) != 0) {
        memcpy(d->bot_user, id.p, id.n);
        d->bot_user[id.n] = '\0';
        dcache_set_bot(d->cache, snowflake(id));
    }
    d->gateway_problem = NULL;
    /* Save the session now: after a crash before the next tick its events could not be resumed. */
    timer_set(d->base.env->clock, &d->tick, 0);
    /* After READY the guilds follow.  They say which channels have nothing new. */
    discord_backfill_soon(d, ready.doc != NULL ? 5000 : 0);
}

static void on_session_lost(void *ctx, struct dsocket *socket)
{
    struct discord_shard *s = ctx;
    struct discord *d = s->d;

    timer_stop(d->base.env->clock, &s->replay);
    s->n_failed_channels = 0;
    timer_stop(d->base.env->clock, &d->backfill_timer);
    forget_pendings(s);
    discord_backfill_mark(d, s);
    discord_context_gap(d, s);
}

static void on_stopped(void *ctx, struct dsocket *socket, int code, const char *problem)
{
    struct discord *d = ((struct discord_shard *)ctx)->d;

    d->gateway_problem = d->base.problem = problem;
}

static void on_wants_identify(void *ctx, struct dsocket *socket)
{
    discord_shards_want_session(ctx);
}

static void on_wants_shards(void *ctx, struct dsocket *socket)
{
    struct discord *d = ((struct discord_shard *)ctx)->d;

    log_warn(&d->base.log,
             "Discord asks for more shards than %u: starting again with as many as it wants",
             d->n_shards);
    discord_shards_reshard(d);
}

const struct dsocket_handlers discord_socket_handlers = {
    .wants_identify = on_wants_identify,
    .live = on_live,
    .dispatch = on_dispatch,
    .session_lost = on_session_lost,
    .stopped = on_stopped,
    .wants_shards = on_wants_shards,
};
