/* intent.c - design.  (intent.h has the contract.)
 *
 * One record per request under way: key = platform, bot, hash of what is asked, a number of its own
 * (the same may be asked twice at once).  The hash is keyed with the database's own key, so a copy
 * of the record says nothing about the message.  Records found at start are taken off the disk at
 * once and remembered in memory: they matter for a minute.
 *
 * A write under way cannot be called off, so it is an object of its own that outlives its intent.
 */
#include "platform/intent.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/buf.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "store/store.h"

#define NS "intent"
#define MAX_FOUND 4096

struct intent_write {
    struct list link;
    struct intent *it; /* borrowed; NULL: ended meanwhile */
};

struct found { /* cut off by the end of an earlier process */
    struct list link;
    char key[64]; /* starts with the hash */
};
enum { HASH_CHARS = 32 };

struct intents {
    struct store *store;        /* borrowed */
    struct clock *clock;        /* borrowed */
    const char *platform, *bot; /* borrowed */
    struct list open;           /* struct intent */
    struct list found;          /* struct found */
    size_t n_found;
    int64_t forget_ms; /* monotonic: @found means nothing any more */
    uint64_t counter;
};

/* Reachable from here, so that a shutdown in the middle is not called a leak. */
static struct list writes = {&writes, &writes};

static void hash_what(const struct intents *all, struct str what, char ret_hex[HASH_CHARS + 1])
{
    struct hash128 h = hash128(&all->store->dedup_key, what);

    snprintf(ret_hex, HASH_CHARS + 1, "%016" PRIx64 "%016" PRIx64, h.hi, h.lo);
}

static void record_key(const struct intents *all, const char *key, struct buf *out)
{
    buf_printf(out, "%s\x1f%s\x1f%s", all->platform, all->bot, key);
}

static void delete_record(struct intents *all, const char *key)
{
    struct buf record = BUF_INIT;

    record_key(all, key, &record);
    struct store_kv item = {.verb = KV_DELETE, .ns = NS, .key = buf_str(&record)};
    store_put(all->store, &item, 1, false, NULL, NULL);
    buf_done(&record);
}

/* ---- what an earlier process left ---- */

static void on_found(void *ctx, struct str key, struct str value)
{
    struct intents *all = ctx;
    struct str platform, bot;

    if (!str_split(&key, '\x1f', &platform) || !str_split(&key, '\x1f', &bot) ||
        key.n < HASH_CHARS || key.n >= sizeof((struct found *)0)->key ||
        !str_eq(platform, str_of(all->platform)) || !str_eq(bot, str_of(all->bot)) ||
        all->n_found == MAX_FOUND)
        return;
    struct found *f = xcalloc(1, sizeof *f);
    memcpy(f->key, key.p, key.n);
    list_init(&f->link);
    list_append(&all->found, &f->link);
    all->n_found++;
}

enum bh_err intents_open(struct store *store, struct clock *clock, const char *platform,
                         const char *bot, struct intents **ret_all, char *ret_why)
{
    struct intents *all = xcalloc(1, sizeof *all);

    all->store = store;
    all->clock = clock;
    all->platform = platform;
    all->bot = bot;
    all->forget_ms = clock_now_ms(clock) + INTENT_MEMORY_MS;
    list_init(&all->open);
    list_init(&all->found);
    enum bh_err err = store->ops->load_records(store, NS, on_found, all);
    if (err != BH_OK) {
        snprintf(ret_why, 256, "the store cannot be read");
        intents_free(all);
        return err;
    }
    list_each (&all->found, it, nxt)
        delete_record(all, list_entry(it, struct found, link)->key);
    *ret_all = all;
    return BH_OK;
}

static void detach(struct intent *it)
{
    if (it->write != NULL)
        it->write->it = NULL;
    list_remove(&it->link);
    it->write = NULL;
    it->all = NULL;
}

void intents_free(struct intents *all)
{
    if (all == NULL)
        return;
    list_each (&all->open, it, nxt)
        detach(list_entry(it, struct intent, link));
    list_each (&all->found, it, nxt)
        free(list_entry(it, struct found, link));
    free(all);
}

size_t intents_found(const struct intents *all)
{
    return all->n_found;
}

bool intents_was_cut_off(struct intents *all, struct str what)
{
    char hash[HASH_CHARS + 1];

    if (list_is_empty(&all->found) || clock_now_ms(all->clock) >= all->forget_ms)
        return false;
    hash_what(all, what, hash);
    list_each (&all->found, it, nxt) {
        struct found *f = list_entry(it, struct found, link);
        if (memcmp(f->key, hash, HASH_CHARS) != 0)
            continue;
        list_remove(&f->link);
        free(f);
        return true;
    }
    return false;
}

/* ---- what is under way ---- */

static void on_written(void *ctx, enum bh_err err)
{
    struct intent_write *w = ctx;
    struct intent *it = w->it;

    list_remove(&w->link);
    free(w);
    if (it == NULL)
        return;
    it->write = NULL;
    it->ready(it, err);
}

void intent_begin(struct intents *all, struct intent *it, struct str what, intent_ready_cb *ready)
{
    struct buf record = BUF_INIT;
    struct intent_write *w = xcalloc(1, sizeof *w);
    char hash[HASH_CHARS + 1], at[24];

    hash_what(all, what, hash);
    *it = (struct intent){.all = all, .write = w, .ready = ready};
    snprintf(it->key, sizeof it->key, "%s-%" PRIx64 "-%" PRIx64, hash, all->store->boot,
             ++all->counter);
    list_init(&it->link);
    list_append(&all->open, &it->link);
    w->it = it;
    list_init(&w->link);
    list_append(&writes, &w->link);
    record_key(all, it->key, &record);
    snprintf(at, sizeof at, "%" PRId64, clock_wall_ms(all->clock));
    struct store_kv item = {.verb = KV_PUT, .ns = NS, .key = buf_str(&record), .value = str_of(at)};
    store_put(all->store, &item, 1, true, on_written, w);
    buf_done(&record);
}

void intent_end(struct intent *it)
{
    struct intents *all = it->all;

    if (all == NULL)
        return;
    detach(it);
    delete_record(all, it->key);
}

void intent_leave(struct intent *it)
{
    if (it->all != NULL)
        detach(it);
}
