/* cache.h - what we know of Discord's guilds, channels, threads, roles and members.
 *
 * Fed by gateway events (cache_dispatch) and by REST answers (the _put functions), asked by the
 * normalizer and by the visibility floor.  Bounded: beyond its limits the thing used least recently
 * is forgotten, and whoever asks for it learns "unknown".  No I/O. */
#pragma once
#include "base/json.h"
#include "base/list.h"
#include "base/map.h"
#include "platform/discord/permissions.h"

enum channel_type { /* Discord's numbers */
                    CHANNEL_TEXT = 0,
                    CHANNEL_DM = 1,
                    CHANNEL_VOICE = 2,
                    CHANNEL_GROUP_DM = 3,
                    CHANNEL_CATEGORY = 4,
                    CHANNEL_ANNOUNCEMENT = 5,
                    CHANNEL_ANNOUNCEMENT_THREAD = 10,
                    CHANNEL_PUBLIC_THREAD = 11,
                    CHANNEL_PRIVATE_THREAD = 12,
                    CHANNEL_STAGE = 13,
                    CHANNEL_FORUM = 15,
                    CHANNEL_MEDIA = 16,
};

struct cache_role {
    uint64_t id, permissions;
    bool is_ours; /* the role Discord made for this very bot */
};

struct cache_guild {
    uint64_t id, owner_id;
    char *name;               /* owned */
    bool loaded;              /* roles and channels are complete */
    bool unavailable;         /* an outage on Discord's side */
    struct cache_role *roles; /* owned */
    size_t n_roles;
};

struct cache_channel { /* threads too */
    uint64_t id, guild_id, parent_id;
    uint64_t last_message_id;          /* as of the last time we were told; 0: unknown */
    char *name, *topic;                /* owned; NULL: none */
    struct perm_overwrite *overwrites; /* owned */
    size_t n_overwrites;
    int type; /* enum channel_type, or a number Discord invents later */
    struct list lru;
};

struct cache_member { /* of interest: somebody who spoke, or whom we were told about */
    struct {
        uint64_t guild_id, user_id;
    } key;
    char *nick;      /* owned; NULL: none */
    uint64_t *roles; /* owned */
    size_t n_roles;
    struct list lru;
};

struct cache_limits {          /* 0: the default */
    size_t max_guilds;         /* 20,000 */
    size_t max_channels;       /* 200,000 */
    size_t max_members;        /* 100,000 */
    size_t max_thread_members; /* 100,000 pairs of a private thread and somebody in it */
};

struct cache;
struct cache *cache_new(const struct cache_limits *limits);
void cache_free(struct cache *c);
void cache_set_bot(struct cache *c, uint64_t bot_user_id); /* so that its own role is recognised */

/* Apply one gateway event; false: it is not about anything kept here. */
bool cache_dispatch(struct cache *c, struct str type, struct json d);

/* A guild object; with its channels (a gateway event) or without (REST: give them one by one, then
 * cache_guild_loaded()). */
void cache_put_guild(struct cache *c, struct json guild);
void cache_guild_loaded(struct cache *c, uint64_t guild_id);
void cache_put_channel(struct cache *c, struct json channel, uint64_t guild_id);
/* @user_id is needed because a member inside a message does not carry its user. */
void cache_put_member(struct cache *c, struct json member, uint64_t guild_id, uint64_t user_id);

/* NULL: unknown.  Borrowed until the next change. */
const struct cache_guild *cache_guild(const struct cache *c, uint64_t id);
const struct cache_channel *cache_channel(struct cache *c, uint64_t id);
const struct cache_member *cache_member(struct cache *c, uint64_t guild_id, uint64_t user_id);

static inline bool channel_type_is_thread(int type)
{
    return type >= CHANNEL_ANNOUNCEMENT_THREAD && type <= CHANNEL_PRIVATE_THREAD;
}

enum cache_answer { CACHE_NO, CACHE_YES, CACHE_UNKNOWN };
/* May this person see this channel?  Threads through their parent; a private thread only for those
 * in it and those who manage threads.  Unknown when anything it depends on is. */
enum cache_answer cache_can_view(struct cache *c, uint64_t channel_id, uint64_t user_id);

struct cache_stats {
    size_t guilds, channels, members, evicted;
};
void cache_stats(const struct cache *c, struct cache_stats *ret);

uint64_t snowflake(struct str text); /* 0: not an id */
uint64_t json_snowflake(struct json object, const char *key);
