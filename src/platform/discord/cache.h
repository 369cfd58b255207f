/* cache.h - what we know of Discord's guilds, channels, threads, roles and members.
 *
 * Fed by gateway events (dcache_dispatch) and by REST answers (the _put functions), asked by the
 * normalizer and by the visibility floor.  Bounded: beyond its limits the thing used least recently
 * is forgotten, and whoever asks for it learns "unknown".  No I/O. */
#pragma once
#include "base/json.h"
#include "base/list.h"
#include "base/map.h"
#include "platform/discord/permissions.h"
#include "platform/discord/snowflake.h"

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

struct dcache_role {
    uint64_t id, permissions;
    bool is_ours; /* the role Discord made for this very bot */
};

struct dcache_guild {
    uint64_t id, owner_id;
    char *name;                /* owned */
    bool loaded;               /* roles and channels are complete */
    bool unavailable;          /* an outage on Discord's side */
    struct dcache_role *roles; /* owned */
    size_t n_roles;
};

struct dcache_channel { /* threads too */
    uint64_t id, guild_id, parent_id;
    uint64_t last_message_id;          /* as of the last time we were told; 0: unknown */
    char *name, *topic;                /* owned; NULL: none */
    struct perm_overwrite *overwrites; /* owned */
    size_t n_overwrites;
    int type; /* enum channel_type, or a number Discord invents later */
    struct list lru;
};

struct dcache_member { /* of interest: somebody who spoke, or whom we were told about */
    struct {
        uint64_t guild_id, user_id;
    } key;
    char *nick;      /* owned; NULL: none */
    uint64_t *roles; /* owned */
    size_t n_roles;
    struct list lru;
};

struct dcache_limits {         /* 0: the default */
    size_t max_guilds;         /* 20,000 */
    size_t max_channels;       /* 200,000 */
    size_t max_members;        /* 100,000 */
    size_t max_thread_members; /* 100,000 pairs of a private thread and somebody in it */
};

struct dcache;
struct dcache *dcache_new(const struct dcache_limits *limits);
void dcache_free(struct dcache *c);
void dcache_set_bot(struct dcache *c,
                    uint64_t bot_user_id); /* so that its own role is recognised */

/* Apply one gateway event; false: it is not about anything kept here. */
bool dcache_dispatch(struct dcache *c, struct str type, struct json d);

/* A guild object; with its channels (a gateway event) or without (REST: give them one by one, then
 * dcache_guild_loaded()). */
void dcache_put_guild(struct dcache *c, struct json guild);
void dcache_guild_loaded(struct dcache *c, uint64_t guild_id);
void dcache_put_channel(struct dcache *c, struct json channel, uint64_t guild_id);
/* @user_id is needed because a member inside a message does not carry its user. */
void dcache_put_member(struct dcache *c, struct json member, uint64_t guild_id, uint64_t user_id);
/* The same from its parts; absent @roles: nothing is known. */
void dcache_note_member(struct dcache *c, uint64_t guild_id, uint64_t user_id, struct str nick,
                        struct json roles);

/* NULL: unknown.  Borrowed until the next change. */
const struct dcache_guild *dcache_guild(const struct dcache *c, uint64_t id);
const struct dcache_channel *dcache_channel(struct dcache *c, uint64_t id);
const struct dcache_member *dcache_member(struct dcache *c, uint64_t guild_id, uint64_t user_id);

static inline bool discord_channel_is_thread(int type)
{
    return type >= CHANNEL_ANNOUNCEMENT_THREAD && type <= CHANNEL_PRIVATE_THREAD;
}

enum dcache_answer { DCACHE_NO, DCACHE_YES, DCACHE_UNKNOWN };
/* May this person see this channel?  Threads through their parent; a private thread only for those
 * in it and those who manage threads.  Unknown when anything it depends on is. */
enum dcache_answer dcache_can_view(struct dcache *c, uint64_t channel_id, uint64_t user_id);

/* What this person may do in the guild, or (@channel_id not 0) in a channel of it; 0 when anything
 * it depends on is unknown. */
uint64_t dcache_permissions(struct dcache *c, uint64_t guild_id, uint64_t channel_id,
                            uint64_t user_id);

struct dcache_stats {
    size_t guilds, channels, members, evicted;
};
void dcache_stats(const struct dcache *c, struct dcache_stats *ret);
