/* outgoing_log.c - design.  (outgoing_log.h has the contract.)
 *
 * The key's number is the store's boot number and a counter, so no two processes ever write the
 * same record.  What was cut off lies in a table by its hash; several of one hash are a chain, and
 * each answers for one repetition. */
#include "platform/outgoing_log.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/buf.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"
#include "store/store.h"

#define NS "outgoing"
#define NS_BEFORE "intent" /* older databases: key platform US bot US hash "-" number */

struct cut_off { /* by the end of an earlier process */
    struct list link;
    struct cut_off *next; /* of the same hash */
    uint64_t number;      /* 0: an older database's */
    char hash[OUTGOING_HASH_CHARS + 1];
};

struct outgoing_log {
    struct store *store;        /* borrowed */
    struct clock *clock;        /* borrowed */
    const char *platform, *bot; /* borrowed */
    struct map by_hash;         /* the first struct cut_off of each hash */
    struct list cut_off;        /* all of them, owned */
    struct timer forget;        /* armed while @cut_off means something */
    outgoing_found_cb *tell;    /* while opening */
    void *tell_ctx;
};

void outgoing_log_hash(const struct outgoing_log *log, struct str what,
                       char ret[OUTGOING_HASH_CHARS + 1])
{
    struct hash128 h = hash128(&log->store->dedup_key, what);

    snprintf(ret, OUTGOING_HASH_CHARS + 1, "%016" PRIx64 "%016" PRIx64, h.hi, h.lo);
}

/* ---- what was cut off ---- */

static void forget_all(struct outgoing_log *log)
{
    map_done(&log->by_hash);
    list_each (&log->cut_off, it, nxt) {
        list_remove(it);
        free(list_entry(it, struct cut_off, link));
    }
}

static void on_forget(struct timer *t)
{
    forget_all(container_of(t, struct outgoing_log, forget));
}

void outgoing_log_cut_off(struct outgoing_log *log, struct str hash, uint64_t number,
                          int64_t ago_ms)
{
    if (hash.n != OUTGOING_HASH_CHARS || ago_ms >= OUTGOING_KNOWN_MS)
        return;
    struct cut_off *c = xcalloc(1, sizeof *c);
    c->number = number;
    memcpy(c->hash, hash.p, hash.n);
    list_init(&c->link);
    list_append(&log->cut_off, &c->link);
    c->next = map_put(&log->by_hash, str_of(c->hash), c);
    timer_set(log->clock, &log->forget, OUTGOING_KNOWN_MS);
}

bool outgoing_log_was_cut_off(struct outgoing_log *log, struct str what, uint64_t *ret_number)
{
    char hash[OUTGOING_HASH_CHARS + 1];

    if (map_count(&log->by_hash) == 0)
        return false;
    outgoing_log_hash(log, what, hash);
    struct cut_off *c = map_del(&log->by_hash, str_make(hash, OUTGOING_HASH_CHARS));
    if (c == NULL)
        return false;
    if (c->next != NULL)
        map_put(&log->by_hash, str_of(c->next->hash), c->next);
    *ret_number = c->number;
    list_remove(&c->link);
    free(c);
    return true;
}

/* ---- what an earlier process left ---- */

/* Cuts platform and bot off the front of @key; false: it is another bot's. */
static bool is_ours(const struct outgoing_log *log, struct str *key)
{
    struct str platform, bot;

    return str_split(key, '\x1f', &platform) && str_split(key, '\x1f', &bot) &&
           str_eq(platform, str_of(log->platform)) && str_eq(bot, str_of(log->bot));
}

static bool number_of(struct str hex, uint64_t *ret)
{
    char text[17] = "", *end;

    if (hex.n != 16)
        return false;
    memcpy(text, hex.p, 16);
    *ret = strtoull(text, &end, 16);
    return *end == '\0';
}

static void on_record(void *ctx, struct str key, struct str value)
{
    struct outgoing_log *log = ctx;
    struct str rest = key;
    uint64_t number;

    if (is_ours(log, &rest) && number_of(rest, &number))
        log->tell(log->tell_ctx, number, value);
}

static void on_record_before(void *ctx, struct str key, struct str value)
{
    struct outgoing_log *log = ctx;
    struct str rest = key;

    (void)value;
    if (!is_ours(log, &rest) || rest.n < OUTGOING_HASH_CHARS)
        return;
    outgoing_log_cut_off(log, str_make(rest.p, OUTGOING_HASH_CHARS), 0, 0);
    struct store_kv item = {.verb = KV_DELETE, .ns = NS_BEFORE, .key = key};
    store_put(log->store, &item, 1, false, NULL, NULL);
}

/* Its own records and nobody else's: with many bots each is read once. */
static enum bh_err read_own(struct outgoing_log *log)
{
    const struct store_ops *ops = log->store->ops;
    struct buf own = BUF_INIT;

    buf_printf(&own, "%s\x1f%s\x1f", log->platform, log->bot);
    enum bh_err err = ops->load_under(log->store, NS, buf_str(&own), on_record, log);
    if (err == BH_OK)
        err = ops->load_under(log->store, NS_BEFORE, buf_str(&own), on_record_before, log);
    buf_done(&own);
    return err;
}

enum bh_err outgoing_log_open(struct store *store, struct clock *clock, const char *platform,
                              const char *bot, outgoing_found_cb *found, void *ctx,
                              struct outgoing_log **ret_log, char *ret_why)
{
    struct outgoing_log *log = xcalloc(1, sizeof *log);

    *log = (struct outgoing_log){.store = store,
                                 .clock = clock,
                                 .platform = platform,
                                 .bot = bot,
                                 .tell = found,
                                 .tell_ctx = ctx};
    list_init(&log->cut_off);
    timer_init(&log->forget, on_forget);
    *ret_log = log; /* found() may use it */
    enum bh_err err = read_own(log);
    if (err == BH_OK)
        return BH_OK;
    snprintf(ret_why, 256, "the store cannot be read");
    *ret_log = NULL;
    outgoing_log_close(log);
    return err;
}

void outgoing_log_close(struct outgoing_log *log)
{
    if (log == NULL)
        return;
    timer_stop(log->clock, &log->forget);
    forget_all(log);
    free(log);
}

/* ---- what is under way ---- */

static void write_key(const struct outgoing_log *log, uint64_t number, struct buf *out)
{
    buf_printf(out, "%s\x1f%s\x1f%016" PRIx64, log->platform, log->bot, number);
}

static void on_written(void *ctx, enum bh_err err)
{
    struct outgoing_record *rec = ctx;

    rec->put = NULL;
    rec->recorded(rec, err);
}

void outgoing_log_put(struct outgoing_log *log, struct outgoing_record *rec,
                      const struct outgoing_entry *e, outgoing_recorded_cb *recorded)
{
    struct buf key = BUF_INIT, value = BUF_INIT;

    rec->log = log;
    rec->number = e->number;
    write_key(log, e->number, &key);
    outgoing_entry_write(&value, e);
    struct store_kv item = {.verb = KV_PUT,
                            .ns = NS,
                            .key = buf_str(&key),
                            .value = buf_str(&value)};
    if (recorded != NULL) {
        store_put_cancel(&rec->put); /* writes keep their order: when this one is there, so is it */
        rec->recorded = recorded;
        rec->put = store_put(log->store, &item, 1, true, on_written, rec);
    } else {
        store_put(log->store, &item, 1, false, NULL, NULL);
    }
    buf_done(&key);
    buf_done(&value);
}

void outgoing_log_delete(struct outgoing_log *log, uint64_t number)
{
    struct buf key = BUF_INIT;

    write_key(log, number, &key);
    struct store_kv item = {.verb = KV_DELETE, .ns = NS, .key = buf_str(&key)};
    store_put(log->store, &item, 1, false, NULL, NULL);
    buf_done(&key);
}

void outgoing_log_end(struct outgoing_record *rec)
{
    if (rec->log == NULL)
        return;
    outgoing_log_delete(rec->log, rec->number);
    outgoing_log_leave(rec);
}

void outgoing_log_leave(struct outgoing_record *rec)
{
    store_put_cancel(&rec->put);
    rec->log = NULL;
}
