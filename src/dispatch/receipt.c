/* receipt.c - receipts on disk.  (receipt.h has the contract.) */
#include "dispatch/receipt.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/receipt_room.h"
#include "dispatch/records.h"

#define HOUR_MS 3600000
#define KEPT_HOURS 25 /* the day, and the hour that has begun */
#define KEY_CHARS (8 + 32)

static void write_hour(struct buf *out, int64_t hour)
{
    buf_printf(out, "%08llx", (unsigned long long)(hour > 0 ? hour : 0));
}

/* Each part is preceded by its length, so no two names give the same bytes. */
struct hash128 receipt_hash(const struct dispatch *d, const struct receipt_name *name)
{
    const struct str parts[] = {name->tenant, name->agent, name->word, name->id};
    struct buf bytes = BUF_INIT;

    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        buf_printf(&bytes, "%zu:", parts[i].n);
        buf_add_str(&bytes, parts[i]);
    }
    struct hash128 h = hash128(&d->env.store->dedup_key, buf_str(&bytes));
    buf_done(&bytes);
    return h;
}

static void write_key(struct buf *out, int64_t hour, struct hash128 h)
{
    write_hour(out, hour);
    buf_printf(out, "%016llx%016llx", (unsigned long long)h.hi, (unsigned long long)h.lo);
}

struct store_put *receipt_write(struct dispatch *d, const struct receipt_name *name, int64_t at_ms,
                                struct str json, store_put_cb *done, void *ctx)
{
    struct buf key = BUF_INIT;

    receipt_room_wrote(d->receipt_room, name->tenant, KEY_CHARS + json.n);
    write_key(&key, at_ms / HOUR_MS, receipt_hash(d, name));
    struct store_kv item = {.verb = KV_PUT, .ns = RECEIPT_NS, .key = buf_str(&key), .value = json};
    struct store_put *put = store_put(d->env.store, &item, 1, true, done, ctx);
    buf_done(&key);
    return put;
}

/* ---- finding ---- */

struct receipt_read {
    struct dispatch *d; /* borrowed */
    struct record_scan *scan;
    struct hash128 hash;
    int64_t hour, last; /* the one being looked at; the last to look at */
    receipt_cb *done;
    void *ctx;
};

static void look(struct receipt_read *r);

static void on_looked(void *ctx, enum bh_err err, const struct store_scan *s)
{
    struct receipt_read *r = ctx;

    r->scan = NULL;
    if (err == BH_OK && s->n_records == 0 && r->hour > r->last) {
        r->hour--;
        look(r);
        return;
    }
    struct str json = err == BH_OK && s->n_records > 0 ? s->records[0].value : STR_NULL;
    receipt_cb *done = r->done;
    void *to = r->ctx;
    free(r);
    done(to, json);
}

static void look(struct receipt_read *r)
{
    struct buf key = BUF_INIT;

    write_key(&key, r->hour, r->hash);
    r->scan =
        records_scan(r->d->env.store, RECEIPT_NS, buf_str(&key), STR_NULL, 1, false, on_looked, r);
    buf_done(&key);
}

struct receipt_read *receipt_find(struct dispatch *d, const struct receipt_name *name,
                                  receipt_cb *done, void *ctx)
{
    struct receipt_read *r = xcalloc(1, sizeof *r);
    int64_t now = clock_wall_ms(d->env.clock) / HOUR_MS;

    *r = (struct receipt_read){.d = d, .hash = receipt_hash(d, name), .done = done, .ctx = ctx};
    r->hour = now;
    r->last = now - KEPT_HOURS;
    look(r);
    return r;
}

void receipt_cancel(struct receipt_read **r)
{
    if (*r != NULL) {
        records_cancel(&(*r)->scan);
        free(*r);
    }
    *r = NULL;
}

/* ---- repeating ---- */

void receipt_add_warning(struct json_parser *parser, struct str json, struct str warning,
                         struct buf *out)
{
    struct jw w = jw_begin(out);
    struct json doc = {0};

    jw_obj(&w);
    if (json_parse(parser, json, &doc))
        for (struct json_iter it = {0}; json_next(doc, &it);)
            if (!str_eq(it.key, STR("warnings"))) {
                jw_key_str(&w, it.key);
                jw_value(&w, it.value);
            }
    jw_key(&w, "warnings");
    jw_arr(&w);
    for (struct json_iter it = {0}; json_next(json_get(doc, "warnings"), &it);)
        jw_value(&w, it.value);
    jw_str(&w, warning);
    jw_end_arr(&w);
    jw_end_obj(&w);
}

void receipts_expire(struct dispatch *d)
{
    struct buf end = BUF_INIT;

    write_hour(&end, clock_wall_ms(d->env.clock) / HOUR_MS - KEPT_HOURS);
    records_clear(d->env.store, RECEIPT_NS, STR(""), buf_str(&end));
    buf_done(&end);
}
