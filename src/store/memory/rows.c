/* rows.c - mailbox rows and deduplication keys of the stores that run in memory.
 *
 * A sorted array: numbers mostly come in ascending order, so inserting is appending; everything
 * else is a binary search. */
#include <assert.h>
#include <stdlib.h>
#include "base/mem.h"
#include "store/memory/disk.h"
#include "store/result.h"

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

void mem_append(struct mem_disk *d, const struct store_append *a)
{
    if (!a->shrunk)
        row_insert(d, a);
    if (a->has_key) {
        d->keys = mem_make_room(d->keys, &d->n_keys, &d->cap_keys, sizeof *d->keys, d->n_keys);
        d->keys[d->n_keys - 1] = (struct mem_key){a->key, a->at_ms};
    }
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

void mem_ack(struct mem_disk *d, const struct store_ack *a)
{
    for (size_t i = 0; i < a->n; i++)
        row_remove(d, row_find(d, a->ids[i]));
}

void mem_mark(struct mem_disk *d, const struct store_mark *m)
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

void mem_fetch(struct mem_disk *d, struct store_fetch *f)
{
    struct result r = result_begin(f->max_bytes, 0);

    for (f->n_used = 0; f->n_used < f->n; f->n_used++) {
        const struct store_row *row = row_find(d, f->ids[f->n_used]);
        if (row == NULL)
            continue;
        if (!result_has_room(&r, row->frame.n))
            break;
        result_add_row(&r, row, true);
    }
    result_end_fetch(&r, f);
}

void mem_list(struct mem_disk *d, struct store_list *l)
{
    struct result r = result_begin(l->max_bytes, l->limit);
    bool more = false;

    for (size_t i = row_pos(d, l->after + 1); i < d->n_rows && !more; i++) {
        const struct store_row *row = &d->rows[i];
        if (row->box != l->box)
            continue;
        more = !result_has_room(&r, l->bodies ? row->frame.n : 0);
        if (!more)
            result_add_row(&r, row, l->bodies);
    }
    result_end_list(&r, l, more);
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
