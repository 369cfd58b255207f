/* cache.c - design.  (cache.h has the contract.)
 *
 * Three tables keyed by id, two of them with a list by last use beside them.  Guilds are not
 * forgotten by age: they are few, and Discord tells when one is gone.  Reading touches an entry, so
 * looking up is not const for channels and members. */
#include <stdlib.h>
#include "base/mem.h"
#include "platform/discord/cache_priv.h"

enum { MAX_OVERWRITES = 1000, MAX_TOPIC = 1024 };

/* ---- small readers ---- */

static int json_int(struct json object, const char *key, int otherwise)
{
    int64_t v;
    return json_as_i64(json_get(object, key), &v) && v >= 0 && v < 1000 ? (int)v : otherwise;
}

char *dcache_dup_cut(struct str s, size_t max)
{
    if (s.p == NULL)
        return NULL;
    if (s.n > max)
        for (s.n = max; s.n > 0 && ((unsigned char)s.p[s.n] & 0xc0) == 0x80;)
            s.n--;
    return str_dup(s);
}

/* ---- life ---- */

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
    dcache_members_free(c);
    map_done(&c->guilds);
    map_done(&c->channels);
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

static void role_read(const struct dcache *c, struct json role, struct dcache_role *to)
{
    uint64_t bot = json_snowflake(json_get(role, "tags"), "bot_id");

    *to = (struct dcache_role){.id = json_snowflake(role, "id"),
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
    for (struct json_iter it = {0}; json_next(roles, &it) && g->n_roles < DCACHE_MAX_ROLES;)
        role_read(c, it.value, &g->roles[g->n_roles++]);
}

static struct dcache_role *guild_role(const struct dcache_guild *g, uint64_t id)
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
    struct dcache_role *r = guild_role(g, json_snowflake(role, "id"));
    if (r == NULL && g->n_roles >= DCACHE_MAX_ROLES)
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
    struct dcache_role *r = g != NULL ? guild_role(g, json_snowflake(d, "role_id")) : NULL;

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

static struct dcache_channel *get_or_add_channel(struct dcache *c, uint64_t id)
{
    struct dcache_channel *ch = map_get(&c->channels, KEY_OF(id));

    if (ch != NULL)
        return ch;
    if (map_count(&c->channels) >= c->limits.max_channels) {
        drop_channel(c, list_first(&c->channel_lru, struct dcache_channel, lru)->id);
        c->evicted++;
    }
    ch = xcalloc(1, sizeof *ch);
    ch->id = id;
    list_init(&ch->lru);
    map_put(&c->channels, KEY_OF(ch->id), ch);
    return ch;
}

void dcache_put_channel(struct dcache *c, struct json d, uint64_t guild_id)
{
    uint64_t id = json_snowflake(d, "id"), last = json_snowflake(d, "last_message_id");

    if (id == 0)
        return;
    struct dcache_channel *ch = get_or_add_channel(c, id);
    ch->guild_id = guild_id != 0 ? guild_id : json_snowflake(d, "guild_id");
    ch->parent_id = json_snowflake(d, "parent_id");
    ch->type = json_int(d, "type", CHANNEL_TEXT);
    if (last > ch->last_message_id)
        ch->last_message_id = last;
    free(ch->name);
    free(ch->topic);
    ch->name = dcache_dup_cut(json_str(d, "name"), DCACHE_MAX_NAME);
    ch->topic = dcache_dup_cut(json_str(d, "topic"), MAX_TOPIC);
    channel_set_overwrites(ch, json_get(d, "permission_overwrites"));
    list_move(&ch->lru, &c->channel_lru);
}

static void put_channels(struct dcache *c, struct json list, uint64_t guild_id)
{
    for (struct json_iter it = {0}; json_next(list, &it);)
        dcache_put_channel(c, it.value, guild_id);
}

/* Threads of these parents (0: of the whole guild) that are not in the new list are over. */
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

/* ---- guilds ---- */

static void drop_guild(struct dcache *c, uint64_t id)
{
    struct dcache_guild *g = map_del(&c->guilds, KEY_OF(id));
    void *v;

    if (g == NULL)
        return;
    guild_free(g);
    for (size_t at = 0; map_next(&c->channels, &at, &v);)
        if (((struct dcache_channel *)v)->guild_id == id)
            drop_channel(c, ((struct dcache_channel *)v)->id);
    for (size_t at = 0; map_next(&c->members, &at, &v);)
        if (((struct dcache_member *)v)->key.guild_id == id)
            dcache_drop_member(c, id, ((struct dcache_member *)v)->key.user_id);
}

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
        g->name = dcache_dup_cut(json_str(d, "name"), DCACHE_MAX_NAME);
    }
    if (json_snowflake(d, "owner_id") != 0)
        g->owner_id = json_snowflake(d, "owner_id");
    guild_set_roles(c, g, json_get(d, "roles"));
    put_channels(c, json_get(d, "channels"), id);
    put_channels(c, json_get(d, "threads"), id);
    dcache_put_members(c, json_get(d, "members"), id);
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

    if (g != NULL && json_as_bool(json_get(d, "unavailable"), false))
        g->unavailable = true; /* an outage: it comes back as it was */
    else
        drop_guild(c, id);
}

/* ---- gateway events ---- */

static void put_channel_event(struct dcache *c, struct json d)
{
    dcache_put_channel(c, d, 0);
}

static void put_thread_event(struct dcache *c, struct json d)
{
    dcache_put_channel(c, d, 0);
    if (json_is_object(json_get(d, "member")))
        dcache_set_thread_member(c, json_snowflake(d, "id"), c->bot_user_id, true);
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
    dcache_drop_member(c, json_snowflake(d, "guild_id"), json_snowflake(json_get(d, "user"), "id"));
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
        {STR("THREAD_MEMBERS_UPDATE"), dcache_update_thread_members},
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

/* ---- who may see ---- */

static uint64_t permissions_of(const struct dcache_guild *g, const struct dcache_channel *ch,
                               const struct dcache_member *m, uint64_t user_id)
{
    struct perm_role roles[DCACHE_MAX_ROLES];
    struct perm_question q = {.guild_id = g->id,
                              .owner_id = g->owner_id,
                              .user_id = user_id,
                              .everyone = guild_role(g, g->id)->permissions,
                              .roles = roles,
                              .overwrites = ch != NULL ? ch->overwrites : NULL,
                              .n_overwrites = ch != NULL ? ch->n_overwrites : 0};
    for (size_t i = 0; i < m->n_roles; i++) {
        const struct dcache_role *r = guild_role(g, m->roles[i]);
        if (r != NULL)
            roles[q.n_roles++] = (struct perm_role){r->id, r->permissions};
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
    return dcache_is_in_thread(c, thread->id, user_id) ? DCACHE_YES : DCACHE_UNKNOWN;
}

void dcache_stats(const struct dcache *c, struct dcache_stats *ret)
{
    *ret = (struct dcache_stats){.guilds = map_count(&c->guilds),
                                 .channels = map_count(&c->channels),
                                 .members = map_count(&c->members),
                                 .evicted = c->evicted};
}
