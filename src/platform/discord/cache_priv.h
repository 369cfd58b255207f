/* cache_priv.h - between cache.c and cache_members.c. */
#pragma once
#include "platform/discord/cache.h"

enum { DCACHE_MAX_ROLES = 1000, DCACHE_MAX_NAME = 128 };

struct dcache {
    struct dcache_limits limits;
    uint64_t bot_user_id;
    struct map guilds, channels, members, thread_members;   /* values owned */
    struct list channel_lru, member_lru, thread_member_lru; /* least recently used first */
    size_t evicted;
};

#define KEY_OF(k) str_make(&(k), sizeof(k))

char *dcache_dup_cut(struct str s, size_t max); /* at most @max bytes, cut between characters */

/* ---- cache_members.c ---- */
void dcache_members_free(struct dcache *c);
void dcache_put_members(struct dcache *c, struct json list, uint64_t guild_id);
void dcache_drop_member(struct dcache *c, uint64_t guild_id, uint64_t user_id);
void dcache_set_thread_member(struct dcache *c, uint64_t thread_id, uint64_t user_id, bool in);
bool dcache_is_in_thread(const struct dcache *c, uint64_t thread_id, uint64_t user_id);
void dcache_update_thread_members(struct dcache *c, struct json d); /* THREAD_MEMBERS_UPDATE */
