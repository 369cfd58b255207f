/* sight.c - can this person see this channel: the visibility floor, and keeping its ground fresh.
 *
 * The cache answers at once or not at all; a person it does not know is asked for over REST, and
 * until the answer is there nobody is believed to see anything.  Discord tells us of changed roles
 * only with a privileged intent, so whoever matters here is asked for again every REFRESH_MS. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/jw.h"
#include "base/mem.h"
#include "platform/discord/discord_priv.h"

enum { REFRESH_MS = 300000, SIGHTS_MAX = 10000, PATIENCE_MS = 15000 };

struct sight { /* a person of a guild whose permissions matter */
    struct {
        uint64_t guild_id, user_id;
    } key;
    struct discord *d;     /* borrowed */
    struct outgoing *call; /* under way; NULL: none */
    int64_t asked_ms;      /* monotonic */
    struct list lru;       /* discord->sights_lru, used least recently first */
};

static struct str sight_key(const struct sight *s)
{
    return str_make(&s->key, sizeof s->key);
}

static void sight_free(struct sight *s)
{
    sender_cancel(&s->call);
    map_del(&s->d->sights, sight_key(s));
    list_remove(&s->lru);
    free(s);
}

void discord_sight_done(struct discord *d)
{
    list_each (&d->sights_lru, it, nxt)
        sight_free(list_entry(it, struct sight, lru));
    map_done(&d->sights);
}

/* Not a member any more: what the cache knew of them is worth nothing. */
static void forget_member(struct sight *s)
{
    struct buf text = BUF_INIT;
    struct json doc;

    buf_printf(&text, "{\"guild_id\":\"%" PRIu64 "\",\"user\":{\"id\":\"%" PRIu64 "\"}}",
               s->key.guild_id, s->key.user_id);
    if (json_parse(s->d->parser, buf_str(&text), &doc))
        dcache_dispatch(s->d->cache, STR("GUILD_MEMBER_REMOVE"), doc);
    buf_done(&text);
}

static void on_member(void *ctx, const struct discord_told *t)
{
    struct sight *s = ctx;

    s->call = NULL;
    if (t->end == SENDER_DONE)
        dcache_put_member(s->d->cache, t->answer.body, s->key.guild_id, s->key.user_id);
    else if (t->end == SENDER_REFUSED && t->answer.status == 404)
        forget_member(s);
}

static void ask(struct sight *s)
{
    char path[80];

    snprintf(path, sizeof path, "/guilds/%" PRIu64 "/members/%" PRIu64, s->key.guild_id,
             s->key.user_id);
    s->asked_ms = clock_now_ms(s->d->env->clock);
    s->call = discord_ask(s->d,
                          &(struct discord_question){.route = "member",
                                                     .major = s->key.guild_id,
                                                     .path = str_of(path),
                                                     .lane = STR("members"),
                                                     .patience_ms = PATIENCE_MS},
                          on_member, s);
}

static void keep_fresh(struct discord *d, uint64_t guild_id, uint64_t user_id)
{
    struct sight probe = {.key = {guild_id, user_id}};
    struct sight *s = map_get(&d->sights, sight_key(&probe));

    if (s == NULL) {
        if (map_count(&d->sights) >= SIGHTS_MAX)
            sight_free(list_first(&d->sights_lru, struct sight, lru));
        s = xcalloc(1, sizeof *s);
        s->key.guild_id = guild_id;
        s->key.user_id = user_id;
        s->d = d;
        list_init(&s->lru);
        map_put(&d->sights, sight_key(s), s);
        list_append(&d->sights_lru, &s->lru);
        ask(s);
        return;
    }
    list_move(&s->lru, &d->sights_lru);
    if (s->call == NULL && clock_now_ms(d->env->clock) - s->asked_ms >= REFRESH_MS)
        ask(s);
}

static bool may_read_back(struct discord *d, const struct dcache_channel *ch, uint64_t user_id)
{
    uint64_t channel_id = discord_channel_is_thread(ch->type) ? ch->parent_id : ch->id;

    return (dcache_permissions(d->cache, ch->guild_id, channel_id, user_id) &
            PERM_READ_MESSAGE_HISTORY) != 0;
}

enum gate_sight discord_sees(struct platform *p, const struct event *ev, struct str user)
{
    struct discord *d = discord_of(p);
    uint64_t channel_id = snowflake(str_is_empty(ev->thread_id) ? ev->chat_id : ev->thread_id);
    uint64_t user_id = snowflake(user);
    const struct dcache_channel *ch = channel_id != 0 ? dcache_channel(d->cache, channel_id) : NULL;

    if (ch == NULL || user_id == 0 || ch->guild_id == 0)
        return GATE_SIGHT_UNKNOWN;
    if (!str_is_empty(ev->scope_id) && snowflake(ev->scope_id) != ch->guild_id)
        return GATE_UNSEEN; /* it does not lie where somebody says it does */
    keep_fresh(d, ch->guild_id, user_id);
    switch (dcache_can_view(d->cache, channel_id, user_id)) {
    case DCACHE_YES:
        return !ev->looks_back || may_read_back(d, ch, user_id) ? GATE_SEEN : GATE_UNSEEN;
    case DCACHE_NO:
        return GATE_UNSEEN;
    default:
        return GATE_SIGHT_UNKNOWN;
    }
}

bool discord_manages(struct platform *p, struct str guild, struct str channel, struct str user)
{
    struct discord *d = discord_of(p);
    uint64_t guild_id = snowflake(guild), user_id = snowflake(user);
    bool whole = str_eq(channel, STR("*"));
    uint64_t channel_id = whole ? 0 : snowflake(channel);

    if (guild_id == 0 || user_id == 0 || (!whole && channel_id == 0))
        return false;
    keep_fresh(d, guild_id, user_id);
    uint64_t may = dcache_permissions(d->cache, guild_id, channel_id, user_id);
    return (may & (whole ? PERM_MANAGE_GUILD : PERM_MANAGE_GUILD | PERM_MANAGE_CHANNELS)) != 0;
}
