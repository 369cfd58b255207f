/* names.c - how visitors call themselves, and for how long that is remembered.
 *
 * In memory and, unless the bot keeps nothing or nobody is routed to it, on disk, as "day US name":
 * the day on which its visitor was heard from last, written again when that is another one.  A name
 * goes with the retention, by whole days, and the one not heard from for longest when there are too
 * many.  Records without a day are of an older bellhop; they get today's. */
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"
#include "platform/web/sweep.h"
#include "platform/web/web_priv.h"
#include "store/store.h"

#define DAY_MS INT64_C(86400000)
enum { AGE_AT_ONCE = 256 };

struct web_name {
    struct list age; /* web->names_by_age: not heard from for longest is first */
    int64_t day;
    bool undated; /* on disk */
    char chat_id[VISITOR_CHAT_CHARS + 1];
    char text[];
};

static int64_t today(const struct web *w)
{
    return clock_wall_ms(w->env->clock) / DAY_MS;
}

static struct web_name *find(const struct web *w, struct str chat_id)
{
    return map_count(&w->names) != 0 ? map_get(&w->names, chat_id) : NULL;
}

struct str web_name_given(const struct web *w, struct str chat_id)
{
    const struct web_name *n = find(w, chat_id);

    return n != NULL ? str_of(n->text) : STR_NULL;
}

struct str web_name_of(const struct web *w, struct str chat_id, char ret_made[16])
{
    struct str given = web_name_given(w, chat_id);

    if (given.p != NULL)
        return given;
    memcpy(ret_made, "Visitor ", 8);
    memcpy(ret_made + 8, chat_id.p, 4);
    return str_make(ret_made, 12);
}

void web_name_drop(struct web *w, struct str chat_id)
{
    struct web_name *n = find(w, chat_id);

    if (n == NULL)
        return;
    map_del(&w->names, chat_id);
    list_remove(&n->age);
    free(n);
}

static struct web_name *remember(struct web *w, struct str chat_id, struct str name, int64_t day)
{
    struct web_name *n = xmalloc(sizeof *n + name.n + 1);

    *n = (struct web_name){.day = day};
    memcpy(n->chat_id, chat_id.p, VISITOR_CHAT_CHARS);
    n->chat_id[VISITOR_CHAT_CHARS] = '\0';
    memcpy(n->text, name.p, name.n);
    n->text[name.n] = '\0';
    web_name_drop(w, chat_id); /* first: the map borrows its key from the value */
    map_put(&w->names, str_of(n->chat_id), n);
    list_init(&n->age);
    list_append(&w->names_by_age, &n->age);
    return n;
}

/* ---- on disk ---- */

static void write_key(const struct web *w, struct str chat_id, struct buf *out)
{
    buf_printf(out, "%s\x1f%.*s", w->base.bot, STR_FMT(chat_id));
}

static void write_name(struct web *w, const struct web_name *n)
{
    struct buf key = BUF_INIT, value = BUF_INIT;

    write_key(w, str_of(n->chat_id), &key);
    buf_printf(&value, "%lld\x1f%s", (long long)n->day, n->text);
    struct store_kv item = {.verb = KV_PUT,
                            .ns = "web_name",
                            .key = buf_str(&key),
                            .value = buf_str(&value)};
    store_put(w->env->store, &item, 1, false, NULL, NULL);
    buf_done(&key);
    buf_done(&value);
}

static void store_name(struct web *w, const struct web_name *n)
{
    if (w->history > 0 && web_is_routed(w))
        write_name(w, n);
}

/* On disk and in memory; one that is not there is fine. */
static void forget(struct web *w, struct str chat_id)
{
    struct buf key = BUF_INIT;

    write_key(w, chat_id, &key);
    struct store_kv item = {.verb = KV_DELETE, .ns = "web_name", .key = buf_str(&key)};
    if (w->history > 0)
        store_put(w->env->store, &item, 1, false, NULL, NULL);
    buf_done(&key);
    web_name_drop(w, chat_id);
}

static struct web_name *oldest(struct web *w)
{
    return list_is_empty(&w->names_by_age) ? NULL
                                           : list_first(&w->names_by_age, struct web_name, age);
}

/* ---- what visitors do ---- */

void web_name_set(struct web *w, struct str chat_id, struct str name)
{
    if (str_is_empty(name)) {
        forget(w, chat_id);
        return;
    }
    store_name(w, remember(w, chat_id, name, today(w)));
    if (map_count(&w->names) > WEB_MAX_NAMES) /* anybody can give names: the newest stays */
        forget(w, str_of(oldest(w)->chat_id));
}

void web_name_heard(struct web *w, struct str chat_id)
{
    struct web_name *n = find(w, chat_id);

    if (n == NULL || n->day == today(w))
        return;
    n->day = today(w);
    list_move(&n->age, &w->names_by_age);
    store_name(w, n);
}

void web_names_age(struct web *w)
{
    int64_t keep_days = (w->env->retention_ms + DAY_MS - 1) / DAY_MS;
    struct web_name *n;

    for (int i = 0; w->env->retention_ms > 0 && i < AGE_AT_ONCE; i++) {
        n = oldest(w);
        if (n == NULL || today(w) - n->day <= keep_days)
            return;
        forget(w, str_of(n->chat_id));
    }
}

/* ---- life ---- */

static void on_record(void *ctx, struct str key, struct str value)
{
    struct web *w = ctx;
    struct str bot, text;
    int64_t day = 0;

    if (!str_split(&key, '\x1f', &bot) || !str_eq(bot, web_bot(w)) || key.n != VISITOR_CHAT_CHARS)
        return;
    ptrdiff_t at = str_find(value, '\x1f');
    bool dated = at > 0 && str_to_i64(str_make(value.p, (size_t)at), &day);
    text = dated ? str_skip(value, (size_t)at + 1) : value;
    remember(w, key, text, dated ? day : today(w))->undated = !dated;
}

static int by_day(const void *a, const void *b)
{
    int64_t x = (*(struct web_name *const *)a)->day, y = (*(struct web_name *const *)b)->day;

    return x < y ? -1 : x > y;
}

/* They were read in the order of their keys. */
static void sort(struct web *w)
{
    struct web_name **all = xcalloc(map_count(&w->names) + 1, sizeof *all);
    void *name;
    size_t n = 0;

    for (size_t i = 0; map_next(&w->names, &i, &name);)
        all[n++] = name;
    qsort(all, n, sizeof *all, by_day);
    for (size_t i = 0; i < n; i++) {
        list_move(&all[i]->age, &w->names_by_age);
        if (all[i]->undated)
            write_name(w, all[i]);
        all[i]->undated = false;
    }
    free(all);
}

enum bh_err web_names_open(struct web *w)
{
    struct buf prefix = BUF_INIT;
    struct store *st = w->env->store;

    if (w->history == 0)
        return BH_OK;
    buf_printf(&prefix, "%s\x1f", w->base.bot);
    enum bh_err err = st->ops->load_under(st, "web_name", buf_str(&prefix), on_record, w);
    buf_done(&prefix);
    sort(w);
    web_names_age(w);
    return err;
}

void web_names_close(struct web *w)
{
    void *name;

    for (size_t i = 0; map_next(&w->names, &i, &name);)
        free(name);
    map_done(&w->names);
}
