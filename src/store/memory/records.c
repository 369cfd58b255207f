/* records.c - named records of the stores that run in memory: one array of pointers, sorted. */
#include <stdlib.h>
#include "base/mem.h"
#include "store/memory/disk.h"
#include "store/result.h"

static struct str record_key(const struct mem_record *r)
{
    return str_make(r->key, r->key_n);
}

/* Where (@ns, @key) is or would be. */
static size_t record_pos(const struct mem_disk *d, const char *ns, struct str key)
{
    size_t lo = 0, hi = d->n_records;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int cmp = strcmp(d->records[mid]->ns, ns);
        if (cmp == 0)
            cmp = str_cmp(record_key(d->records[mid]), key);
        if (cmp < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static bool record_is_at(const struct mem_disk *d, size_t pos, const char *ns, struct str key)
{
    return pos < d->n_records && strcmp(d->records[pos]->ns, ns) == 0 &&
           str_eq(record_key(d->records[pos]), key);
}

static void record_set(struct mem_disk *d, const char *ns, struct str key, struct str value)
{
    size_t pos = record_pos(d, ns, key);

    if (record_is_at(d, pos, ns, key)) {
        free(d->records[pos]->value);
    } else {
        d->records =
            mem_make_room(d->records, &d->n_records, &d->cap_records, sizeof *d->records, pos);
        d->records[pos] = xmalloc(sizeof **d->records);
        *d->records[pos] =
            (struct mem_record){.ns = xstrdup(ns), .key = mem_copy(key), .key_n = key.n};
    }
    d->records[pos]->value = mem_copy(value);
    d->records[pos]->value_n = value.n;
}

static void remove_at(struct mem_disk *d, size_t pos)
{
    struct mem_record *r = d->records[pos];

    free(r->ns);
    free(r->key);
    free(r->value);
    free(r);
    mem_take_out(d->records, &d->n_records, sizeof *d->records, pos);
}

static void record_remove(struct mem_disk *d, const char *ns, struct str key)
{
    size_t pos = record_pos(d, ns, key);
    if (record_is_at(d, pos, ns, key))
        remove_at(d, pos);
}

/* ---- transactions ---- */

struct undo { /* what was there before an item ran */
    bool existed;
    char *value; /* owned */
    size_t value_n;
};

static void remember(struct mem_disk *d, const struct store_kv *kv, struct undo *u)
{
    size_t pos = record_pos(d, kv->ns, kv->key);
    *u = (struct undo){.existed = record_is_at(d, pos, kv->ns, kv->key)};
    if (!u->existed)
        return;
    u->value_n = d->records[pos]->value_n;
    u->value = mem_copy(str_make(d->records[pos]->value, u->value_n));
}

static bool run_kv(struct mem_disk *d, const struct store_kv *kv, bool existed)
{
    if ((kv->verb == KV_INSERT && existed) || (kv->verb == KV_CONSUME && !existed))
        return false;
    if (kv->verb == KV_PUT || kv->verb == KV_INSERT)
        record_set(d, kv->ns, kv->key, kv->value);
    else
        record_remove(d, kv->ns, kv->key);
    return true;
}

enum bh_err mem_tx(struct mem_disk *d, struct store_tx *t)
{
    struct undo *undo = xcalloc(t->n + 1, sizeof *undo);
    size_t ran = 0;

    for (; ran < t->n; ran++) {
        remember(d, &t->items[ran], &undo[ran]);
        if (!run_kv(d, &t->items[ran], undo[ran].existed))
            break;
    }
    t->ret_failed = ran;
    bool ok = ran == t->n;
    free(undo[ran].value);
    while (ran-- > 0) {
        const struct store_kv *kv = &t->items[ran];
        if (!ok && undo[ran].existed)
            record_set(d, kv->ns, kv->key, str_make(undo[ran].value, undo[ran].value_n));
        else if (!ok)
            record_remove(d, kv->ns, kv->key);
        free(undo[ran].value);
    }
    free(undo);
    return ok ? BH_OK : BH_CONFLICT;
}

void mem_erase_records(struct mem_disk *d, struct store_erase *e)
{
    size_t pos = record_pos(d, e->ns, e->prefix);

    e->n = 0;
    e->more = false;
    while (pos < d->n_records && strcmp(d->records[pos]->ns, e->ns) == 0) {
        struct str key = record_key(d->records[pos]);
        if (!str_starts(key, e->prefix) || (e->end.p != NULL && str_cmp(key, e->end) >= 0))
            return;
        if (e->n == STORE_ERASE_ITEMS) {
            e->more = true;
            return;
        }
        remove_at(d, pos);
        e->n++;
    }
}

/* ---- scan ---- */

/* From where on, in the direction of the scan. */
static size_t scan_start(const struct mem_disk *d, const struct store_scan *s)
{
    bool after = s->after.p != NULL;
    size_t pos;

    if (!s->reverse) {
        pos =
            record_pos(d, s->ns, after && str_cmp(s->after, s->prefix) > 0 ? s->after : s->prefix);
        return after && record_is_at(d, pos, s->ns, s->after) ? pos + 1 : pos;
    }
    pos = record_pos(d, s->ns, s->prefix);
    while (pos < d->n_records && strcmp(d->records[pos]->ns, s->ns) == 0 &&
           str_starts(record_key(d->records[pos]), s->prefix) &&
           (!after || str_cmp(record_key(d->records[pos]), s->after) < 0))
        pos++;
    return pos; /* the first one behind the end: the walk goes down from here */
}

void mem_scan(struct mem_disk *d, struct store_scan *s)
{
    struct result r = result_begin(s->max_bytes, s->limit);
    size_t pos = scan_start(d, s);
    bool more = false;

    for (;; pos += s->reverse ? 0 : 1) {
        if (s->reverse ? pos-- == 0 : pos >= d->n_records)
            break;
        const struct mem_record *rec = d->records[pos];
        struct str value = s->keys_only ? STR_NULL : str_make(rec->value, rec->value_n);
        if (strcmp(rec->ns, s->ns) != 0 || !str_starts(record_key(rec), s->prefix))
            break;
        more = !result_has_room(&r, rec->key_n + value.n);
        if (more)
            break;
        result_add_record(&r, record_key(rec), value);
    }
    result_end_scan(&r, s, more);
}

void mem_disk_load_under(const struct mem_disk *d, const char *ns, struct str prefix,
                         store_record_cb *cb, void *ctx)
{
    for (size_t i = record_pos(d, ns, prefix); i < d->n_records; i++) {
        const struct mem_record *r = d->records[i];
        if (strcmp(r->ns, ns) != 0 || !str_starts(record_key(r), prefix))
            return;
        cb(ctx, record_key(r), str_make(r->value, r->value_n));
    }
}
