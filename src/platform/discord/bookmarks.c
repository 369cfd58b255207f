/* memory.c - design.  (discord_priv.h has the calls.)
 *
 * Records in the namespace "discord", keyed by bot:
 *
 *      <bot> US "session" US <shard>/<shards>   {"id","url","seq","user","intents"}
 *      <bot> US "seen" US <channel>             "<guild> <last message> <gap>"
 *
 * The session is written at most every two seconds: a restart then resumes a little earlier than it
 * had to, and what comes twice is dropped by its message id.  It never claims more than what is
 * safe, because only confirmed numbers get here.  The newest message of each channel is for the
 * case that the session cannot be resumed at all. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "platform/discord/discord_priv.h"
#include "store/store.h"

enum { MAX_SEEN = 10000, MAX_BATCH = 500 };
#define US "\x1f"

/* ---- the newest message of each channel ---- */

static void seen_free(struct discord *d, struct discord_bookmark *s)
{
    map_del(&d->seen, id_key(&s->channel_id));
    list_remove(&s->lru);
    free(s);
}

static void write_key(struct buf *b, const struct discord *d, uint64_t channel_id)
{
    buf_printf(b, "%s" US "seen" US "%" PRIu64, d->base.bot, channel_id);
}

void discord_bookmark_forget(struct discord *d, struct discord_bookmark *s)
{
    struct buf key = BUF_INIT;

    write_key(&key, d, s->channel_id);
    store_put(d->env->store,
              &(struct store_kv){.verb = KV_DELETE, .ns = "discord", .key = buf_str(&key)}, 1,
              false, NULL, NULL);
    buf_done(&key);
    seen_free(d, s);
}

static struct discord_bookmark *seen_get(struct discord *d, uint64_t channel_id)
{
    struct discord_bookmark *s = map_get(&d->seen, id_key(&channel_id));

    if (s == NULL) {
        struct discord_bookmark *old = list_first(&d->seen_lru, struct discord_bookmark, lru);
        if (map_count(&d->seen) >= MAX_SEEN && !old->filling)
            discord_bookmark_forget(d, old);
        s = xcalloc(1, sizeof *s);
        s->channel_id = channel_id;
        list_init(&s->lru);
        map_put(&d->seen, id_key(&s->channel_id), s);
    }
    list_move(&s->lru, &d->seen_lru);
    return s;
}

void discord_bookmark_note(struct discord *d, uint64_t guild_id, uint64_t channel_id,
                           uint64_t message_id)
{
    struct discord_bookmark *s = seen_get(d, channel_id);

    if (guild_id != 0)
        s->guild_id = guild_id;
    if (message_id <= s->last)
        return;
    s->last = message_id;
    s->dirty = true;
}

/* ---- writing ---- */

static void save_sessions(struct discord *d)
{
    for (unsigned i = 0; i < d->n_shards; i++) {
        struct discord_shard *s = &d->shards[i];
        struct dgateway_session gs = dgateway_session(s->gateway);
        struct buf key = BUF_INIT, value = BUF_INIT;
        struct jw w = jw_begin(&value);

        if (gs.seq == s->saved_seq && strcmp(gs.id, s->saved_id) == 0)
            continue;
        s->saved_seq = gs.seq;
        snprintf(s->saved_id, sizeof s->saved_id, "%s", gs.id);
        buf_printf(&key, "%s" US "session" US "%u/%u", d->base.bot, i, d->n_shards);
        jw_obj(&w);
        jw_kstr(&w, "id", str_of(gs.id));
        jw_kstr(&w, "url", str_of(gs.resume_url));
        jw_ki64(&w, "seq", (int64_t)gs.seq);
        jw_kstr(&w, "user", str_of(d->bot_user));
        jw_ki64(&w, "intents", (int64_t)d->intent_bits);
        jw_end_obj(&w);
        store_put(d->env->store,
                  &(struct store_kv){.verb = gs.id[0] != '\0' ? KV_PUT : KV_DELETE,
                                     .ns = "discord",
                                     .key = buf_str(&key),
                                     .value = buf_str(&value)},
                  1, false, NULL, NULL);
        buf_done(&key);
        buf_done(&value);
    }
}

/* The dirty ones are the most recently used. */
static void save_seen(struct discord *d)
{
    struct buf key = BUF_INIT, value = BUF_INIT;
    int n = 0;

    for (struct list *it = d->seen_lru.prev; it != &d->seen_lru && n < MAX_BATCH; it = it->prev) {
        struct discord_bookmark *s = list_entry(it, struct discord_bookmark, lru);
        if (!s->dirty)
            continue;
        buf_reset(&key);
        buf_reset(&value);
        write_key(&key, d, s->channel_id);
        buf_printf(&value, "%" PRIu64 " %" PRIu64 " %" PRIu64, s->guild_id, s->last, s->gap);
        store_put(d->env->store,
                  &(struct store_kv){.verb = KV_PUT,
                                     .ns = "discord",
                                     .key = buf_str(&key),
                                     .value = buf_str(&value)},
                  1, false, NULL, NULL);
        s->dirty = false;
        n++;
    }
    buf_done(&key);
    buf_done(&value);
}

void discord_bookmarks_save(struct discord *d)
{
    save_sessions(d);
    save_seen(d);
}

/* ---- reading ---- */

struct stored {        /* a session of an earlier process, until its shard is made */
    char *key, *value; /* owned; "<shard>/<shards>" */
};

static void load_session(struct discord *d, struct str key, struct str value)
{
    struct stored *st = xcalloc(1, sizeof *st);

    st->key = str_dup(key);
    st->value = str_dup(value);
    map_put(&d->stored, str_of(st->key), st);
}

static void load_seen(struct discord *d, struct str key, struct str value)
{
    struct str part;
    uint64_t id, v[3] = {0};

    if (!str_to_u64(key, &id))
        return;
    for (int i = 0; i < 3 && str_split(&value, ' ', &part); i++)
        str_to_u64(part, &v[i]);
    struct discord_bookmark *s = seen_get(d, id);
    s->guild_id = v[0];
    s->last = v[1];
    s->gap = v[2];
}

static void on_record(void *ctx, struct str key, struct str value)
{
    struct discord *d = ctx;
    struct str bot, kind;

    if (!str_split(&key, '\x1f', &bot) || !str_eq(bot, str_of(d->base.bot)) ||
        !str_split(&key, '\x1f', &kind))
        return;
    if (str_eq(kind, STR("seen")))
        load_seen(d, key, value);
    else if (str_eq(kind, STR("session")))
        load_session(d, key, value);
}

enum bh_err discord_bookmarks_load(struct discord *d)
{
    struct buf own = BUF_INIT;

    list_init(&d->seen_lru);
    buf_printf(&own, "%s\x1f", d->base.bot);
    enum bh_err err =
        d->env->store->ops->load_under(d->env->store, "discord", buf_str(&own), on_record, d);
    buf_done(&own);
    return err;
}

static bool read_session(struct discord *d, struct json v, struct dgateway *g)
{
    struct str user = json_str(v, "user");
    int64_t seq = 0, intents = 0;

    /* Other intents are another stream of events: the old session would go on without them. */
    if (!json_as_i64(json_get(v, "intents"), &intents) || (uint64_t)intents != d->intent_bits ||
        !json_as_i64(json_get(v, "seq"), &seq) || seq <= 0 || snowflake(user) == 0 ||
        user.n >= sizeof d->bot_user || json_str(v, "id").n == 0)
        return false;
    memcpy(d->bot_user, user.p, user.n);
    d->bot_user[user.n] = '\0';
    dcache_set_bot(d->cache, snowflake(user));
    dgateway_set_session(g, json_str(v, "id"), json_str(v, "url"), (uint64_t)seq);
    return true;
}

static void stored_free(struct stored *st)
{
    free(st->key);
    free(st->value);
    free(st);
}

bool discord_bookmark_session(struct discord *d, unsigned shard, unsigned n_shards,
                              struct dgateway *g)
{
    char key[32];
    struct json v;

    snprintf(key, sizeof key, "%u/%u", shard, n_shards);
    struct stored *st = map_del(&d->stored, str_of(key));
    if (st == NULL)
        return false;
    bool ok = json_parse(d->parser, str_of(st->value), &v) && read_session(d, v, g);
    stored_free(st);
    return ok;
}

void discord_bookmarks_done(struct discord *d)
{
    void *v;

    for (size_t at = 0; map_next(&d->seen, &at, &v);)
        seen_free(d, v);
    for (size_t at = 0; map_next(&d->stored, &at, &v);)
        stored_free(v);
    map_done(&d->seen);
    map_done(&d->stored);
}
