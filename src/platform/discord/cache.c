/* cache.c - design.  (cache.h has the contract.)
 *
 * Four tables: guilds, channels (threads too), members, and the members of private threads.  All
 * but the guilds have an LRU list.  Guilds are few, and Discord says when the bot leaves one, so
 * they are never evicted.  A lookup moves a channel or a member to the end of its list, so lookups
 * are not const. */
#include "platform/discord/cache.h"
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"
#include "platform/discord/discord_priv.h"

enum { MAX_ROLES = 1000, MAX_OVERWRITES = 1000, MAX_NAME = 128, MAX_TOPIC = 1024 };

struct dcache {
    struct dcache_limits limits;
    uint64_t bot_user_id;
    struct map guilds, channels, members, thread_members;   /* values owned */
    struct list channel_lru, member_lru, thread_member_lru; /* least recently used first */
    size_t evicted;
};

#define KEY_OF(k) str_make(&(k), sizeof(k))

struct thread_member {
    struct {
        uint64_t thread_id, user_id;
    } key;
    struct list lru;
};

/* ---- ids ---- */

/* Every message carries half a dozen ids, so this checks and converts eight digits at a time. */
uint64_t snowflake(struct str text)
{
    uint64_t id = 0, v;
    size_t at = 0;

    if (text.n > 19) /* an id that long would not fit into 63 bits */
        return str_to_u64(text, &id) ? id : 0;
    for (; at + 8 <= text.n; at += 8) {
        memcpy(&v, text.p + at, 8);
        v = le64toh(v) - 0x3030303030303030;
        if (((v + 0x7676767676767676) | v) & 0x8080808080808080)
            return 0; /* not a digit */
        v = v * 10 + (v >> 8);
        v = ((v & 0x000000ff000000ff) * 0x000f424000000064 +
             ((v >> 16) & 0x000000ff000000ff) * 0x0000271000000001) >>
            32;
        id = id * 100000000 + v;
    }
    for (; at < text.n; at++) {
        if (text.p[at] < '0' || text.p[at] > '9')
            return 0;
        id = id * 10 + (uint64_t)(text.p[at] - '0');
    }
    return id;
}

uint64_t json_snowflake(struct json object, const char *key)
{
    return snowflake(json_str(object, key));
}

/* ---- permissions, in the steps and the order of Discord's documentation ---- */

static bool has_role(const struct perm_question *q, uint64_t id)
{
    for (size_t i = 0; i < q->n_roles; i++)
        if (q->roles[i].id == id)
            return true;
    return false;
}

uint64_t discord_permissions_of(const struct perm_question *q)
{
    uint64_t may = q->everyone;

    for (size_t i = 0; i < q->n_roles; i++)
        may |= q->roles[i].permissions;
    if ((q->owner_id == q->user_id && q->user_id != 0) || (may & PERM_ADMINISTRATOR) != 0)
        return PERM_ALL;
    /* Overwrites for everyone apply first, then those of all roles together, then the member's own.
     * Each step denies before it allows, so of two roles of a member the one that allows wins. */
    struct perm_overwrite everyone = {0}, roles = {0}, member = {0};
    for (size_t i = 0; i < q->n_overwrites; i++) {
        const struct perm_overwrite *o = &q->overwrites[i];
        struct perm_overwrite *to = NULL;

        if (o->is_member)
            to = o->id == q->user_id ? &member : NULL;
        else if (o->id == q->guild_id)
            to = &everyone;
        else if (has_role(q, o->id))
            to = &roles;
        if (to == NULL)
            continue;
        to->allow |= o->allow;
        to->deny |= o->deny;
    }
    may = (may & ~everyone.deny) | everyone.allow;
    may = (may & ~roles.deny) | roles.allow;
    may = (may & ~member.deny) | member.allow;
    if (q->timed_out)
        may &= PERM_VIEW_CHANNEL | PERM_READ_MESSAGE_HISTORY;
    /* Without View Channel a member can do nothing in a channel. */
    return may & PERM_VIEW_CHANNEL ? may : 0;
}

/* ---- life ---- */

static int json_int(struct json object, const char *key, int otherwise)
{
    int64_t v;
    return json_as_i64(json_get(object, key), &v) && v >= 0 && v < 1000 ? (int)v : otherwise;
}

static char *dup_cut(struct str s, size_t max)
{
    if (s.p == NULL)
        return NULL;
    if (s.n > max)
        for (s.n = max; s.n > 0 && ((unsigned char)s.p[s.n] & 0xc0) == 0x80;)
            s.n--;
    return str_dup(s);
}

static size_t or_default(size_t v, size_t otherwise)
{
    return v != 0 ? v : otherwise;
}

struct dcache *dcache_new(const struct dcache_limits *limits)
{
    struct dcache *c = xcalloc(1, sizeof *c);
    struct dcache_limits l = limits != NULL ? *limits : (struct dcache_limits){0};

    c->limits =
        (struct dcache_limits){.max_guilds = or_default(l.max_guilds, 20000),
                               .max_channels = or_default(l.max_channels, 200000),
                               .max_members = or_default(l.max_members, 100000),
                               .max_thread_members = or_default(l.max_thread_members, 100000)};
    list_init(&c->channel_lru);
    list_init(&c->member_lru);
    list_init(&c->thread_member_lru);
    return c;
}

static void guild_free(struct dcache_guild *g)
{
    free(g->name);
    free(g->roles);
    free(g);
}

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

static void channel_free(struct dcache_channel *ch)
{
    list_remove(&ch->lru);
    free(ch->name);
    free(ch->topic);
    free(ch->overwrites);
    free(ch);
}

void dcache_free(struct dcache *c)
{
    void *v;

    if (c == NULL)
        return;
    for (size_t at = 0; map_next(&c->guilds, &at, &v);)
        guild_free(v);
    for (size_t at = 0; map_next(&c->channels, &at, &v);)
        channel_free(v);
    for (size_t at = 0; map_next(&c->members, &at, &v);)
        member_free(v);
    for (size_t at = 0; map_next(&c->thread_members, &at, &v);)
        thread_member_free(v);
    map_done(&c->guilds);
    map_done(&c->channels);
    map_done(&c->members);
    map_done(&c->thread_members);
    free(c);
}

void dcache_set_bot(struct dcache *c, uint64_t bot_user_id)
{
    c->bot_user_id = bot_user_id;
}

/* ---- looking up ---- */

const struct dcache_guild *dcache_guild(const struct dcache *c, uint64_t id)
{
    return map_get(&c->guilds, KEY_OF(id));
}

const struct dcache_channel *dcache_channel(struct dcache *c, uint64_t id)
{
    struct dcache_channel *ch = map_get(&c->channels, KEY_OF(id));

    if (ch != NULL)
        list_move(&ch->lru, &c->channel_lru);
    return ch;
}

/* ---- roles ---- */

static void role_read(const struct dcache *c, struct json role, struct perm_role *to)
{
    uint64_t bot = json_snowflake(json_get(role, "tags"), "bot_id");

    *to = (struct perm_role){.id = json_snowflake(role, "id"),
                             .permissions = json_snowflake(role, "permissions"),
                             .is_ours = bot != 0 && bot == c->bot_user_id};
}

static void guild_set_roles(const struct dcache *c, struct dcache_guild *g, struct json roles)
{
    if (json_type(roles) != JSON_ARRAY)
        return;
    size_t n = json_count(roles);
    g->roles = xrealloc(g->roles, (n > 0 ? n : 1) * sizeof *g->roles);
    g->n_roles = 0;
    for (struct json_iter it = {0}; json_next(roles, &it) && g->n_roles < MAX_ROLES;)
        role_read(c, it.value, &g->roles[g->n_roles++]);
}

static struct perm_role *guild_role(const struct dcache_guild *g, uint64_t id)
{
    for (size_t i = 0; i < g->n_roles; i++)
        if (g->roles[i].id == id)
            return &g->roles[i];
    return NULL;
}

static void put_role(struct dcache *c, struct json d)
{
    uint64_t guild_id = json_snowflake(d, "guild_id");
    struct dcache_guild *g = map_get(&c->guilds, KEY_OF(guild_id));
    struct json role = json_get(d, "role");

    if (g == NULL || json_snowflake(role, "id") == 0)
        return;
    struct perm_role *r = guild_role(g, json_snowflake(role, "id"));
    if (r == NULL && g->n_roles >= MAX_ROLES)
        return;
    if (r == NULL) {
        g->roles = xrealloc(g->roles, (g->n_roles + 1) * sizeof *g->roles);
        r = &g->roles[g->n_roles++];
    }
    role_read(c, role, r);
}

static void del_role(struct dcache *c, struct json d)
{
    uint64_t guild_id = json_snowflake(d, "guild_id");
    struct dcache_guild *g = map_get(&c->guilds, KEY_OF(guild_id));
    struct perm_role *r = g != NULL ? guild_role(g, json_snowflake(d, "role_id")) : NULL;

    if (r != NULL)
        *r = g->roles[--g->n_roles];
}

/* ---- channels ---- */

static void channel_set_overwrites(struct dcache_channel *ch, struct json list)
{
    if (json_type(list) != JSON_ARRAY)
        return;
    size_t n = json_count(list);
    ch->overwrites = xrealloc(ch->overwrites, (n > 0 ? n : 1) * sizeof *ch->overwrites);
    ch->n_overwrites = 0;
    for (struct json_iter it = {0}; json_next(list, &it) && ch->n_overwrites < MAX_OVERWRITES;)
        ch->overwrites[ch->n_overwrites++] =
            (struct perm_overwrite){.id = json_snowflake(it.value, "id"),
                                    .allow = json_snowflake(it.value, "allow"),
                                    .deny = json_snowflake(it.value, "deny"),
                                    .is_member = json_int(it.value, "type", 0) == 1};
}

static void drop_channel(struct dcache *c, uint64_t id)
{
    struct dcache_channel *ch = map_del(&c->channels, KEY_OF(id));

    if (ch != NULL)
        channel_free(ch);
}

void dcache_put_channel(struct dcache *c, struct json d, uint64_t guild_id)
{
    uint64_t id = json_snowflake(d, "id"), last = json_snowflake(d, "last_message_id");

    if (id == 0)
        return;
    struct dcache_channel *ch = map_get(&c->channels, KEY_OF(id));
    if (ch == NULL) {
        if (map_count(&c->channels) >= c->limits.max_channels) {
            drop_channel(c, list_first(&c->channel_lru, struct dcache_channel, lru)->id);
            c->evicted++;
        }
        ch = xcalloc(1, sizeof *ch);
        ch->id = id;
        map_put(&c->channels, KEY_OF(ch->id), ch);
    }
    ch->guild_id = guild_id != 0 ? guild_id : json_snowflake(d, "guild_id");
    ch->parent_id = json_snowflake(d, "parent_id");
    ch->type = json_int(d, "type", CHANNEL_TEXT);
    if (last > ch->last_message_id)
        ch->last_message_id = last;
    free(ch->name);
    free(ch->topic);
    ch->name = dup_cut(json_str(d, "name"), MAX_NAME);
    ch->topic = dup_cut(json_str(d, "topic"), MAX_TOPIC);
    channel_set_overwrites(ch, json_get(d, "permission_overwrites"));
    list_move(&ch->lru, &c->channel_lru);
}

static void put_channels(struct dcache *c, struct json list, uint64_t guild_id)
{
    for (struct json_iter it = {0}; json_next(list, &it);)
        dcache_put_channel(c, it.value, guild_id);
}

/* THREAD_LIST_SYNC replaces all threads of the named parents, or of the whole guild. */
static void sync_threads(struct dcache *c, struct json d)
{
    uint64_t guild_id = json_snowflake(d, "guild_id");
    struct json parents = json_get(d, "channel_ids");
    void *v;

    for (size_t at = 0; map_next(&c->channels, &at, &v);) {
        struct dcache_channel *ch = v;
        bool synced = json_type(parents) != JSON_ARRAY;

        if (ch->guild_id != guild_id || !discord_channel_is_thread(ch->type))
            continue;
        for (struct json_iter it = {0}; !synced && json_next(parents, &it);)
            synced = snowflake(json_as_str(it.value)) == ch->parent_id;
        if (synced)
            drop_channel(c, ch->id);
    }
    put_channels(c, json_get(d, "threads"), guild_id);
}

/* ---- members ---- */

const struct dcache_member *dcache_member(struct dcache *c, uint64_t guild_id, uint64_t user_id)
{
    uint64_t key[2] = {guild_id, user_id};
    struct dcache_member *m = map_get(&c->members, KEY_OF(key));

    if (m != NULL)
        list_move(&m->lru, &c->member_lru);
    return m;
}

static void drop_member(struct dcache *c, uint64_t guild_id, uint64_t user_id)
{
    uint64_t key[2] = {guild_id, user_id};
    struct dcache_member *m = map_del(&c->members, KEY_OF(key));

    if (m != NULL)
        member_free(m);
}

void dcache_put_member(struct dcache *c, struct json d, uint64_t guild_id, uint64_t user_id)
{
    dcache_note_member(c, guild_id, user_id, json_str(d, "nick"), json_get(d, "roles"));
}

void dcache_note_member(struct dcache *c, uint64_t guild_id, uint64_t user_id, struct str nick,
                        struct json roles)
{
    const uint64_t key[2] = {guild_id, user_id};
    size_t n = json_count(roles);

    if (guild_id == 0 || user_id == 0 || json_type(roles) != JSON_ARRAY || n > MAX_ROLES)
        return;
    struct dcache_member *m = map_get(&c->members, KEY_OF(key));
    if (m == NULL) {
        if (map_count(&c->members) >= c->limits.max_members) {
            struct dcache_member *old = list_first(&c->member_lru, struct dcache_member, lru);
            drop_member(c, old->key.guild_id, old->key.user_id);
            c->evicted++;
        }
        m = xcalloc(1, sizeof *m);
        m->key.guild_id = guild_id;
        m->key.user_id = user_id;
        map_put(&c->members, KEY_OF(m->key), m);
    }
    list_move(&m->lru, &c->member_lru);
    if (!str_eq(nick, str_of(m->nick))) {
        free(m->nick);
        m->nick = nick.n > 0 ? dup_cut(nick, MAX_NAME) : NULL;
    }
    bool same = n == m->n_roles;
    size_t at = 0;
    for (struct json_iter it = {0}; same && json_next(roles, &it); at++)
        same = snowflake(json_as_str(it.value)) == m->roles[at];
    if (same)
        return; /* the usual case: every message carries the author's roles */
    m->roles = xrealloc(m->roles, (n + 1) * sizeof *m->roles);
    m->n_roles = 0;
    for (struct json_iter it = {0}; json_next(roles, &it);)
        m->roles[m->n_roles++] = snowflake(json_as_str(it.value));
}

/* Kept for private threads only, where membership decides who may see. */
static void set_thread_member(struct dcache *c, uint64_t thread_id, uint64_t user_id, bool in)
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
    list_append(&c->thread_member_lru, &t->lru);
    map_put(&c->thread_members, KEY_OF(t->key), t);
}

void dcache_join_thread(struct dcache *c, uint64_t thread_id, uint64_t user_id)
{
    const struct dcache_channel *ch = dcache_channel(c, thread_id);

    if (ch != NULL && ch->type == CHANNEL_PRIVATE_THREAD)
        set_thread_member(c, thread_id, user_id, true);
}

static void update_thread_members(struct dcache *c, struct json d)
{
    uint64_t id = json_snowflake(d, "id"), guild_id = json_snowflake(d, "guild_id");

    for (struct json_iter it = {0}; json_next(json_get(d, "added_members"), &it);) {
        uint64_t user_id = json_snowflake(it.value, "user_id");
        set_thread_member(c, id, user_id, true);
        dcache_put_member(c, json_get(it.value, "member"), guild_id, user_id);
    }
    for (struct json_iter it = {0}; json_next(json_get(d, "removed_member_ids"), &it);)
        set_thread_member(c, id, snowflake(json_as_str(it.value)), false);
}

/* ---- guilds ---- */

void dcache_put_guild(struct dcache *c, struct json d)
{
    uint64_t id = json_snowflake(d, "id");
    struct dcache_guild *g = map_get(&c->guilds, KEY_OF(id));

    if (id == 0 || (g == NULL && map_count(&c->guilds) >= c->limits.max_guilds))
        return;
    if (g == NULL) {
        g = xcalloc(1, sizeof *g);
        g->id = id;
        map_put(&c->guilds, KEY_OF(g->id), g);
    }
    g->unavailable = json_as_bool(json_get(d, "unavailable"), false);
    if (g->unavailable)
        return;
    if (json_str(d, "name").p != NULL) {
        free(g->name);
        g->name = dup_cut(json_str(d, "name"), MAX_NAME);
    }
    if (json_snowflake(d, "owner_id") != 0)
        g->owner_id = json_snowflake(d, "owner_id");
    guild_set_roles(c, g, json_get(d, "roles"));
    put_channels(c, json_get(d, "channels"), id);
    put_channels(c, json_get(d, "threads"), id);
    for (struct json_iter it = {0}; json_next(json_get(d, "members"), &it);)
        dcache_put_member(c, it.value, id, json_snowflake(json_get(it.value, "user"), "id"));
    if (json_type(json_get(d, "channels")) == JSON_ARRAY)
        g->loaded = true;
}

void dcache_guild_loaded(struct dcache *c, uint64_t guild_id)
{
    struct dcache_guild *g = map_get(&c->guilds, KEY_OF(guild_id));

    if (g != NULL)
        g->loaded = true;
}

static void delete_guild(struct dcache *c, struct json d)
{
    uint64_t id = json_snowflake(d, "id");
    struct dcache_guild *g = map_get(&c->guilds, KEY_OF(id));
    void *v;

    if (g == NULL)
        return;
    if (json_as_bool(json_get(d, "unavailable"), false)) {
        g->unavailable = true; /* an outage: the guild comes back as it was */
        return;
    }
    map_del(&c->guilds, KEY_OF(id));
    guild_free(g);
    for (size_t at = 0; map_next(&c->channels, &at, &v);)
        if (((struct dcache_channel *)v)->guild_id == id)
            drop_channel(c, ((struct dcache_channel *)v)->id);
    for (size_t at = 0; map_next(&c->members, &at, &v);)
        if (((struct dcache_member *)v)->key.guild_id == id)
            drop_member(c, id, ((struct dcache_member *)v)->key.user_id);
}

/* ---- events ---- */

static void put_channel_event(struct dcache *c, struct json d)
{
    dcache_put_channel(c, d, 0);
}

static void put_thread_event(struct dcache *c, struct json d)
{
    dcache_put_channel(c, d, 0);
    if (json_is_object(json_get(d, "member")))
        set_thread_member(c, json_snowflake(d, "id"), c->bot_user_id, true);
}

static void del_channel_event(struct dcache *c, struct json d)
{
    drop_channel(c, json_snowflake(d, "id"));
}

static void put_member_event(struct dcache *c, struct json d)
{
    dcache_put_member(c, d, json_snowflake(d, "guild_id"),
                      json_snowflake(json_get(d, "user"), "id"));
}

static void del_member_event(struct dcache *c, struct json d)
{
    drop_member(c, json_snowflake(d, "guild_id"), json_snowflake(json_get(d, "user"), "id"));
}

bool dcache_dispatch(struct dcache *c, struct str type, struct json d)
{
    static const struct {
        struct str type;
        void (*apply)(struct dcache *c, struct json d);
    } table[] = {
        {STR("GUILD_CREATE"), dcache_put_guild},
        {STR("GUILD_UPDATE"), dcache_put_guild},
        {STR("GUILD_DELETE"), delete_guild},
        {STR("GUILD_ROLE_CREATE"), put_role},
        {STR("GUILD_ROLE_UPDATE"), put_role},
        {STR("GUILD_ROLE_DELETE"), del_role},
        {STR("CHANNEL_CREATE"), put_channel_event},
        {STR("CHANNEL_UPDATE"), put_channel_event},
        {STR("CHANNEL_DELETE"), del_channel_event},
        {STR("THREAD_CREATE"), put_thread_event},
        {STR("THREAD_UPDATE"), put_channel_event},
        {STR("THREAD_DELETE"), del_channel_event},
        {STR("THREAD_LIST_SYNC"), sync_threads},
        {STR("THREAD_MEMBERS_UPDATE"), update_thread_members},
        {STR("GUILD_MEMBER_ADD"), put_member_event},
        {STR("GUILD_MEMBER_UPDATE"), put_member_event},
        {STR("GUILD_MEMBER_REMOVE"), del_member_event},
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (str_eq(type, table[i].type)) {
            table[i].apply(c, d);
            return true;
        }
    return false;
}

/* ---- computing permissions ---- */

static uint64_t permissions_of(const struct dcache_guild *g, const struct dcache_channel *ch,
                               const struct dcache_member *m, uint64_t user_id)
{
    struct perm_role roles[MAX_ROLES];
    struct perm_question q = {.guild_id = g->id,
                              .owner_id = g->owner_id,
                              .user_id = user_id,
                              .everyone = guild_role(g, g->id)->permissions,
                              .roles = roles,
                              .overwrites = ch != NULL ? ch->overwrites : NULL,
                              .n_overwrites = ch != NULL ? ch->n_overwrites : 0};
    for (size_t i = 0; i < m->n_roles; i++) {
        const struct perm_role *r = guild_role(g, m->roles[i]);
        if (r != NULL)
            roles[q.n_roles++] = *r;
    }
    return discord_permissions_of(&q);
}

uint64_t dcache_permissions(struct dcache *c, uint64_t guild_id, uint64_t channel_id,
                            uint64_t user_id)
{
    const struct dcache_guild *g = dcache_guild(c, guild_id);
    const struct dcache_channel *ch = channel_id != 0 ? dcache_channel(c, channel_id) : NULL;
    const struct dcache_member *m = g != NULL ? dcache_member(c, guild_id, user_id) : NULL;

    if (m == NULL || !g->loaded || g->unavailable || guild_role(g, g->id) == NULL ||
        (channel_id != 0 && (ch == NULL || ch->guild_id != guild_id)))
        return 0;
    return permissions_of(g, ch, m, user_id);
}

enum dcache_answer dcache_can_view(struct dcache *c, uint64_t channel_id, uint64_t user_id)
{
    const struct dcache_channel *thread = NULL, *ch = dcache_channel(c, channel_id);

    if (ch != NULL && discord_channel_is_thread(ch->type)) {
        thread = ch;
        ch = dcache_channel(c, thread->parent_id);
    }
    const struct dcache_guild *g = ch != NULL ? dcache_guild(c, ch->guild_id) : NULL;
    const struct dcache_member *m = g != NULL ? dcache_member(c, g->id, user_id) : NULL;
    if (m == NULL || !g->loaded || g->unavailable || guild_role(g, g->id) == NULL)
        return DCACHE_UNKNOWN;

    uint64_t may = permissions_of(g, ch, m, user_id);
    if ((may & PERM_VIEW_CHANNEL) == 0)
        return DCACHE_NO;
    if (thread == NULL || thread->type != CHANNEL_PRIVATE_THREAD || (may & PERM_MANAGE_THREADS))
        return DCACHE_YES;
    uint64_t key[2] = {thread->id, user_id};
    return map_get(&c->thread_members, KEY_OF(key)) != NULL ? DCACHE_YES : DCACHE_UNKNOWN;
}

void dcache_stats(const struct dcache *c, struct dcache_stats *ret)
{
    *ret = (struct dcache_stats){.guilds = map_count(&c->guilds),
                                 .channels = map_count(&c->channels),
                                 .members = map_count(&c->members),
                                 .evicted = c->evicted};
}

/* ---- sees() and manages() of the platform, and the members that they read over REST ----
 *
 * A member who has not been read yet may see nothing.  Discord announces changed roles, and who
 * joins or leaves a thread, only to bots with a privileged intent.  So a lookup reads the member
 * again when the last read is older than REFRESH_MS; for a private thread the member of the thread
 * too. */

enum { REFRESH_MS = 300000, MAX_WATCHED = 10000, REFRESH_PATIENCE_MS = 15000 };

struct watched_member {         /* a member whose roles are refreshed by lookups */
    struct lru_entry lru;       /* @place_id and @user_id */
    uint64_t place_id, user_id; /* of a guild, or of a private thread */
    uint64_t guild_id;
    bool known;            /* Discord has answered */
    struct discord *d;     /* borrowed */
    struct outgoing *call; /* the request in flight, or NULL */
    int64_t asked_ms;      /* monotonic */
};

static void watched_free(struct lru *l, void *entry)
{
    sender_cancel(&((struct watched_member *)entry)->call);
}

void discord_watched_init(struct discord *d)
{
    d->watched.max = MAX_WATCHED;
    d->watched.free = watched_free;
}

static void on_member(void *ctx, const struct sender_verdict *v)
{
    struct watched_member *s = ctx;
    char guild[24];

    bool gone = v->end == SENDER_REFUSED && v->status == 404;
    s->call = NULL;
    s->known = v->end == SENDER_DONE || gone;
    if (s->place_id != s->guild_id && (v->end == SENDER_DONE || gone))
        set_thread_member(s->d->cache, s->place_id, s->user_id, !gone);
    else if (s->place_id == s->guild_id && v->end == SENDER_DONE)
        dcache_put_member(s->d->cache, v->answer, s->guild_id, s->user_id);
    else if (s->place_id == s->guild_id && gone)
        drop_member(s->d->cache, s->guild_id, s->user_id);
    snprintf(guild, sizeof guild, "%" PRIu64, s->guild_id);
    host_sight(s->d->base.host, &s->d->base, str_of(guild)); /* may evict @s */
}

static void refresh(struct watched_member *s)
{
    bool thread = s->place_id != s->guild_id;
    char path[80];

    snprintf(path, sizeof path, "/%s/%" PRIu64 "/%s/%" PRIu64, thread ? "channels" : "guilds",
             s->place_id, thread ? "thread-members" : "members", s->user_id);
    s->asked_ms = clock_now_ms(s->d->base.env->clock);
    s->call = discord_ask(s->d,
                          &(struct discord_question){.route = thread ? "thread member" : "member",
                                                     .major = s->place_id,
                                                     .path = str_of(path),
                                                     .lane = thread ? STR("thread members")
                                                                    : STR("members"),
                                                     .patience_ms = REFRESH_PATIENCE_MS},
                          on_member, s);
}

/* Returns true while a request about the member is in flight.  @thread_id 0: of the guild. */
static bool keep_fresh(struct discord *d, uint64_t guild_id, uint64_t thread_id, uint64_t user_id)
{
    uint64_t key[2] = {thread_id != 0 ? thread_id : guild_id, user_id};
    struct watched_member *s = lru_use(&d->watched, KEY_OF(key), sizeof *s);
    bool fresh = s->d == NULL;

    s->place_id = key[0];
    s->user_id = user_id;
    s->guild_id = guild_id;
    s->d = d;
    if (s->call == NULL && (fresh || clock_now_ms(d->base.env->clock) - s->asked_ms >= REFRESH_MS))
        refresh(s);
    return s->call != NULL;
}

/* Is it known whether the person is a member of the private thread? */
static bool knows_of(const struct discord *d, uint64_t thread_id, uint64_t user_id)
{
    uint64_t key[2] = {thread_id, user_id};
    const struct watched_member *s = lru_find(&d->watched, KEY_OF(key));

    return s != NULL && s->known;
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
        return GATE_UNSEEN; /* the channel is in another guild than the event says */
    bool asked = keep_fresh(d, ch->guild_id, 0, user_id);
    enum dcache_answer view = dcache_can_view(d->cache, channel_id, user_id);
    if (ch->type == CHANNEL_PRIVATE_THREAD && view != DCACHE_NO)
        asked |= keep_fresh(d, ch->guild_id, channel_id, user_id);
    const struct dcache_guild *g =
        view == DCACHE_UNKNOWN ? dcache_guild(d->cache, ch->guild_id) : NULL;
    if (view == DCACHE_UNKNOWN && (g == NULL || !g->loaded)) {
        discord_load_guild(d, ch->guild_id); /* after a resumed session it is not known */
        asked = true;
    }
    if (view == DCACHE_YES && ev->looks_back) {
        uint64_t place = discord_channel_is_thread(ch->type) ? ch->parent_id : ch->id;
        uint64_t may = dcache_permissions(d->cache, ch->guild_id, place, user_id);
        view = may & PERM_READ_MESSAGE_HISTORY ? DCACHE_YES : DCACHE_NO;
    }
    if (view == DCACHE_UNKNOWN && !asked && knows_of(d, channel_id, user_id))
        return GATE_UNSEEN;
    if (view == DCACHE_UNKNOWN)
        return asked ? GATE_SIGHT_ASKED : GATE_SIGHT_UNKNOWN;
    return view == DCACHE_YES ? GATE_SEEN : GATE_UNSEEN;
}

bool discord_manages(struct platform *p, struct str guild, struct str channel, struct str user)
{
    struct discord *d = discord_of(p);
    uint64_t guild_id = snowflake(guild), user_id = snowflake(user);
    bool whole = str_eq(channel, STR("*"));
    uint64_t channel_id = whole ? 0 : snowflake(channel);

    if (guild_id == 0 || user_id == 0 || (!whole && channel_id == 0))
        return false;
    keep_fresh(d, guild_id, 0, user_id);
    uint64_t may = dcache_permissions(d->cache, guild_id, channel_id, user_id);
    return (may & (whole ? PERM_MANAGE_GUILD : PERM_MANAGE_GUILD | PERM_MANAGE_CHANNELS)) != 0;
}

struct str discord_home(struct platform *p, struct str chat, char room[32])
{
    struct discord *d = discord_of(p);
    uint64_t id = snowflake(chat);
    const struct dcache_channel *ch =
        d->cfg->auto_thread && id != 0 ? dcache_channel(d->cache, id) : NULL;

    if (ch == NULL || !discord_channel_is_thread(ch->type) || ch->parent_id == 0)
        return STR_NULL;
    snprintf(room, 32, "%" PRIu64, ch->parent_id);
    return str_of(room);
}
