/* context.c - finds the messages before a message, as context for agents.  (discord_priv.h has the
 * calls.)
 *
 * Every message of a guild is noted in platform/recent.h, so the context is nearly always in
 * memory.  After a start, or when a lost session missed messages, the channel is read once over
 * REST:
 *
 *      ops->context() --recent does not reach back--> one page of history --> recent --> answers
 *
 * The context leaves out the bot's own messages, and those that the same person addressed to the
 * bot: the agent has seen both.  Where the bot may not read the history, or the request fails, the
 * event is delivered without a context and with context_error. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"
#include "platform/discord/discord_priv.h"
#include "platform/recent.h"

enum { PATIENCE_MS = 3000, PLACE_CHARS = 48 };

struct look_back {     /* one channel that is being read */
    struct list link;  /* d->looking */
    struct discord *d; /* borrowed */
    struct list asks;  /* struct look_ask, owned */
    struct outgoing *call;
    struct timer known; /* armed: the context is in memory, no request needed */
    uint64_t guild_id, channel_id;
    char before[24];
    bool stale; /* a session was lost since the request: the page may miss messages */
};

struct look_ask { /* an event that waits for the page */
    struct list link;
    struct context_ask ask;
    char message[24], user[24];
};

static struct str place_of(char room[PLACE_CHARS], uint64_t guild_id, uint64_t channel_id)
{
    snprintf(room, PLACE_CHARS, "%" PRIu64 " %" PRIu64, guild_id, channel_id);
    return str_of(room);
}

/* Lacks the bot the permission to read the history?  Discord then answers with an empty list. */
static bool is_blind(struct discord *d, uint64_t guild_id, uint64_t channel_id)
{
    const struct dcache_channel *ch = dcache_channel(d->cache, channel_id);
    uint64_t bot = snowflake(str_of(d->bot_user));

    if (ch == NULL || dcache_member(d->cache, guild_id, bot) == NULL)
        return false;
    uint64_t place = discord_channel_is_thread(ch->type) ? ch->parent_id : ch->id;
    return (dcache_permissions(d->cache, guild_id, place, bot) & PERM_READ_MESSAGE_HISTORY) == 0;
}

void discord_context_add(struct discord *d)
{
    struct event *ev = &d->norm.ev;
    char room[PLACE_CHARS];

    if (d->recent == NULL || d->norm.guild_id == 0 || str_starts(ev->text, STR("/")))
        return;
    struct str place = place_of(room, d->norm.guild_id, d->norm.channel_id);
    recent_retain(d->recent, d->env->retention_ms);
    if (is_blind(d, d->norm.guild_id, d->norm.channel_id)) {
        ev->context_error = true;
    } else if (recent_reaches_back(d->recent, place)) {
        ev->context = d->said;
        ev->n_context = recent_before(d->recent, place, ev, d->said);
    } else {
        ev->wants_context = true;
    }
}

void discord_context_note(struct discord *d, const struct discord_normalize_out *n)
{
    char room[PLACE_CHARS];

    if (d->recent != NULL && n->guild_id != 0)
        recent_note(d->recent, place_of(room, n->guild_id, n->channel_id), &n->ev);
}

void discord_context_edited(struct discord *d)
{
    const struct discord_normalize_out *n = &d->norm;
    char room[PLACE_CHARS];

    if (d->recent != NULL && n->guild_id != 0)
        recent_edit(d->recent, place_of(room, n->guild_id, n->channel_id), n->ev.message_id,
                    n->ev.text);
}

struct str discord_context_author(struct discord *d, uint64_t guild_id, uint64_t channel_id,
                                  struct str message_id, char room[24])
{
    char at[PLACE_CHARS];
    struct str user = STR_NULL;

    if (d->recent != NULL && guild_id != 0)
        user = recent_author(d->recent, place_of(at, guild_id, channel_id), message_id);
    if (user.n == 0 || user.n >= 24)
        return STR_NULL;
    memcpy(room, user.p, user.n);
    return str_make(room, user.n);
}

void discord_context_deleted(struct discord *d, uint64_t guild_id, uint64_t channel_id,
                             struct str message_id)
{
    char room[PLACE_CHARS];

    if (d->recent != NULL && guild_id != 0)
        recent_delete(d->recent, place_of(room, guild_id, channel_id), message_id);
}

static bool is_of_shard(void *ctx, struct str place)
{
    struct str guild;

    str_split(&place, ' ', &guild);
    return discord_shard_has(ctx, snowflake(guild));
}

void discord_context_gap(struct discord *d, struct discord_shard *s)
{
    if (d->recent != NULL)
        recent_gap(d->recent, is_of_shard, s);
    list_each (&d->looking, it, nxt) {
        struct look_back *l = list_entry(it, struct look_back, link);
        l->stale |= discord_shard_has(s, l->guild_id);
    }
}

/* ---- reading a channel ---- */

static void look_free(struct look_back *l)
{
    timer_stop(l->d->env->clock, &l->known);
    sender_cancel(&l->call);
    list_each (&l->asks, it, nxt)
        free(list_entry(it, struct look_ask, link));
    list_remove(&l->link);
    free(l);
}

void discord_context_done(struct discord *d)
{
    list_each (&d->looking, it, nxt)
        look_free(list_entry(it, struct look_back, link));
    recent_free(d->recent);
}

static void answer_all(struct look_back *l, bool known)
{
    struct discord *d = l->d;
    char room[PLACE_CHARS];
    struct str place = place_of(room, l->guild_id, l->channel_id);

    list_remove(&l->link); /* a later ops->context() starts a new lookup */
    list_each (&l->asks, it, nxt) {
        const struct look_ask *a = list_entry(it, struct look_ask, link);
        struct event ev = {.message_id = str_of(a->message), .user_id = str_of(a->user)};
        size_t n = known ? recent_before(d->recent, place, &ev, d->said) : 0;
        host_context(d->base.host, a->ask, d->said, n, !known);
    }
    look_free(l);
}

static void on_known(struct timer *t)
{
    answer_all(container_of(t, struct look_back, known), true);
}

static bool is_this(void *ctx, struct str place)
{
    return str_eq(place, *(struct str *)ctx);
}

static void note_page(struct look_back *l, struct json list)
{
    struct discord *d = l->d;
    char room[PLACE_CHARS], guild[24];
    struct str place = place_of(room, l->guild_id, l->channel_id);

    snprintf(guild, sizeof guild, "%" PRIu64, l->guild_id);
    recent_refill(d->recent, place, str_of(l->before));
    for (struct json_iter it = {0}; json_next(list, &it);) {
        struct discord_normalize_in in = {.message = it.value,
                                          .guild_id = str_of(guild),
                                          .cache = d->cache,
                                          .bot = str_of(d->base.bot),
                                          .bot_user = str_of(d->bot_user),
                                          .in_parent = d->cfg->auto_thread,
                                          .lenient = true};
        if (discord_normalize(&in, &d->norm) == DISCORD_EVENT)
            recent_note(d->recent, place, &d->norm.ev);
    }
    if (l->stale)
        recent_gap(d->recent, is_this, &place);
}

static void on_page(void *ctx, const struct discord_told *t)
{
    struct look_back *l = ctx;
    struct discord *d = l->d;
    bool good = t->end == SENDER_DONE && json_type(t->answer.body) == JSON_ARRAY;

    l->call = NULL;
    if (good && json_count(t->answer.body) == 0 && is_blind(d, l->guild_id, l->channel_id))
        good = false;
    if (good)
        note_page(l, t->answer.body);
    else
        log_debug(&d->log, "what was said before cannot be read: %s", t->why != NULL ? t->why : "");
    answer_all(l, good);
}

static struct look_back *look_at(struct discord *d, uint64_t guild_id, uint64_t channel_id,
                                 struct str before)
{
    struct look_back *l = xcalloc(1, sizeof *l);
    char path[128], lane[48], room[PLACE_CHARS];

    *l = (struct look_back){.d = d, .guild_id = guild_id, .channel_id = channel_id};
    snprintf(l->before, sizeof l->before, "%.*s", STR_FMT(before));
    list_init(&l->link);
    list_init(&l->asks);
    timer_init(&l->known, on_known);
    list_append(&d->looking, &l->link);
    if (recent_reaches_back(d->recent, place_of(room, guild_id, channel_id))) {
        timer_set(d->env->clock, &l->known, 0); /* another lookup has read it meanwhile */
        return l;
    }
    snprintf(path, sizeof path, "/channels/%" PRIu64 "/messages?limit=%u&before=%s", channel_id,
             d->cfg->context, l->before);
    snprintf(lane, sizeof lane, "context %" PRIu64, channel_id);
    l->call = discord_ask(d,
                          &(struct discord_question){.route = "read",
                                                     .major = channel_id,
                                                     .path = str_of(path),
                                                     .lane = str_of(lane),
                                                     .patience_ms = PATIENCE_MS},
                          on_page, l);
    return l;
}

void discord_context(struct platform *p, struct context_ask ask, const struct event *ev)
{
    struct discord *d = discord_of(p);
    uint64_t channel_id = snowflake(str_is_empty(ev->thread_id) ? ev->chat_id : ev->thread_id);
    struct look_ask *a = xcalloc(1, sizeof *a);
    struct look_back *at = NULL;

    a->ask = ask;
    snprintf(a->message, sizeof a->message, "%.*s", STR_FMT(ev->message_id));
    snprintf(a->user, sizeof a->user, "%.*s", STR_FMT(ev->user_id));
    list_init(&a->link);
    list_each (&d->looking, it, nxt) {
        struct look_back *l = list_entry(it, struct look_back, link);
        if (l->channel_id == channel_id)
            at = l;
    }
    if (at == NULL)
        at = look_at(d, snowflake(ev->scope_id), channel_id, ev->message_id);
    list_append(&at->asks, &a->link);
}
