/* receipts.c - design.  (receipts.h has the contract.)
 *
 * A timer writes the record of a turn's deliveries before the store commits, so rows and receipts
 * are in one group commit.
 *
 * A receipt is written when the agent has taken the delivery, or a little later without that.  So a
 * search goes forwards from the time of the delivery, to AHEAD_MS.  For a delivery from before this
 * start, the relay knows only the time of its commit, which may be later than the receipt's key;
 * hence a second search backwards, to BACK_MS.
 *
 * The bytes of a tenant are counted in a ring of hours.  Keys begin with the time in hex digits, so
 * a sweep at start counts old receipts without parsing them.  Receipts written during that sweep
 * may be counted twice, which leaves a little less room for a day. */
#include "dispatch/receipts.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/jw.h"
#include "base/limits.h"
#include "base/map.h"
#include "base/mem.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/track.h"
#include "dispatch/records.h"
#include "store/sweep.h"

/* ---- the records ---- */

struct receipt_record {
    struct str key; /* <hour><hash> */
    struct record_json answer;
};
static const struct record_field receipt_fields[] = {
    RECORD_FIELD(struct receipt_record, key, "key", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct receipt_record, answer, "answer", RECORD_NEEDED),
};
const struct record_form receipt_form =
    RECORD_FORM("receipt", struct receipt_record, receipt_fields);

struct delivered_line {
    struct str of; /* the hash of the receipt's name */
    struct record_json answer;
    struct delivered_facts facts;
};
static const struct record_field line_fields[] = {
    RECORD_FIELD(struct delivered_line, of, "of", RECORD_NEEDED),
    RECORD_FIELD(struct delivered_line, answer, "answer", RECORD_NEEDED),
    RECORD_FIELD(struct delivered_line, facts.by, "by", 0),
    RECORD_FIELD(struct delivered_line, facts.row, "row", 0),
    RECORD_FIELD(struct delivered_line, facts.queued_ms, "queued", 0),
    RECORD_FIELD(struct delivered_line, facts.sent_ms, "sent", 0),
    RECORD_FIELD(struct delivered_line, facts.taken_ms, "taken", 0),
};
static const struct record_form line_form = RECORD_FORM(NULL, struct delivered_line, line_fields);

struct delivered_record {
    struct str key;               /* <time><number> */
    struct delivered_line *lines; /* owned when read from the store */
    size_t n;
};
static const struct record_field delivered_fields[] = {
    RECORD_FIELD(struct delivered_record, key, "key", RECORD_KEY | RECORD_NEEDED),
    RECORD_ARRAY(struct delivered_record, lines, n, "receipts", &line_form, 0),
};
const struct record_form delivered_form =
    RECORD_FORM("delivered", struct delivered_record, delivered_fields);

/* ---- counting bytes ---- */

#define HOUR_MS 3600000
enum { HOURS = 26, HOUR_CHARS = 8, TIME_CHARS = 12, HASH_CHARS = 32 };

struct share {
    uint64_t bytes;
    struct {
        int64_t hour;
        uint64_t bytes;
    } of[HOURS];
    char tenant[]; /* "": receipts from before this start */
};

struct delivered_batch {
    struct list link; /* receipts->batches */
    struct list entries;
    struct store_put *put;
};

struct receipts {
    struct dispatch *d; /* borrowed */
    struct map shares;  /* tenant -> share; owned */
    struct sweep *sweeps[2];
    struct list filling; /* entries of this turn's deliveries */
    struct buf texts;    /* their receipts, concatenated; @lines has the offsets */
    struct {
        char of[HASH_CHARS + 1];
        size_t at, n;
        struct delivered_facts facts;
    } * lines; /* owned */
    size_t n_lines, cap_lines;
    int64_t at_ms;       /* when the first entry came */
    struct list batches; /* owned; being written */
    struct timer turn;
};

static int64_t hour_now(const struct receipts *t)
{
    return clock_wall_ms(t->d->env.clock) / HOUR_MS;
}

static void tell(struct receipts *t, const struct share *s)
{
    ledger_note(t->d->env.ledger, LIMIT_RECEIPT_BYTES, str_of(s->tenant), s->bytes);
}

static void add(struct receipts *t, struct str tenant, int64_t hour, size_t bytes)
{
    struct share *s = map_get(&t->shares, tenant);

    if (s == NULL) {
        s = xcalloc(1, sizeof *s + tenant.n + 1);
        memcpy(s->tenant, tenant.p, tenant.n);
        map_put(&t->shares, str_of(s->tenant), s);
    }
    size_t at = (size_t)hour % HOURS;
    if (s->of[at].hour != hour) {
        s->bytes -= s->of[at].bytes;
        s->of[at].hour = hour;
        s->of[at].bytes = 0;
    }
    s->of[at].bytes += bytes;
    s->bytes += bytes;
    tell(t, s);
}

bool receipts_have_room(struct receipts *t, struct str tenant)
{
    struct ledger *l = t->d->env.ledger;
    const struct share *s = map_get(&t->shares, tenant);
    uint64_t each = l != NULL ? ledger_bounds(l, LIMIT_RECEIPT_BYTES).each : 0;

    if (s == NULL || each == 0 || s->bytes < each)
        return ledger_has_room(l, LIMIT_RECEIPT_BYTES);
    ledger_refuse(l, LIMIT_RECEIPT_BYTES);
    return false;
}

/* ---- receipts from before this start ---- */

static void count(struct receipts *t, int64_t hour, struct str key, struct str value)
{
    int64_t now = hour_now(t);

    if (hour > now - HOURS && hour <= now)
        add(t, STR(""), hour, key.n + value.n);
}

static bool on_receipt(void *ctx, struct str key, struct str value)
{
    count(ctx, (int64_t)records_number(key, HOUR_CHARS), key, value);
    return false;
}

static bool on_delivered(void *ctx, struct str key, struct str value)
{
    struct receipts *t = ctx;
    struct delivered_record r;

    count(t, (int64_t)records_number(key, TIME_CHARS) / HOUR_MS, key, value);
    if (!record_read(t->d->records, &delivered_form, key, value, &r))
        return false;
    for (size_t i = 0; i < r.n; i++)
        track_recall(t->d->tracks, &r.lines[i].facts);
    record_done(&delivered_form, &r);
    return false;
}

static const struct sweep_ops receipt_pass = {.goes = on_receipt};
static const struct sweep_ops delivered_pass = {.goes = on_delivered};

/* ---- receipts of wakes and requests ---- */

#define KEPT_HOURS 25 /* a day, and the hour that has begun */
#define AHEAD_MS 4000 /* a receipt's key may be this much newer than its delivery's time, ... */
#define BACK_MS 10000 /* ... or older */

static void write_hour(struct buf *out, int64_t hour)
{
    buf_printf(out, "%08llx", (unsigned long long)(hour > 0 ? hour : 0));
}

void receipt_name_add(struct buf *out, const struct receipt_name *name)
{
    const struct str parts[] = {name->tenant, name->agent, name->word, name->id};

    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        buf_printf(out, "%zu:", parts[i].n);
        buf_add_str(out, parts[i]);
    }
}

static void write_hash(struct buf *out, const struct dispatch *d, const struct receipt_name *name)
{
    struct buf bytes = BUF_INIT;

    receipt_name_add(&bytes, name);
    struct hash128 h = hash128(&d->env.store->dedup_key, buf_str(&bytes));
    buf_printf(out, "%016llx%016llx", (unsigned long long)h.hi, (unsigned long long)h.lo);
    buf_done(&bytes);
}

struct store_put *receipt_write(struct dispatch *d, const struct receipt_name *name, int64_t at_ms,
                                struct str json, enum store_kv_verb verb, store_put_cb *done,
                                void *ctx)
{
    BUF_LOCAL key = BUF_INIT, value = BUF_INIT;

    add(d->receipts, name->tenant, hour_now(d->receipts), HOUR_CHARS + HASH_CHARS + json.n);
    write_hour(&key, at_ms / HOUR_MS);
    write_hash(&key, d, name);
    record_write(&receipt_form, NULL, &(struct receipt_record){.answer = {.text = json}}, NULL,
                 &value);
    struct store_kv item = {verb, receipt_form.ns, buf_str(&key), buf_str(&value)};
    return store_put(d->env.store, &item, 1, done != NULL, done, ctx);
}

/* ---- finding ---- */

struct receipt_read {
    struct dispatch *d; /* borrowed */
    struct record_scan *scan;
    struct buf hash;
    int64_t hour, last; /* the hour being searched; the last one to search */
    int64_t at_ms;      /* of a delivery */
    bool back;          /* of a delivery: the second search */
    receipt_cb *done;
    void *ctx;
};

static struct receipt_read *read_new(struct dispatch *d, const struct receipt_name *name,
                                     receipt_cb *done, void *ctx)
{
    struct receipt_read *r = xcalloc(1, sizeof *r);

    *r = (struct receipt_read){.d = d, .done = done, .ctx = ctx};
    write_hash(&r->hash, d, name);
    return r;
}

static void look_in_hour(struct receipt_read *r);

static void on_looked(void *ctx, enum bh_err err, const struct store_scan *s)
{
    struct receipt_read *r = ctx;

    r->scan = NULL;
    if (err == BH_OK && s->n_records == 0 && r->hour > r->last) {
        r->hour--;
        look_in_hour(r);
        return;
    }
    struct receipt_record found;
    struct buf json = BUF_INIT;
    bool known =
        err == BH_OK && s->n_records > 0 &&
        record_read(r->d->records, &receipt_form, s->records[0].key, s->records[0].value, &found);
    if (known) {
        struct jw w = jw_begin(&json);
        jw_value(&w, found.answer.value);
    }
    r->done(r->ctx, known ? buf_str(&json) : STR_NULL, NULL);
    buf_done(&json);
    receipt_cancel(&r);
}

static void look_in_hour(struct receipt_read *r)
{
    struct buf key = BUF_INIT;

    write_hour(&key, r->hour);
    buf_add_str(&key, buf_str(&r->hash));
    r->scan = records_scan(r->d->env.store, receipt_form.ns, buf_str(&key), STR_NULL, 1, false,
                           on_looked, r);
    buf_done(&key);
}

struct receipt_read *receipt_find(struct dispatch *d, const struct receipt_name *name,
                                  int64_t at_ms, receipt_cb *done, void *ctx)
{
    struct receipt_read *r = read_new(d, name, done, ctx);
    int64_t now = hour_now(d->receipts);

    r->hour = at_ms != 0 ? (at_ms + BACK_MS) / HOUR_MS : now;
    r->last = at_ms != 0 ? (at_ms - BACK_MS) / HOUR_MS : now - KEPT_HOURS;
    look_in_hour(r);
    return r;
}

void receipt_cancel(struct receipt_read **r)
{
    if (*r != NULL) {
        records_cancel(&(*r)->scan);
        buf_done(&(*r)->hash);
        free(*r);
    }
    *r = NULL;
}

/* ---- repeating ---- */

void receipt_add_warning(struct json_parser *parser, struct str json, struct str warning,
                         bool arrived, struct buf *out)
{
    struct jw w = jw_begin(out);
    struct json doc = {0};
    bool known = json_parse(parser, json, &doc);
    bool stale = arrived && json_as_bool(json_get(doc, "delivery_skipped"), false);

    jw_obj(&w);
    for (struct json_iter it = {0}; known && json_next(doc, &it);)
        if (!str_eq(it.key, STR("warnings")) &&
            !(stale && str_eq(it.key, STR("delivery_skipped")))) {
            jw_key_str(&w, it.key);
            jw_value(&w, it.value);
        }
    jw_karr(&w, "warnings");
    for (struct json_iter it = {0}; !stale && json_next(json_get(doc, "warnings"), &it);)
        jw_value(&w, it.value);
    jw_str(&w, warning);
    jw_end_arr(&w);
    jw_end_obj(&w);
}

/* ---- receipts of deliveries ---- */

#define LINE_BYTES 150 /* of a receipt in its record, besides hash and answer */

enum { LOOK_RECORDS = 16 };

static void write_batch_key(struct buf *out, int64_t at_ms, uint64_t number)
{
    buf_printf(out, "%0*llx%016llx", TIME_CHARS, (unsigned long long)(at_ms > 0 ? at_ms : 0),
               (unsigned long long)number);
}

/* ---- keeping ---- */

static void on_written(void *ctx, enum bh_err err)
{
    struct delivered_batch *b = ctx;

    list_remove(&b->link);
    while (!list_is_empty(&b->entries)) {
        struct delivered_entry *e = list_first(&b->entries, struct delivered_entry, link);
        list_remove(&e->link);
        e->done(e->ctx, err);
    }
    free(b);
}

static void on_turn(struct timer *timer)
{
    struct receipts *t = container_of(timer, struct receipts, turn);
    struct delivered_batch *b = xcalloc(1, sizeof *b);
    struct buf key = BUF_INIT;

    list_init(&b->entries);
    while (!list_is_empty(&t->filling))
        list_move(t->filling.next, &b->entries);
    list_append(&t->batches, &b->link);
    write_batch_key(&key, t->at_ms, dispatch_number(t->d));
    struct delivered_record r = {.key = buf_str(&key), .n = t->n_lines};
    r.lines = xcalloc(t->n_lines, sizeof *r.lines);
    for (size_t i = 0; i < t->n_lines; i++)
        r.lines[i] =
            (struct delivered_line){str_of(t->lines[i].of),
                                    {.text = str_make(t->texts.p + t->lines[i].at, t->lines[i].n)},
                                    t->lines[i].facts};
    b->put = record_put(t->d->env.store, &delivered_form, NULL, &r, true, on_written, b);
    free(r.lines);
    buf_reset(&t->texts);
    t->n_lines = 0;
    buf_done(&key);
}

void delivered_keep(struct receipts *t, const struct receipt_name *name, struct str json,
                    const struct delivered_facts *facts, struct delivered_entry *e,
                    store_put_cb *done, void *ctx)
{
    struct buf of = BUF_INIT;

    if (t->n_lines == 0)
        t->at_ms = clock_wall_ms(t->d->env.clock);
    add(t, name->tenant, hour_now(t), HASH_CHARS + LINE_BYTES + json.n);
    if (t->n_lines == t->cap_lines) {
        t->cap_lines = t->cap_lines != 0 ? 2 * t->cap_lines : 64;
        t->lines = xrealloc(t->lines, t->cap_lines * sizeof *t->lines);
    }
    write_hash(&of, t->d, name);
    snprintf(t->lines[t->n_lines].of, HASH_CHARS + 1, "%s", buf_z(&of));
    t->lines[t->n_lines].at = t->texts.n;
    t->lines[t->n_lines].facts = *facts;
    t->lines[t->n_lines++].n = json.n;
    buf_add_str(&t->texts, json);
    buf_done(&of);
    e->done = done;
    e->ctx = ctx;
    list_init(&e->link);
    list_append(&t->filling, &e->link);
    if (!timer_is_set(&t->turn))
        timer_set(t->d->env.clock, &t->turn, 0);
}

void delivered_forget(struct delivered_entry *e)
{
    if (e->done != NULL)
        list_remove(&e->link);
    e->done = NULL;
}

/* ---- finding ---- */

static record_scan_cb on_scanned;

static void look_on(struct receipt_read *l, struct str after)
{
    l->scan = records_scan(l->d->env.store, delivered_form.ns, STR(""), after, LOOK_RECORDS,
                           l->back, on_scanned, l);
}

static void look_from_delivery(struct receipt_read *l)
{
    BUF_LOCAL from = BUF_INIT;

    write_batch_key(&from, l->at_ms, 0);
    look_on(l, buf_str(&from));
}

static void on_scanned(void *ctx, enum bh_err err, const struct store_scan *s)
{
    struct receipt_read *l = ctx;
    size_t n = err == BH_OK ? s->n_records : 0;
    struct buf json = BUF_INIT;
    struct jw w = jw_begin(&json);
    struct delivered_facts facts = {0};
    struct delivered_record r;

    l->scan = NULL;
    for (size_t i = 0; i < n && json.n == 0; i++) {
        if (!record_read(l->d->records, &delivered_form, s->records[i].key, s->records[i].value,
                         &r))
            continue;
        for (size_t k = 0; k < r.n && json.n == 0; k++)
            if (str_eq(r.lines[k].of, buf_str(&l->hash))) {
                jw_value(&w, r.lines[k].answer.value);
                facts = r.lines[k].facts;
            }
        record_done(&delivered_form, &r);
    }
    int64_t last_ms = n > 0 ? (int64_t)records_number(s->records[n - 1].key, TIME_CHARS) : 0;
    bool more = n > 0 && (l->back ? last_ms >= l->at_ms - BACK_MS : last_ms <= l->at_ms + AHEAD_MS);
    if (json.n == 0 && more) {
        look_on(l, s->records[n - 1].key);
        return;
    }
    if (json.n == 0 && !l->back) {
        l->back = true;
        look_from_delivery(l);
        return;
    }
    l->done(l->ctx, json.n > 0 ? buf_str(&json) : STR_NULL, json.n > 0 ? &facts : NULL);
    receipt_cancel(&l);
    buf_done(&json);
}

struct receipt_read *delivered_find(struct dispatch *d, const struct receipt_name *name,
                                    int64_t at_ms, receipt_cb *done, void *ctx)
{
    struct receipt_read *l = read_new(d, name, done, ctx);

    l->at_ms = at_ms;
    look_from_delivery(l);
    return l;
}

/* ---- life ---- */

void receipts_expire(struct receipts *t)
{
    struct store *store = t->d->env.store;
    int64_t now_ms = clock_wall_ms(t->d->env.clock), first = now_ms / HOUR_MS - HOURS + 1;
    struct buf end = BUF_INIT;
    void *at;

    write_hour(&end, now_ms / HOUR_MS - KEPT_HOURS);
    records_clear(store, receipt_form.ns, STR(""), buf_str(&end));
    buf_reset(&end);
    write_batch_key(&end, now_ms - KEPT_HOURS * (int64_t)HOUR_MS, 0);
    records_clear(store, delivered_form.ns, STR(""), buf_str(&end));
    buf_done(&end);
    for (size_t pos = 0; map_next(&t->shares, &pos, &at);) {
        struct share *s = at;
        for (size_t i = 0; i < HOURS; i++) {
            if (s->of[i].hour >= first)
                continue;
            s->bytes -= s->of[i].bytes;
            s->of[i].bytes = 0;
        }
        tell(t, s);
    }
}

struct receipts *receipts_new(struct dispatch *d)
{
    struct receipts *t = xcalloc(1, sizeof *t);

    t->d = d;
    t->sweeps[0] = sweep_start(d->env.store, d->env.clock, receipt_form.ns, 0, &receipt_pass, t);
    t->sweeps[1] =
        sweep_start(d->env.store, d->env.clock, delivered_form.ns, 0, &delivered_pass, t);
    list_init(&t->filling);
    list_init(&t->batches);
    timer_init(&t->turn, on_turn);
    return t;
}

void receipts_free(struct receipts *t)
{
    void *s;

    if (t == NULL)
        return;
    for (int i = 0; i < 2; i++)
        sweep_stop(&t->sweeps[i]);
    for (size_t pos = 0; map_next(&t->shares, &pos, &s);)
        free(s);
    map_done(&t->shares);
    timer_stop(t->d->env.clock, &t->turn);
    list_each (&t->batches, it, nxt) {
        struct delivered_batch *b = list_entry(it, struct delivered_batch, link);
        store_put_cancel(&b->put);
        free(b);
    }
    buf_done(&t->texts);
    free(t->lines);
    free(t);
}
