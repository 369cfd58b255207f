/* disk.c - see disk.h. */
#include "store/memory/disk.h"
#include <assert.h>
#include <stdlib.h>
#include "base/mem.h"
#include "store/result.h"

static char *mem_copy(struct str s)
{
    char *p = xmalloc(s.n + 1);
    if (s.n > 0)
        memcpy(p, s.p, s.n);
    return p;
}

static void *mem_make_room(void *array, size_t *n, size_t *cap, size_t size, size_t pos)
{
    if (*n == *cap) {
        *cap = *cap == 0 ? 16 : *cap * 2;
        array = xrealloc(array, *cap * size);
    }
    char *at = (char *)array + pos * size;
    memmove(at + size, at, (*n - pos) * size);
    ++*n;
    return array;
}

static void mem_take_out(void *array, size_t *n, size_t size, size_t pos)
{
    char *at = (char *)array + pos * size;
    memmove(at, at + size, (--*n - pos) * size);
}

void mem_disk_done(struct mem_disk *d)
{
    for (size_t i = 0; i < d->n_rows; i++) {
        free((char *)d->rows[i].frame.p);
        free((char *)d->rows[i].parked.p);
    }
    for (size_t i = 0; i < d->n_records; i++) {
        free(d->records[i]->ns);
        free(d->records[i]->key);
        free(d->records[i]->value);
        free(d->records[i]);
    }
    free(d->rows);
    free(d->records);
    free(d->keys);
    leases_done(&d->leases);
}

/* ---- records ---- */

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

static enum bh_err mem_tx(struct mem_disk *d, struct store_tx *t)
{
    struct undo *undo = xcalloc(t->n + 1, sizeof *undo);
    size_t ran = 0;

    for (; ran < t->n; ran++) {
        remember(d, &t->items[ran], &undo[ran]);
        if (!run_kv(d, &t->items[ran], undo[ran].existed))
            break;
    }
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

static void mem_erase_records(struct mem_disk *d, struct store_erase *e)
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

static void mem_scan(struct mem_disk *d, struct store_scan *s)
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

void mem_disk_load_records(const struct mem_disk *d, const char *ns, struct str prefix,
                           store_record_cb *cb, void *ctx)
{
    for (size_t i = record_pos(d, ns, prefix); i < d->n_records; i++) {
        const struct mem_record *r = d->records[i];
        if (strcmp(r->ns, ns) != 0 || !str_starts(record_key(r), prefix))
            return;
        cb(ctx, record_key(r), str_make(r->value, r->value_n));
    }
}

/* ---- rows and deduplication keys ---- */
/* A sorted array: ids mostly come in ascending order, so inserting is appending; everything else
 * is a binary search. */

/* Where @id is or would be. */
static size_t row_pos(const struct mem_disk *d, uint64_t id)
{
    size_t lo = 0, hi = d->n_rows;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (d->rows[mid].id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static struct store_row *row_find(const struct mem_disk *d, uint64_t id)
{
    size_t pos = row_pos(d, id);
    return pos < d->n_rows && d->rows[pos].id == id ? &d->rows[pos] : NULL;
}

const struct store_row *mem_disk_row(const struct mem_disk *d, uint64_t id)
{
    return row_find(d, id);
}

static void row_remove(struct mem_disk *d, struct store_row *row)
{
    if (row == NULL)
        return;
    free((char *)row->frame.p);
    free((char *)row->parked.p);
    mem_take_out(d->rows, &d->n_rows, sizeof *row, (size_t)(row - d->rows));
}

/* ---- append ---- */

static void row_insert(struct mem_disk *d, const struct store_append *a)
{
    size_t pos = row_pos(d, a->id);

    if (pos < d->n_rows && d->rows[pos].id == a->id)
        return;
    d->rows = mem_make_room(d->rows, &d->n_rows, &d->cap_rows, sizeof *d->rows, pos);
    d->rows[pos] = (struct store_row){.id = a->id,
                                      .box = a->box,
                                      .row_kind = a->row_kind,
                                      .flags = a->flags,
                                      .at_ms = a->at_ms,
                                      .frame = {mem_copy(a->frame), a->frame.n},
                                      .frame_bytes = a->frame.n};
}

static void add_key(struct mem_disk *d, struct hash128 key, int64_t at_ms)
{
    d->keys = mem_make_room(d->keys, &d->n_keys, &d->cap_keys, sizeof *d->keys, d->n_keys);
    d->keys[d->n_keys - 1] = (struct mem_key){key, at_ms};
}

static void mem_append(struct mem_disk *d, const struct store_append *a)
{
    if (!a->shrunk)
        row_insert(d, a);
    if (a->has_key)
        add_key(d, a->key, a->at_ms);
    for (size_t i = 0; a->extra != NULL && i < a->extra->n_keys; i++)
        add_key(d, a->extra->keys[i], a->at_ms);
    for (size_t i = 0; a->extra != NULL && i < a->extra->n_puts; i++)
        run_kv(d, &a->extra->puts[i], false);
    if (a->replaces != 0)
        row_remove(d, row_find(d, a->replaces));
}

void mem_disk_forget_keys(struct mem_disk *d, int64_t before_ms)
{
    size_t kept = 0;

    for (size_t i = 0; i < d->n_keys; i++)
        if (d->keys[i].at_ms >= before_ms)
            d->keys[kept++] = d->keys[i];
    d->n_keys = kept;
}

/* ---- the owner's writes ---- */

static void mem_ack(struct mem_disk *d, const struct store_ack *a)
{
    for (size_t i = 0; i < a->n; i++)
        row_remove(d, row_find(d, a->ids[i]));
}

static void mem_mark(struct mem_disk *d, const struct store_mark *m)
{
    struct store_row *row = row_find(d, m->id);

    if (row == NULL)
        return;
    free((char *)row->parked.p);
    row->attempts = m->attempts;
    if (m->frame.p != NULL) {
        free((char *)row->frame.p);
        row->frame = str_make(mem_copy(m->frame), m->frame.n);
        row->frame_bytes = m->frame.n;
    }
    row->parked = m->parked.p != NULL ? str_make(mem_copy(m->parked), m->parked.n) : STR_NULL;
}

/* ---- reads ---- */

static void mem_fetch(struct mem_disk *d, struct store_fetch *f)
{
    struct result r = result_begin(f->max_bytes, 0);

    for (f->n_used = 0; f->n_used < f->n; f->n_used++) {
        const struct store_row *row = row_find(d, f->ids[f->n_used]);
        if (row == NULL)
            continue;
        if (!result_has_room(&r, row->frame.n))
            break;
        result_add_row(&r, row);
    }
    result_end_fetch(&r, f);
}

void mem_disk_load_rows(const struct mem_disk *d, store_row_cb *cb, void *ctx)
{
    for (size_t i = 0; i < d->n_rows; i++) {
        struct store_row row = d->rows[i];
        if ((row.flags & STORE_ROW_STAGED) == 0)
            row.frame = STR_NULL;
        cb(ctx, &row);
    }
}

void mem_disk_load_keys(const struct mem_disk *d, int64_t since_ms, store_key_cb *cb, void *ctx)
{
    for (size_t i = 0; i < d->n_keys; i++)
        if (d->keys[i].at_ms >= since_ms)
            cb(ctx, d->keys[i].key, d->keys[i].at_ms);
}

/* ---- any of them ---- */

enum bh_err mem_disk_run(struct mem_disk *d, struct store_op *op, int64_t now_ms)
{
    switch ((enum store_kind)op->kind) {
    case STORE_APPEND:
        mem_append(d, container_of(op, struct store_append, op));
        return BH_OK;
    case STORE_ACK:
        mem_ack(d, container_of(op, struct store_ack, op));
        return BH_OK;
    case STORE_MARK:
        mem_mark(d, container_of(op, struct store_mark, op));
        return BH_OK;
    case STORE_TX:
        return mem_tx(d, container_of(op, struct store_tx, op));
    case STORE_ERASE:
        mem_erase_records(d, container_of(op, struct store_erase, op));
        return BH_OK;
    case STORE_LEASE:
        return leases_run(&d->leases, container_of(op, struct store_lease, op), now_ms);
    case STORE_FETCH:
        mem_fetch(d, container_of(op, struct store_fetch, op));
        return BH_OK;
    case STORE_SCAN:
        mem_scan(d, container_of(op, struct store_scan, op));
        return BH_OK;
    }
    return BH_REFUSED;
}
