/* names.c - the names that we gave to threads, for those who want to change them only as long as
 * nobody else has.  (discord_priv.h has the calls.)
 *
 * Namespace "thread", key "discord" US bot US thread, value the name, behind US if the thread was
 * opened for an answer; the newest MAX_NAMES. */
#include <inttypes.h>
#include <stdlib.h>
#include "base/mem.h"
#include "platform/discord/discord_priv.h"
#include "store/store.h"

enum { MAX_NAMES = 4096 };

struct thread_name {
    struct list link; /* d->thread_names_by_age, oldest first */
    uint64_t id;
    char *name;  /* owned */
    bool opened; /* for an answer; the name is the one it was given then */
};

static void keep(struct discord *d, uint64_t id, const char *name, bool opened)
{
    struct buf key = BUF_INIT, value = BUF_INIT;

    if (name != NULL)
        buf_printf(&value, "%s%s", opened ? "\x1f" : "", name);
    buf_printf(&key, "discord\x1f%s\x1f%" PRIu64, d->base.bot, id);
    struct store_kv item = {.verb = name != NULL ? KV_PUT : KV_DELETE,
                            .ns = "thread",
                            .key = buf_str(&key),
                            .value = buf_str(&value)};
    store_put(d->env->store, &item, 1, false, NULL, NULL);
    buf_done(&key);
    buf_done(&value);
}

static void drop(struct discord *d, struct thread_name *t)
{
    map_del(&d->thread_names, id_key(&t->id));
    list_remove(&t->link);
    free(t->name);
    free(t);
}

static void remember(struct discord *d, uint64_t id, struct str name)
{
    struct thread_name *t = map_get(&d->thread_names, id_key(&id));

    if (t != NULL)
        drop(d, t);
    t = xcalloc(1, sizeof *t);
    t->id = id;
    t->opened = str_starts(name, STR("\x1f"));
    t->name = str_dup(str_skip(name, t->opened ? 1 : 0));
    list_init(&t->link);
    list_append(&d->thread_names_by_age, &t->link);
    map_put(&d->thread_names, id_key(&t->id), t);
}

static void give(struct discord *d, uint64_t thread_id, const char *name, bool opened)
{
    struct buf value = BUF_INIT;

    buf_printf(&value, "%s%s", opened ? "\x1f" : "", name);
    remember(d, thread_id, buf_str(&value));
    buf_done(&value);
    keep(d, thread_id, name, opened);
    if (map_count(&d->thread_names) <= MAX_NAMES)
        return;
    struct thread_name *oldest = list_first(&d->thread_names_by_age, struct thread_name, link);
    keep(d, oldest->id, NULL, false);
    drop(d, oldest);
}

void discord_name_given(struct discord *d, uint64_t thread_id, const char *name)
{
    const struct thread_name *t = map_get(&d->thread_names, id_key(&thread_id));

    if (t == NULL || !t->opened)
        give(d, thread_id, name, false);
}

void discord_name_opened(struct discord *d, uint64_t thread_id, const char *name)
{
    give(d, thread_id, name, true);
}

struct str discord_name_opened_as(const struct discord *d, uint64_t thread_id)
{
    const struct thread_name *t = map_get(&d->thread_names, id_key(&thread_id));

    return t != NULL && t->opened ? str_of(t->name) : STR_NULL;
}

uint64_t discord_opened_before(const struct discord *d, uint64_t channel_id, uint64_t id)
{
    const struct list *all = &d->thread_names_by_age;
    uint64_t found = 0;

    for (const struct list *it = all->next; it != all; it = it->next) {
        const struct thread_name *t = list_entry(it, const struct thread_name, link);
        if (!t->opened || t->id >= id || t->id <= found)
            continue;
        const struct dcache_channel *ch = dcache_channel(d->cache, t->id);
        if (ch != NULL && ch->parent_id == channel_id)
            found = t->id;
    }
    return found;
}

bool discord_name_is_ours(const struct discord *d, uint64_t thread_id, const char *name)
{
    const struct thread_name *t = map_get(&d->thread_names, id_key(&thread_id));

    return t != NULL && name != NULL && strcmp(t->name, name) == 0;
}

static void on_record(void *ctx, struct str key, struct str value)
{
    struct discord *d = ctx;
    struct str platform, bot;

    if (str_split(&key, '\x1f', &platform) && str_split(&key, '\x1f', &bot) &&
        str_eq(platform, STR("discord")) && str_eq(bot, str_of(d->base.bot)) && snowflake(key) != 0)
        remember(d, snowflake(key), value);
}

enum bh_err discord_names_load(struct discord *d)
{
    struct buf own = BUF_INIT;

    list_init(&d->thread_names_by_age);
    buf_printf(&own, "discord\x1f%s\x1f", d->base.bot);
    enum bh_err err =
        d->env->store->ops->load_under(d->env->store, "thread", buf_str(&own), on_record, d);
    buf_done(&own);
    return err;
}

void discord_names_done(struct discord *d)
{
    if (d->thread_names_by_age.next == NULL)
        return;
    list_each (&d->thread_names_by_age, it, nxt)
        drop(d, list_entry(it, struct thread_name, link));
    map_done(&d->thread_names);
}
