/* delivered.c - design.  (delivered.h has the contract.)
 *
 * A line of a record is the hash of a receipt's name, a blank and the receipt.  The timer that ends
 * a turn's record fires before the store hands its turn over, so rows and receipts go together.
 *
 * Looking goes from the time it came backwards: what was taken before we started has the time of
 * its transaction, which began earlier. */
#include "dispatch/delivered.h"
#include <stdlib.h>
#include "base/mem.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/receipt_room.h"
#include "dispatch/records.h"
#include "relay/in/inside.h"

#define KEPT_MS (25 * INT64_C(3600000))
#define BACK_MS 10000 /* so long before the time of a key its receipt may have been written */
#define TIME_CHARS 12
#define HASH_CHARS 32

enum { LOOK_RECORDS = 16 };

struct delivered_batch {
    struct list link; /* delivered->batches */
    struct list entries;
    struct store_put *put;
};

struct delivered {
    struct dispatch *d;  /* borrowed */
    struct list filling; /* entries of this turn */
    struct buf lines;    /* their receipts */
    int64_t at_ms;       /* when the first of them came */
    struct list batches; /* owned; on their way to the disk */
    struct timer turn;
};

static void write_key(struct buf *out, int64_t at_ms, uint64_t number)
{
    buf_printf(out, "%0*llx%016llx", TIME_CHARS, (unsigned long long)(at_ms > 0 ? at_ms : 0),
               (unsigned long long)number);
}

static void write_hash(struct buf *out, const struct dispatch *d, const struct receipt_name *name)
{
    struct hash128 h = receipt_hash(d, name);

    buf_printf(out, "%016llx%016llx ", (unsigned long long)h.hi, (unsigned long long)h.lo);
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
    struct delivered *t = container_of(timer, struct delivered, turn);
    struct delivered_batch *b = xcalloc(1, sizeof *b);
    struct buf key = BUF_INIT;

    list_init(&b->entries);
    while (!list_is_empty(&t->filling))
        list_move(t->filling.next, &b->entries);
    list_append(&t->batches, &b->link);
    write_key(&key, t->at_ms, dispatch_number(t->d));
    struct store_kv item = {KV_PUT, DELIVERED_NS, buf_str(&key), buf_str(&t->lines)};
    b->put = store_put(t->d->env.store, &item, 1, true, on_written, b);
    buf_reset(&t->lines);
    buf_done(&key);
}

struct delivered *delivered_new(struct dispatch *d)
{
    struct delivered *t = xcalloc(1, sizeof *t);

    t->d = d;
    list_init(&t->filling);
    list_init(&t->batches);
    timer_init(&t->turn, on_turn);
    return t;
}

void delivered_free(struct delivered *t)
{
    if (t == NULL)
        return;
    timer_stop(t->d->env.clock, &t->turn);
    list_each (&t->batches, it, nxt) {
        struct delivered_batch *b = list_entry(it, struct delivered_batch, link);
        store_put_cancel(&b->put);
        free(b);
    }
    buf_done(&t->lines);
    free(t);
}

void delivered_keep(struct delivered *t, const struct receipt_name *name, struct str json,
                    struct delivered_entry *e, store_put_cb *done, void *ctx)
{
    if (t->lines.n == 0)
        t->at_ms = clock_wall_ms(t->d->env.clock);
    receipt_room_wrote(t->d->receipt_room, name->tenant, HASH_CHARS + 2 + json.n);
    write_hash(&t->lines, t->d, name);
    buf_add_str(&t->lines, json);
    buf_add_c(&t->lines, '\n');
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

struct delivered_look {
    struct delivered *t; /* borrowed */
    struct record_scan *scan;
    struct buf hash;
    int64_t first_ms; /* no further back */
    receipt_cb *done;
    void *ctx;
};

static void look_free(struct delivered_look *l)
{
    records_cancel(&l->scan);
    buf_done(&l->hash);
    free(l);
}

static struct str find_line(struct str lines, struct str hash)
{
    struct str line;

    while (str_split(&lines, '\n', &line))
        if (str_starts(line, hash))
            return str_skip(line, hash.n);
    return STR_NULL;
}

static bool is_too_old(const struct delivered_look *l, struct str key)
{
    struct buf first = BUF_INIT;

    write_key(&first, l->first_ms, 0);
    bool old = str_cmp(key, buf_str(&first)) < 0;
    buf_done(&first);
    return old;
}

static record_scan_cb on_scanned;

static void look(struct delivered_look *l, struct str below)
{
    l->scan = records_scan(l->t->d->env.store, DELIVERED_NS, STR(""), below, LOOK_RECORDS, true,
                           on_scanned, l);
}

static void on_scanned(void *ctx, enum bh_err err, const struct store_scan *s)
{
    struct delivered_look *l = ctx;
    size_t n = err == BH_OK ? s->n_records : 0;
    struct str json = STR_NULL;

    l->scan = NULL;
    for (size_t i = 0; i < n && json.p == NULL; i++)
        json = find_line(s->records[i].value, buf_str(&l->hash));
    if (json.p == NULL && n > 0 && !is_too_old(l, s->records[n - 1].key)) {
        look(l, s->records[n - 1].key);
        return;
    }
    l->done(l->ctx, json);
    look_free(l);
}

struct delivered_look *delivered_find(struct delivered *t, const struct receipt_name *name,
                                      int64_t at_ms, receipt_cb *done, void *ctx)
{
    struct delivered_look *l = xcalloc(1, sizeof *l);
    struct buf below = BUF_INIT;

    *l = (struct delivered_look){.t = t, .first_ms = at_ms - BACK_MS, .done = done, .ctx = ctx};
    write_hash(&l->hash, t->d, name);
    write_key(&below, at_ms + PARCEL_TICK_MS, 0);
    look(l, buf_str(&below));
    buf_done(&below);
    return l;
}

void delivered_cancel(struct delivered_look **l)
{
    if (*l != NULL)
        look_free(*l);
    *l = NULL;
}

void delivered_expire(struct delivered *t)
{
    struct buf end = BUF_INIT;

    write_key(&end, clock_wall_ms(t->d->env.clock) - KEPT_MS, 0);
    records_clear(t->d->env.store, DELIVERED_NS, STR(""), buf_str(&end));
    buf_done(&end);
}
