/* normalize.h - turns a Discord message into an event.
 *
 *      where               chat_id  chat_type  thread_id  parent_chat_id  scope_id  route_key
 *      channel of a guild  channel  group      -          -               guild     guild
 *      thread, forum post  thread   thread     thread     its channel     guild     guild
 *      direct message      channel  dm         -          -               -         dm:<user>
 *
 * inbound.c and history.c call it.  Pure: the message, the cache and the bot's id go in; an event
 * comes out, or the reason why there is none.
 *
 * Messages of type 0 (default), 19 (reply), 20 and 23 (an application's answer to a command) become
 * events.  Joins, pins, boosts, thread starters, ended polls and the bot's own messages are
 * ignored. */
#pragma once
#include "base/json.h"
#include "core/event.h"

struct discord_normalize_in {
    struct json message;  /* of an event of the socket or a REST answer */
    struct str guild_id;  /* for REST answers, which lack it; absent: as in the message */
    struct dcache *cache; /* read; lookups update its LRU lists */
    struct str bot;       /* the bot's name in the configuration */
    struct str bot_user;  /* the bot's user id on Discord */
    bool in_parent;       /* the chat id of a thread is that of its channel */
    bool lenient;         /* make the event even if the guild or the channel is unknown */
};

enum discord_verdict {
    DISCORD_EVENT,
    DISCORD_IGNORED,      /* out->why has the reason */
    DISCORD_MALFORMED,    /* not a message */
    DISCORD_NEED_GUILD,   /* the guild is not in the cache: load it, then call again */
    DISCORD_NEED_CHANNEL, /* the channel is not in the cache: load it, then call again */
};

struct discord_normalize_out {
    struct event ev; /* its strs are borrowed from the message, the cache and this struct */
    uint64_t message_id, channel_id, guild_id, user_id; /* set unless malformed */
    struct str nick;   /* of the author in this guild; absent: none, or not in the message */
    struct json roles; /* of the author; absent: not in the message */
    bool in_private;   /* in a private thread */
    const char *why;
    struct buf scratch; /* owned; composed texts */
    char route_key[32], parent_id[24], sticker_url[80];
    struct event_media media[EVENT_MAX_MEDIA];
};

/* @out starts zeroed and may be reused; discord_normalize_done() frees what it holds. */
enum discord_verdict discord_normalize(const struct discord_normalize_in *in,
                                       struct discord_normalize_out *out);
void discord_normalize_done(struct discord_normalize_out *out);
