/* cache.h - caches Discord's guilds, channels, threads, roles and members, and computes what a
 * member may do.
 *
 * Gateway events (dcache_dispatch) and REST answers (dcache_put_guild() and its like) fill the
 * cache.  The normalizer and the gate's visibility check read it.  The cache is bounded: beyond
 * their limits channels and members are evicted, least recently used first, and new guilds are not
 * kept.  A lookup of a missing entry answers "unknown".  Everything declared here is pure;
 * discord_priv.h declares the functions that ask Discord. */
#pragma once
#include "base/json.h"
#include "base/list.h"
#include "base/map.h"

/* Parses an id: Discord's ids are 64-bit numbers, sent as text.  0: not an id. */
uint64_t snowflake(struct str text);
uint64_t json_snowflake(struct json object, const char *key);

/* ---- permissions ---- */

#define PERM_ADMINISTRATOR (UINT64_C(1) << 3)
#define PERM_MANAGE_CHANNELS (UINT64_C(1) << 4)
#define PERM_MANAGE_GUILD (UINT64_C(1) << 5)
#define PERM_VIEW_CHANNEL (UINT64_C(1) << 10)
#define PERM_SEND_MESSAGES (UINT64_C(1) << 11)
#define PERM_READ_MESSAGE_HISTORY (UINT64_C(1) << 16)
#define PERM_MANAGE_THREADS (UINT64_C(1) << 34)
#define PERM_ALL UINT64_MAX

struct perm_role {
    uint64_t id, permissions;
    bool is_ours; /* the role that Discord made for this bot */
};

struct perm_overwrite {
    uint64_t id; /* of a role or a member */
    uint64_t allow, deny;
    bool is_member;
};

struct perm_question { /* arrays are borrowed for the call */
    uint64_t guild_id; /* also the id of the @everyone role */
    uint64_t owner_id, user_id;
    uint64_t everyone;             /* permissions of the @everyone role */
    const struct perm_role *roles; /* of this member; @everyone may be among them or not */
    size_t n_roles;
    const struct perm_overwrite *overwrites; /* of the channel */
    size_t n_overwrites;
    bool timed_out;
};

/* Discord's documented algorithm.  0 for a member who cannot see the channel.  For a thread the
 * caller passes the overwrites of its parent. */
uint64_t discord_permissions_of(const struct perm_question *q);

/* ---- the cache ---- */

/* Discord's numbers. */
enum channel_type {
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

struct dcache_guild {
    uint64_t id, owner_id;
    char *name;              /* owned */
    bool loaded;             /* roles and channels are complete */
    bool unavailable;        /* an outage on Discord's side */
    struct perm_role *roles; /* owned */
    size_t n_roles;
};

struct dcache_channel { /* threads too */
    uint64_t id, guild_id, parent_id;
    uint64_t last_message_id;          /* the newest in a channel object; 0: unknown */
    char *name, *topic;                /* owned; NULL: none */
    struct perm_overwrite *overwrites; /* owned */
    size_t n_overwrites;
    int type; /* enum channel_type, or a number Discord invents later */
    struct list lru;
};

struct dcache_member { /* from a message, an event of the socket or a REST answer */
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
    size_t max_thread_members; /* 100,000 pairs of a private thread and a member */
};

struct dcache *dcache_new(const struct dcache_limits *limits);
void dcache_free(struct dcache *c);
void dcache_set_bot(struct dcache *c,
                    uint64_t bot_user_id); /* so that its own role is recognised */

/* Applies one event of the socket.  False: the event is about nothing that the cache keeps. */
bool dcache_dispatch(struct dcache *c, struct str type, struct json d);

/* A guild object.  One from the socket has all channels; after a REST answer the caller puts the
 * channels one by one and then calls dcache_guild_loaded(). */
void dcache_put_guild(struct dcache *c, struct json guild);
void dcache_guild_loaded(struct dcache *c, uint64_t guild_id);
void dcache_put_channel(struct dcache *c, struct json channel, uint64_t guild_id);
/* @user_id: the member object inside a message does not name its user. */
void dcache_put_member(struct dcache *c, struct json member, uint64_t guild_id, uint64_t user_id);
/* dcache_put_member() from the parts of a member; does nothing without @roles. */
void dcache_note_member(struct dcache *c, uint64_t guild_id, uint64_t user_id, struct str nick,
                        struct json roles);
/* The person acted in this thread, so they see it.  Does nothing unless it is known to be a private
 * thread. */
void dcache_join_thread(struct dcache *c, uint64_t thread_id, uint64_t user_id);

/* NULL: unknown.  Borrowed until the next change. */
const struct dcache_guild *dcache_guild(const struct dcache *c, uint64_t id);
const struct dcache_channel *dcache_channel(struct dcache *c, uint64_t id);
const struct dcache_member *dcache_member(struct dcache *c, uint64_t guild_id, uint64_t user_id);

static inline bool discord_channel_is_thread(int type)
{
    return type >= CHANNEL_ANNOUNCEMENT_THREAD && type <= CHANNEL_PRIVATE_THREAD;
}

enum dcache_answer { DCACHE_NO, DCACHE_YES, DCACHE_UNKNOWN };
/* May this person see this channel?  A thread is visible like its channel; a private thread only to
 * its members and to people who manage threads.  UNKNOWN when the cache lacks a fact. */
enum dcache_answer dcache_can_view(struct dcache *c, uint64_t channel_id, uint64_t user_id);

/* This person's permissions in the guild or, for a @channel_id other than 0, in a channel.  0 when
 * the cache lacks a fact. */
uint64_t dcache_permissions(struct dcache *c, uint64_t guild_id, uint64_t channel_id,
                            uint64_t user_id);

struct dcache_stats {
    size_t guilds, channels, members, evicted;
};
void dcache_stats(const struct dcache *c, struct dcache_stats *ret);
