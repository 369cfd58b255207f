/* result.c - see result.h. */
#include "store/result.h"
#include <endian.h>
#include <stdlib.h>
#include "base/arena.h"
#include "base/buf.h"

struct result result_begin(size_t max_bytes, size_t limit)
{
    struct result r = {.max_bytes = max_bytes, .limit = limit != 0 ? limit : SIZE_MAX};

    if (max_bytes == 0 || max_bytes > STORE_READ_BYTES)
        r.max_bytes = STORE_READ_BYTES;
    r.arena = xcalloc(1, sizeof *r.arena);
    *r.arena = ARENA_INIT;
    return r;
}

bool result_has_room(const struct result *r, size_t bytes)
{
    return r->n < r->limit && (r->n == 0 || r->bytes + bytes <= r->max_bytes);
}

void result_add_row(struct result *r, const struct store_row *row)
{
    r->rows = xgrow(r->rows, r->n, &r->cap, sizeof *r->rows);
    struct store_row *to = &r->rows[r->n++];
    *to = *row;
    to->frame = arena_str(r->arena, row->frame);
    to->parked = arena_str(r->arena, row->parked);
    r->bytes += row->frame.n;
}

void result_add_record(struct result *r, struct str key, struct str value)
{
    r->records = xgrow(r->records, r->n, &r->cap, sizeof *r->records);
    r->bytes += key.n + value.n;
    r->records[r->n++] =
        (struct store_record){arena_str(r->arena, key), arena_str(r->arena, value)};
}

static void memory_free(void *memory)
{
    if (memory != NULL)
        arena_done(memory);
    free(memory);
}

void result_drop(struct result *r)
{
    free(r->rows);
    free(r->records);
    memory_free(r->arena);
    *r = (struct result){0};
}

bool scan_prefix_end(struct buf *out, struct str prefix)
{
    while (prefix.n > 0 && (uint8_t)prefix.p[prefix.n - 1] == 0xff)
        prefix.n--;
    if (prefix.n == 0)
        return false;
    buf_add_str(out, prefix);
    out->p[out->n - 1]++;
    return true;
}

void scan_bounds(const struct store_scan *s, struct buf *from, struct buf *to, bool *ret_ends)
{
    *ret_ends = scan_prefix_end(to, s->prefix);
    buf_add_str(from, s->prefix);
    if (s->after.p == NULL)
        return;
    if (s->reverse) {
        if (!*ret_ends || str_cmp(s->after, buf_str(to)) < 0) {
            buf_reset(to);
            buf_add_str(to, s->after);
            *ret_ends = true;
        }
    } else if (str_cmp(s->after, s->prefix) >= 0) {
        buf_reset(from);
        buf_add_str(from, s->after);
        buf_add_c(from, '\0'); /* the next possible key */
    }
}

/* ---- deduplication keys ---- */

void result_add_key(struct buf *out, struct hash128 key)
{
    uint64_t words[2] = {htole64(key.lo), htole64(key.hi)};

    buf_add(out, words, sizeof words);
}

void result_keys(struct str keys, int64_t at_ms, store_key_cb *cb, void *ctx)
{
    uint64_t words[2];

    for (; keys.n >= sizeof words; keys = str_skip(keys, sizeof words)) {
        memcpy(words, keys.p, sizeof words);
        cb(ctx, (struct hash128){.lo = le64toh(words[0]), .hi = le64toh(words[1])}, at_ms);
    }
}

/* ---- the op's answer ---- */

void result_end_fetch(struct result *r, struct store_fetch *f)
{
    f->rows = r->rows;
    f->n_rows = r->n;
    f->memory = r->arena;
}

void result_end_scan(struct result *r, struct store_scan *s, bool more)
{
    s->records = r->records;
    s->n_records = r->n;
    s->memory = r->arena;
    s->more = more;
}

void result_clear(struct store_op *op)
{
    struct store_fetch *f = container_of(op, struct store_fetch, op);
    struct store_scan *s = container_of(op, struct store_scan, op);

    if (op->kind == STORE_FETCH)
        f->rows = NULL, f->n_rows = 0, f->n_used = 0, f->memory = NULL;
    else if (op->kind == STORE_SCAN)
        s->records = NULL, s->n_records = 0, s->more = false, s->memory = NULL;
}

void store_fetch_free(struct store_fetch *f)
{
    free(f->rows);
    memory_free(f->memory);
    result_clear(&f->op);
}

void store_scan_free(struct store_scan *s)
{
    free(s->records);
    memory_free(s->memory);
    result_clear(&s->op);
}

void result_free(struct store_op *op)
{
    if (op->kind == STORE_FETCH)
        store_fetch_free(container_of(op, struct store_fetch, op));
    else if (op->kind == STORE_SCAN)
        store_scan_free(container_of(op, struct store_scan, op));
}

size_t result_bytes(const struct store_op *op)
{
    const struct store_fetch *f = container_of(op, const struct store_fetch, op);
    const struct store_scan *s = container_of(op, const struct store_scan, op);
    size_t bytes = 0;

    for (size_t i = 0; op->kind == STORE_FETCH && i < f->n_rows; i++)
        bytes += sizeof f->rows[i] + f->rows[i].frame.n + f->rows[i].parked.n;
    for (size_t i = 0; op->kind == STORE_SCAN && i < s->n_records; i++)
        bytes += sizeof s->records[i] + s->records[i].key.n + s->records[i].value.n;
    return bytes;
}
