/* cache_members.c - members of guilds and of private threads.  (cache.h has the contract.)
 *
 * Who is in a thread is kept only for private threads, where it decides who may see. */
#include <stdlib.h>
#include "base/mem.h"
#include "platform/discord/cache_priv.h"

struct thread_member {
    struct {
        uint64_t thread_id, user_id;
    } key;
    struct list lru;
};

static void member_free(struct dcache_member *m)
{
    list_remove(&m->lru);
    free(m->nick);
    free(m->roles);
    free(m);
}

static void thread_member_free(struct thread_member *t)
{
    list_remove(&t->lru);
    free(t);
}

void dcache_members_free(struct dcache *c)
{
    void *v;

    for (size_t at = 0; map_next(&c->members, &at, &v);)
        member_free(v);
    for (size_t at = 0; map_next(&c->thread_members, &at, &v);)
        thread_member_free(v);
    map_done(&c->members);
    map_done(&c->thread_members);
}

const struct dcache_member *dcache_member(struct dcache *c, uint64_t guild_id, uint64_t user_id)
{
    uint64_t key[2] = {guild_id, user_id};
    struct dcache_member *m = map_get(&c->members, KEY_OF(key));

    if (m != NULL)
        list_move(&m->lru, &c->member_lru);
    return m;
}

void dcache_drop_member(struct dcache *c, uint64_t guild_id, uint64_t user_id)
{
    uint64_t key[2] = {guild_id, user_id};
    struct dcache_member *m = map_del(&c->members, KEY_OF(key));

    if (m != NULL)
        member_free(m);
}

static struct dcache_member *get_or_add_member(struct dcache *c, uint64_t guild_id,
                                               uint64_t user_id)
{
    uint64_t key[2] = {guild_id, user_id};
    struct dcache_member *m = map_get(&c->members, KEY_OF(key));

    if (m != NULL)
        return m;
    if (map_count(&c->members) >= c->limits.max_members) {
        struct dcache_member *old = list_first(&c->member_lru, struct dcache_member, lru);
        dcache_drop_member(c, old->key.guild_id, old->key.user_id);
        c->evicted++;
    }
    m = xcalloc(1, sizeof *m);
    m->key.guild_id = guild_id;
    m->key.user_id = user_id;
    list_init(&m->lru);
    map_put(&c->members, KEY_OF(m->key), m);
    return m;
}

static bool same_roles(const struct dcache_member *m, struct json roles)
{
    size_t i = 0;

    if (json_count(roles) != m->n_roles)
        return false;
    for (struct json_iter it = {0}; json_next(roles, &it); i++)
        if (snowflake(json_as_str(it.value)) != m->roles[i])
            return false;
    return true;
}

void dcache_put_member(struct dcache *c, struct json d, uint64_t guild_id, uint64_t user_id)
{
    dcache_note_member(c, guild_id, user_id, json_str(d, "nick"), json_get(d, "roles"));
}

void dcache_note_member(struct dcache *c, uint64_t guild_id, uint64_t user_id, struct str nick,
                        struct json roles)
{
    if (guild_id == 0 || user_id == 0 || json_type(roles) != JSON_ARRAY ||
        json_count(roles) > DCACHE_MAX_ROLES)
        return;
    struct dcache_member *m = get_or_add_member(c, guild_id, user_id);
    list_move(&m->lru, &c->member_lru);
    if (!str_eq(nick, str_of(m->nick))) {
        free(m->nick);
        m->nick = nick.n > 0 ? dcache_dup_cut(nick, DCACHE_MAX_NAME) : NULL;
    }
    if (same_roles(m, roles))
        return; /* every message carries them, they hardly ever change */
    m->roles = xrealloc(m->roles, (json_count(roles) + 1) * sizeof *m->roles);
    m->n_roles = 0;
    for (struct json_iter it = {0}; json_next(roles, &it);)
        m->roles[m->n_roles++] = snowflake(json_as_str(it.value));
}

void dcache_put_members(struct dcache *c, struct json list, uint64_t guild_id)
{
    for (struct json_iter it = {0}; json_next(list, &it);)
        dcache_put_member(c, it.value, guild_id, json_snowflake(json_get(it.value, "user"), "id"));
}

/* ---- private threads ---- */

void dcache_set_thread_member(struct dcache *c, uint64_t thread_id, uint64_t user_id, bool in)
{
    uint64_t key[2] = {thread_id, user_id};
    struct thread_member *t = map_get(&c->thread_members, KEY_OF(key));

    if (t != NULL && in)
        list_move(&t->lru, &c->thread_member_lru);
    if (t != NULL && !in) {
        map_del(&c->thread_members, KEY_OF(key));
        thread_member_free(t);
    }
    if (t != NULL || !in || thread_id == 0 || user_id == 0)
        return;
    if (map_count(&c->thread_members) >= c->limits.max_thread_members) {
        struct thread_member *old = list_first(&c->thread_member_lru, struct thread_member, lru);
        map_del(&c->thread_members, KEY_OF(old->key));
        thread_member_free(old);
        c->evicted++;
    }
    t = xcalloc(1, sizeof *t);
    t->key.thread_id = thread_id;
    t->key.user_id = user_id;
    list_init(&t->lru);
    list_append(&c->thread_member_lru, &t->lru);
    map_put(&c->thread_members, KEY_OF(t->key), t);
}

bool dcache_is_in_thread(const struct dcache *c, uint64_t thread_id, uint64_t user_id)
{
    uint64_t key[2] = {thread_id, user_id};

    return map_get(&c->thread_members, KEY_OF(key)) != NULL;
}

void dcache_update_thread_members(struct dcache *c, struct json d)
{
    uint64_t id = json_snowflake(d, "id"), guild_id = json_snowflake(d, "guild_id");

    for (struct json_iter it = {0}; json_next(json_get(d, "added_members"), &it);) {
        uint64_t user_id = json_snowflake(it.value, "user_id");
        dcache_set_thread_member(c, id, user_id, true);
        dcache_put_member(c, json_get(it.value, "member"), guild_id, user_id);
    }
    for (struct json_iter it = {0}; json_next(json_get(d, "removed_member_ids"), &it);)
        dcache_set_thread_member(c, id, snowflake(json_as_str(it.value)), false);
}
