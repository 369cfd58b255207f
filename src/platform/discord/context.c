/* context.c - what was said in a channel before a message, as Discord remembers it.
 *
 * One page of history per message that wants it, in a lane of its channel, so that nobody else
 * waits.  What the bot said is left out, and so is what the same person said to it: the agent heard
 * both.  Whatever goes wrong, the message is delivered, and says that nobody could tell. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/arena.h"
#include "base/mem.h"
#include "platform/discord/discord_priv.h"

enum { PATIENCE_MS = 3000 };

struct look_back {
    struct list link;  /* d->looking */
    struct discord *d; /* borrowed */
    struct context_ask ask;
    struct outgoing *call;
    uint64_t channel_id;
    char user[24], guild[24]; /* who asks, and where */
};

struct page { /* collected newest first, told oldest first */
    struct event_said said[EVENT_MAX_CONTEXT];
    size_t n, bytes;
    struct arena arena;
};

static void look_free(struct look_back *l)
{
    sender_cancel(&l->call);
    list_remove(&l->link);
    free(l);
}

void discord_context_done(struct discord *d)
{
    list_each (&d->looking, it, nxt)
        look_free(list_entry(it, struct look_back, link));
}

/* False: there is no room for more. */
static bool add(struct page *p, const struct event *ev)
{
    if (p->n == EVENT_MAX_CONTEXT || p->bytes + ev->text.n > EVENT_CONTEXT_BYTES)
        return false;
    p->bytes += ev->text.n;
    p->said[EVENT_MAX_CONTEXT - ++p->n] =
        (struct event_said){.text = arena_str(&p->arena, ev->text),
                            .message_id = ev->message_id,
                            .user_id = ev->user_id,
                            .user_name = arena_str(&p->arena, ev->user_name)};
    return true;
}

static void read_page(struct look_back *l, struct json list, struct page *p)
{
    struct discord *d = l->d;

    for (struct json_iter it = {0}; json_next(list, &it);) {
        struct discord_normalize_in in = {.message = it.value,
                                          .guild_id = str_of(l->guild),
                                          .cache = d->cache,
                                          .bot = str_of(d->base.bot),
                                          .bot_user = str_of(d->bot_user),
                                          .in_parent = d->cfg->auto_thread,
                                          .lenient = true};
        if (discord_normalize(&in, &d->norm) != DISCORD_EVENT)
            continue;
        const struct event *ev = &d->norm.ev;
        bool told =
            (ev->mentions_bot || ev->replies_to_bot) && str_eq(ev->user_id, str_of(l->user));
        if (ev->text.n > 0 && !told && !add(p, ev))
            return;
    }
}

/* To a bot that may not read back Discord tells nothing, and does not say why. */
static bool is_blind(struct look_back *l)
{
    struct dcache *c = l->d->cache;
    const struct dcache_channel *ch = dcache_channel(c, l->channel_id);
    uint64_t bot = snowflake(str_of(l->d->bot_user)), guild = snowflake(str_of(l->guild));

    if (ch == NULL || dcache_member(c, guild, bot) == NULL)
        return false;
    uint64_t place = discord_channel_is_thread(ch->type) ? ch->parent_id : ch->id;
    return (dcache_permissions(c, guild, place, bot) & PERM_READ_MESSAGE_HISTORY) == 0;
}

static void on_page(void *ctx, const struct discord_told *t)
{
    struct look_back *l = ctx;
    struct discord *d = l->d;
    struct page *p = xcalloc(1, sizeof *p);
    bool good = t->end == SENDER_DONE && json_type(t->answer.body) == JSON_ARRAY;

    l->call = NULL;
    if (good && json_count(t->answer.body) == 0 && is_blind(l))
        good = false;
    if (good)
        read_page(l, t->answer.body, p);
    else
        log_debug(&d->log, "what was said before cannot be read: %s", t->why != NULL ? t->why : "");
    host_context(d->base.host, l->ask, p->said + EVENT_MAX_CONTEXT - p->n, p->n, !good);
    arena_done(&p->arena);
    free(p);
    look_free(l);
}

static void copy(char *to, size_t room, struct str s)
{
    snprintf(to, room, "%.*s", (int)s.n, s.p != NULL ? s.p : "");
}

void discord_context(struct platform *p, struct context_ask ask, const struct event *ev)
{
    struct discord *d = discord_of(p);
    uint64_t channel_id = snowflake(str_is_empty(ev->thread_id) ? ev->chat_id : ev->thread_id);
    struct look_back *l = xcalloc(1, sizeof *l);
    char path[128], lane[48];

    *l = (struct look_back){.d = d, .ask = ask, .channel_id = channel_id};
    list_init(&l->link);
    list_append(&d->looking, &l->link);
    copy(l->user, sizeof l->user, ev->user_id);
    copy(l->guild, sizeof l->guild, ev->scope_id);
    snprintf(path, sizeof path, "/channels/%" PRIu64 "/messages?limit=%u&before=%" PRIu64,
             channel_id, d->cfg->context, snowflake(ev->message_id));
    snprintf(lane, sizeof lane, "context %" PRIu64, channel_id);
    l->call = discord_ask(d,
                          &(struct discord_question){.route = "read",
                                                     .major = channel_id,
                                                     .path = str_of(path),
                                                     .lane = str_of(lane),
                                                     .patience_ms = PATIENCE_MS},
                          on_page, l);
}
