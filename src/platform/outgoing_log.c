/* outgoing_log.c - design.  (outgoing_log.h has the contract.)
 *
 * The key's number is the store's boot number and a counter, so no two processes ever write the
 * same record.  What was found lies in a table by its hash; several of one hash are a chain, and
 * each answers for one repetition. */
#include "platform/outgoing_log.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/buf.h"
#include "base/clock.h"
#include "base/jw.h"
#include "base/list.h"
#include "base/map.h"
#include "store/store.h"

#define NS "outgoing"
#define NS_BEFORE "intent" /* older databases: key platform US bot US hash "-" number */
enum { HASH_CHARS = 32 };

struct found { /* cut off by the end of an earlier process */
    struct list link;
    struct found *next;        /* of the same hash */
    char hash[HASH_CHARS + 1]; /* empty: of no meaning for repetitions */
    char key[];                /* of its record; empty: it has none any more */
};

struct outgoing_log {
    struct store *store;        /* borrowed */
    struct clock *clock;        /* borrowed */
    const char *platform, *bot; /* borrowed */
    struct map by_hash;         /* the first struct found of each hash */
    struct list found;          /* all of them, owned */
    size_t n_found;
    struct timer forget; /* armed while @found means something */
    uint64_t counter;
    struct json_parser *parser; /* owned; while opening */
    outgoing_found_cb *tell;    /* while opening */
    void *tell_ctx;
};

static void hash_what(const struct outgoing_log *log, struct str what, char ret[HASH_CHARS + 1])
{
    struct hash128 h = hash128(&log->store->dedup_key, what);

    snprintf(ret, HASH_CHARS + 1, "%016" PRIx64 "%016" PRIx64, h.hi, h.lo);
}

static void delete_record(struct outgoing_log *log, struct str key)
{
    struct store_kv item = {.verb = KV_DELETE, .ns = NS, .key = key};

    store_put(log->store, &item, 1, false, NULL, NULL);
}

/* ---- what an earlier process left ---- */

static void found_free(struct outgoing_log *log, struct found *f)
{
    if (f->key[0] != '\0')
        delete_record(log, str_of(f->key));
    list_remove(&f->link);
    free(f);
}

static void on_forget(struct timer *t)
{
    struct outgoing_log *log = container_of(t, struct outgoing_log, forget);

    map_done(&log->by_hash);
    list_each (&log->found, it, nxt)
        found_free(log, list_entry(it, struct found, link));
}

static void remember(struct outgoing_log *log, struct str key, struct str hash)
{
    struct found *f = xcalloc(1, sizeof *f + key.n + 1);

    memcpy(f->key, key.n > 0 ? key.p : "", key.n);
    list_init(&f->link);
    list_append(&log->found, &f->link);
    if (hash.n != HASH_CHARS)
        return;
    memcpy(f->hash, hash.p, HASH_CHARS);
    f->next = map_put(&log->by_hash, str_of(f->hash), f);
}

/* Cuts platform and bot off the front of @key; false: it is another bot's. */
static bool is_ours(const struct outgoing_log *log, struct str *key)
{
    struct str platform, bot;

    return str_split(key, '\x1f', &platform) && str_split(key, '\x1f', &bot) &&
           str_eq(platform, str_of(log->platform)) && str_eq(bot, str_of(log->bot));
}

static void on_record(void *ctx, struct str key, struct str value)
{
    struct outgoing_log *log = ctx;
    struct str rest = key;
    struct json doc = {0};

    if (!is_ours(log, &rest))
        return;
    if (!json_parse(log->parser, value, &doc))
        doc = (struct json){0};
    bool waits = str_eq(json_str(doc, "state"), STR("waiting"));
    int64_t life = 0; /* older databases do not say: of the first */
    json_as_i64(json_get(doc, "life"), &life);
    remember(log, key, waits ? STR_NULL : json_str(doc, "hash"));
    log->n_found += !waits;
    log->tell(log->tell_ctx,
              &(struct outgoing_entry){.from = {.tenant = json_str(doc, "tenant"),
                                                .instance = json_str(doc, "instance"),
                                                .request_id = json_str(doc, "request"),
                                                .life = (uint32_t)life},
                                       .op = action_op_parse(json_str(doc, "op")),
                                       .chat = json_str(doc, "chat"),
                                       .waits = waits});
}

static void on_record_before(void *ctx, struct str key, struct str value)
{
    struct outgoing_log *log = ctx;
    struct str rest = key;

    if (!is_ours(log, &rest) || rest.n < HASH_CHARS)
        return;
    remember(log, STR_NULL, str_make(rest.p, HASH_CHARS));
    log->n_found++;
    struct store_kv item = {.verb = KV_DELETE, .ns = NS_BEFORE, .key = key};
    store_put(log->store, &item, 1, false, NULL, NULL);
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
    list_init(&log->found);
    timer_init(&log->forget, on_forget);
    log->parser = json_parser_new();
    enum bh_err err = store->ops->load_records(store, NS, on_record, log);
    if (err == BH_OK)
        err = store->ops->load_records(store, NS_BEFORE, on_record_before, log);
    json_parser_free(log->parser);
    log->parser = NULL;
    if (err != BH_OK) {
        snprintf(ret_why, 256, "the store cannot be read");
        outgoing_log_close(log);
        return err;
    }
    if (!list_is_empty(&log->found))
        timer_set(clock, &log->forget, OUTGOING_KNOWN_MS);
    *ret_log = log;
    return BH_OK;
}

void outgoing_log_close(struct outgoing_log *log)
{
    if (log == NULL)
        return;
    timer_stop(log->clock, &log->forget);
    map_done(&log->by_hash);
    list_each (&log->found, it, nxt)
        free(list_entry(it, struct found, link));
    free(log);
}

size_t outgoing_log_found(const struct outgoing_log *log)
{
    return log->n_found;
}

bool outgoing_log_was_cut_off(struct outgoing_log *log, struct str what)
{
    char hash[HASH_CHARS + 1];

    if (map_count(&log->by_hash) == 0)
        return false;
    hash_what(log, what, hash);
    struct found *f = map_del(&log->by_hash, str_make(hash, HASH_CHARS));
    if (f == NULL)
        return false;
    if (f->next != NULL)
        map_put(&log->by_hash, str_of(f->next->hash), f->next);
    found_free(log, f);
    return true;
}

/* ---- what is under way ---- */

static void write_key(const struct outgoing_record *rec, struct buf *out)
{
    buf_printf(out, "%s\x1f%s\x1f%016" PRIx64, rec->log->platform, rec->log->bot, rec->number);
}

static void write_value(const struct outgoing_log *log, const struct outgoing_entry *e,
                        struct buf *out)
{
    struct jw w = jw_begin(out);
    char hash[HASH_CHARS + 1];

    jw_obj(&w);
    jw_kstr_opt(&w, "tenant", e->from.tenant);
    jw_kstr_opt(&w, "instance", e->from.instance);
    jw_kstr_opt(&w, "request", e->from.request_id);
    jw_ki64(&w, "life", e->from.life);
    jw_kstr(&w, "op", str_of(action_op_name(e->op)));
    jw_kstr_opt(&w, "chat", e->chat);
    jw_ki64(&w, "at", clock_wall_ms(log->clock));
    jw_kstr(&w, "state", e->waits ? STR("waiting") : STR("trying"));
    if (e->what.p != NULL) {
        hash_what(log, e->what, hash);
        jw_kstr(&w, "hash", str_of(hash));
    }
    jw_end_obj(&w);
}

static void on_written(void *ctx, enum bh_err err)
{
    struct outgoing_record *rec = ctx;

    rec->put = NULL;
    rec->recorded(rec, err);
}

static void write_record(struct outgoing_record *rec, const struct outgoing_entry *e)
{
    struct buf key = BUF_INIT, value = BUF_INIT;

    write_key(rec, &key);
    write_value(rec->log, e, &value);
    struct store_kv item = {.verb = KV_PUT,
                            .ns = NS,
                            .key = buf_str(&key),
                            .value = buf_str(&value)};
    rec->put = store_put(rec->log->store, &item, 1, true, on_written, rec);
    buf_done(&key);
    buf_done(&value);
}

void outgoing_log_begin(struct outgoing_log *log, struct outgoing_record *rec,
                        const struct outgoing_entry *e, outgoing_recorded_cb *recorded)
{
    *rec = (struct outgoing_record){.log = log, .recorded = recorded};
    rec->number = log->store->boot << 40 | ++log->counter;
    write_record(rec, e);
}

void outgoing_log_change(struct outgoing_record *rec, const struct outgoing_entry *e)
{
    store_put_cancel(&rec->put); /* writes keep their order: when this one is there, so is that */
    write_record(rec, e);
}

void outgoing_log_end(struct outgoing_record *rec)
{
    struct buf key = BUF_INIT;

    if (rec->log == NULL)
        return;
    write_key(rec, &key);
    delete_record(rec->log, buf_str(&key));
    buf_done(&key);
    outgoing_log_leave(rec);
}

void outgoing_log_leave(struct outgoing_record *rec)
{
    store_put_cancel(&rec->put);
    rec->log = NULL;
}
