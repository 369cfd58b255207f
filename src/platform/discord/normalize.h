/* normalize.h - a Discord message becomes an event.
 *
 * Pure: the message, what the cache knows and who we are go in, an event comes out, or the reason
 * why there is none.
 *
 *      where               chat_id  chat_type  thread_id  parent_chat_id  scope_id  route_key
 *      channel of a guild  channel  group      -          -               guild     guild
 *      thread, forum post  thread   thread     thread     its channel     guild     guild
 *      direct message      channel  dm         -          -               -         dm:<user>
 *
 * Speech is a message of type 0 (default), 19 (reply), 20 and 23 (an application's answer to a
 * command).  Everything else Discord calls a message - joins, pins, boosts, thread starters, polls
 * that ended - is not, nor is what we said ourselves.  Edits never get here: an edit is not a new
 * message. */
#pragma once
#include "base/json.h"
#include "core/event.h"

struct dcache;

struct discord_normalize_in {
    struct json message;  /* of a gateway event or a REST answer */
    struct str guild_id;  /* for REST answers, which do not say; absent: as in the message */
    struct dcache *cache; /* read, and touched */
    struct str bot;       /* which of our bots: the config's name for it */
    struct str bot_user;  /* its user id on Discord */
    bool in_parent;       /* a thread's messages have its channel for a chat */
    bool lenient;         /* deliver with what is known rather than ask for more */
};

enum discord_verdict {
    DISCORD_EVENT,
    DISCORD_IGNORED,      /* why says the reason */
    DISCORD_MALFORMED,    /* not a message at all */
    DISCORD_NEED_GUILD,   /* the guild is not in the cache: load it, then ask again */
    DISCORD_NEED_CHANNEL, /* the same for the channel */
};

struct discord_normalize_out {
    struct event ev; /* its strs are borrowed from the message, the cache and this */
    uint64_t message_id, channel_id, guild_id, user_id; /* set unless malformed */
    struct str nick;   /* the author's in this guild; absent: none, or not told */
    struct json roles; /* the same; absent: not told */
    const char *why;
    struct buf scratch; /* owned; texts that had to be put together */
    char route_key[32], parent_id[24], sticker_url[80];
    struct event_media media[EVENT_MAX_MEDIA];
};

/* @out starts zeroed and may be used again and again; discord_normalize_done() frees what it holds.
 */
enum discord_verdict discord_normalize(const struct discord_normalize_in *in,
                                       struct discord_normalize_out *out);
void discord_normalize_done(struct discord_normalize_out *out);
