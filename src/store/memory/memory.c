/* memory.c - design.  (memory.h has the contract.)
 *
 * Three sorted arrays: rows by id, records by (namespace, key), keys by arrival.  Ids mostly come
 * in ascending order, so inserting is appending; everything else is a binary search. */
#include "store/memory/memory.h"
#include <stdlib.h>
#include "base/arena.h"
#include "base/clock.h"
#include "base/mem.h"

enum { MEM_QUEUED = 1, MEM_DONE };

struct mem_record { /* all owned; ns and key of one record never change */
    char *ns;
    char *key, *value;
    size_t key_n, value_n;
};

struct mem_key {
    struct hash128 key;
    int64_t at_ms;
};

struct store_memory {
    struct store base;
    struct clock *clock;           /* borrowed */
    struct timer turn;             /* armed while the queue holds something */
    struct store_op *first, **end; /* the queue */
    bool delivering, closed;       /* closed while delivering: freed when that ends */

    struct store_row *rows; /* owned, ascending; frame and parked are owned too */
    size_t n_rows, cap_rows;
    struct mem_record *records; /* owned, in byte order */
    size_t n_records, cap_records;
    struct mem_key *keys; /* owned, in order of arrival */
    size_t n_keys, cap_keys;
    struct store_stats stats;
};

static struct store_memory *memory_of(struct store *st)
{
    return container_of(st, struct store_memory, base);
}

static char *copy_bytes(struct str s) /* any bytes, never NULL */
{
    char *p = xmalloc(s.n + 1);
    if (s.n > 0)
        memcpy(p, s.p, s.n);
    return p;
}

/* Room for one more element of @size at @pos; what follows moves up. */
static void *make_room(void *array, size_t *n, size_t *cap, size_t size, size_t pos)
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

static void take_out(void *array, size_t *n, size_t size, size_t pos)
{
    char *at = (char *)array + pos * size;
    memmove(at, at + size, (--*n - pos) * size);
}

/* ---- rows ---- */

/* Where @id is or would be. */
static size_t row_pos(const struct store_memory *st, uint64_t id)
{
    size_t lo = 0, hi = st->n_rows;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (st->rows[mid].id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static struct store_row *row_find(struct store_memory *st, uint64_t id)
{
    size_t pos = row_pos(st, id);
    return pos < st->n_rows && st->rows[pos].id == id ? &st->rows[pos] : NULL;
}

static void row_done(struct store_row *row)
{
    free((char *)row->frame.p);
    free((char *)row->parked.p);
}

static enum bh_err run_append(struct store_memory *st, const struct store_append *a)
{
    if (!a->shrunk) {
        size_t pos = row_pos(st, a->id);
        if (pos < st->n_rows && st->rows[pos].id == a->id)
            return BH_CONFLICT;
        st->rows = make_room(st->rows, &st->n_rows, &st->cap_rows, sizeof *st->rows, pos);
        st->rows[pos] = (struct store_row){.id = a->id,
                                           .box = a->box,
                                           .row_kind = a->row_kind,
                                           .at_ms = a->at_ms,
                                           .frame = {copy_bytes(a->frame), a->frame.n},
                                           .frame_bytes = a->frame.n};
    }
    st->stats.rows_written += !a->shrunk;
    st->stats.shrunk += a->shrunk;
    if (a->has_key) {
        st->keys = make_room(st->keys, &st->n_keys, &st->cap_keys, sizeof *st->keys, st->n_keys);
        st->keys[st->n_keys - 1] = (struct mem_key){a->key, a->at_ms};
        st->stats.keys_written++;
    }
    return BH_OK;
}

static void run_ack(struct store_memory *st, const struct store_ack *a)
{
    for (size_t i = 0; i < a->n; i++) {
        struct store_row *row = row_find(st, a->ids[i]);
        if (row == NULL)
            continue;
        row_done(row);
        take_out(st->rows, &st->n_rows, sizeof *row, (size_t)(row - st->rows));
    }
}

static void run_mark(struct store_memory *st, const struct store_mark *m)
{
    struct store_row *row = row_find(st, m->id);
    if (row == NULL)
        return;
    free((char *)row->parked.p);
    row->attempts = m->attempts;
    row->parked = m->parked.p != NULL ? str_make(copy_bytes(m->parked), m->parked.n) : STR_NULL;
}

static void run_fetch(struct store_memory *st, struct store_fetch *f)
{
    struct arena *mem = f->memory = xcalloc(1, sizeof *mem);
    size_t bytes = 0;

    f->n_rows = 0;
    f->rows = xcalloc(f->n + 1, sizeof *f->rows);
    for (size_t i = 0; i < f->n; i++) {
        const struct store_row *row = row_find(st, f->ids[i]);
        if (row == NULL)
            continue;
        bytes += row->frame.n;
        if (f->max_bytes > 0 && bytes > f->max_bytes && f->n_rows > 0)
            break;
        f->rows[f->n_rows] = *row;
        f->rows[f->n_rows].frame = arena_str(mem, row->frame);
        f->rows[f->n_rows++].parked = arena_str(mem, row->parked);
    }
}

static void memory_fetch_free(struct store_fetch *f)
{
    free(f->rows);
    if (f->memory != NULL)
        arena_done(f->memory);
    free(f->memory);
    f->rows = NULL;
    f->n_rows = 0;
    f->memory = NULL;
}

/* ---- records ---- */

static struct str record_key(const struct mem_record *r)
{
    return str_make(r->key, r->key_n);
}

/* Where (@ns, @key) is or would be. */
static size_t record_pos(const struct store_memory *st, const char *ns, struct str key)
{
    size_t lo = 0, hi = st->n_records;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int cmp = strcmp(st->records[mid].ns, ns);
        if (cmp == 0)
            cmp = str_cmp(record_key(&st->records[mid]), key);
        if (cmp < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static bool record_is_at(const struct store_memory *st, size_t pos, const char *ns, struct str key)
{
    return pos < st->n_records && strcmp(st->records[pos].ns, ns) == 0 &&
           str_eq(record_key(&st->records[pos]), key);
}

static void record_done(struct mem_record *r)
{
    free(r->ns);
    free(r->key);
    free(r->value);
}

static void record_set(struct store_memory *st, const char *ns, struct str key, struct str value)
{
    size_t pos = record_pos(st, ns, key);

    if (record_is_at(st, pos, ns, key)) {
        free(st->records[pos].value);
    } else {
        st->records =
            make_room(st->records, &st->n_records, &st->cap_records, sizeof *st->records, pos);
        st->records[pos] =
            (struct mem_record){.ns = xstrdup(ns), .key = copy_bytes(key), .key_n = key.n};
    }
    st->records[pos].value = copy_bytes(value);
    st->records[pos].value_n = value.n;
}

static void record_remove(struct store_memory *st, const char *ns, struct str key)
{
    size_t pos = record_pos(st, ns, key);
    if (!record_is_at(st, pos, ns, key))
        return;
    record_done(&st->records[pos]);
    take_out(st->records, &st->n_records, sizeof *st->records, pos);
}

struct undo { /* what was there before an item ran */
    bool existed;
    char *value; /* owned */
    size_t value_n;
};

static void remember(struct store_memory *st, const struct store_kv *kv, struct undo *u)
{
    size_t pos = record_pos(st, kv->ns, kv->key);
    *u = (struct undo){.existed = record_is_at(st, pos, kv->ns, kv->key)};
    if (!u->existed)
        return;
    u->value_n = st->records[pos].value_n;
    u->value = copy_bytes(str_make(st->records[pos].value, u->value_n));
}

static bool run_kv(struct store_memory *st, const struct store_kv *kv, bool existed)
{
    if ((kv->verb == KV_INSERT && existed) || (kv->verb == KV_CONSUME && !existed))
        return false;
    if (kv->verb == KV_PUT || kv->verb == KV_INSERT)
        record_set(st, kv->ns, kv->key, kv->value);
    else
        record_remove(st, kv->ns, kv->key);
    return true;
}

static enum bh_err run_tx(struct store_memory *st, struct store_tx *t)
{
    struct undo *undo = xcalloc(t->n + 1, sizeof *undo);
    size_t ran = 0;

    for (; ran < t->n; ran++) {
        remember(st, &t->items[ran], &undo[ran]);
        if (!run_kv(st, &t->items[ran], undo[ran].existed))
            break;
    }
    t->ret_failed = ran;
    bool ok = ran == t->n;
    free(undo[ran].value);
    while (ran-- > 0) {
        const struct store_kv *kv = &t->items[ran];
        if (!ok && undo[ran].existed)
            record_set(st, kv->ns, kv->key, str_make(undo[ran].value, undo[ran].value_n));
        else if (!ok)
            record_remove(st, kv->ns, kv->key);
        free(undo[ran].value);
    }
    free(undo);
    return ok ? BH_OK : BH_CONFLICT;
}

static bool scan_wants(const struct store_scan *s, struct str key)
{
    if (!str_starts(key, s->prefix))
        return false;
    int cmp = s->after.p != NULL ? str_cmp(key, s->after) : 0;
    return s->after.p == NULL || (s->reverse ? cmp < 0 : cmp > 0);
}

static void run_scan(struct store_memory *st, struct store_scan *s)
{
    struct arena *mem = s->memory = xcalloc(1, sizeof *mem);

    s->n_records = 0;
    s->records = xcalloc(st->n_records + 1, sizeof *s->records);
    for (size_t i = 0; i < st->n_records && (s->limit == 0 || s->n_records < s->limit); i++) {
        const struct mem_record *r = &st->records[s->reverse ? st->n_records - 1 - i : i];
        if (strcmp(r->ns, s->ns) == 0 && scan_wants(s, record_key(r)))
            s->records[s->n_records++] =
                (struct store_record){arena_str(mem, record_key(r)),
                                      arena_str(mem, str_make(r->value, r->value_n))};
    }
}

static void memory_scan_free(struct store_scan *s)
{
    free(s->records);
    if (s->memory != NULL)
        arena_done(s->memory);
    free(s->memory);
    s->records = NULL;
    s->n_records = 0;
    s->memory = NULL;
}

/* ---- the queue ---- */

static enum bh_err run_op(struct store_memory *st, struct store_op *op)
{
    switch ((enum store_kind)op->kind) {
    case STORE_APPEND:
        return run_append(st, container_of(op, struct store_append, op));
    case STORE_ACK:
        run_ack(st, container_of(op, struct store_ack, op));
        return BH_OK;
    case STORE_MARK:
        run_mark(st, container_of(op, struct store_mark, op));
        return BH_OK;
    case STORE_TX:
        return run_tx(st, container_of(op, struct store_tx, op));
    case STORE_FETCH:
        run_fetch(st, container_of(op, struct store_fetch, op));
        return BH_OK;
    case STORE_SCAN:
        run_scan(st, container_of(op, struct store_scan, op));
        return BH_OK;
    }
    return BH_REFUSED;
}

static struct store_op *run_queue(struct store_memory *st)
{
    struct store_op *list = st->first;

    st->first = NULL;
    st->end = &st->first;
    for (struct store_op *op = list; op != NULL; op = op->next) {
        op->err = (uint8_t)run_op(st, op);
        op->state = MEM_DONE;
        st->stats.ops++;
        st->stats.queued--;
    }
    st->stats.commits++;
    return list;
}

static void memory_free(struct store_memory *st)
{
    for (size_t i = 0; i < st->n_rows; i++)
        row_done(&st->rows[i]);
    for (size_t i = 0; i < st->n_records; i++)
        record_done(&st->records[i]);
    free(st->rows);
    free(st->records);
    free(st->keys);
    free(st);
}

static void on_turn(struct timer *t)
{
    struct store_memory *st = container_of(t, struct store_memory, turn);
    struct store_op *op = run_queue(st);

    st->delivering = true;
    while (op != NULL && !st->closed) {
        struct store_op *next = op->next;
        if (op->done != NULL)
            op->done(op, (enum bh_err)op->err);
        op = next;
    }
    st->delivering = false;
    if (st->closed)
        memory_free(st);
}

static void memory_submit(struct store *base, struct store_op *op, bool urgent)
{
    struct store_memory *st = memory_of(base);

    op->next = NULL;
    op->state = MEM_QUEUED;
    if (op->kind == STORE_APPEND)
        container_of(op, struct store_append, op)->shrunk = false;
    *st->end = op;
    st->end = &op->next;
    st->stats.queued++;
    if (!timer_is_set(&st->turn))
        timer_set(st->clock, &st->turn, 0);
}

static bool memory_shrink(struct store *base, struct store_append *a)
{
    a->shrunk |= a->op.state == MEM_QUEUED;
    return a->shrunk;
}

/* ---- the rest ---- */

static void memory_forget_keys(struct store *base, int64_t before_ms)
{
    struct store_memory *st = memory_of(base);
    size_t kept = 0;
    for (size_t i = 0; i < st->n_keys; i++)
        if (st->keys[i].at_ms >= before_ms)
            st->keys[kept++] = st->keys[i];
    st->n_keys = kept;
}

static enum bh_err memory_load_rows(struct store *base, store_row_cb *cb, void *ctx)
{
    struct store_memory *st = memory_of(base);
    for (size_t i = 0; i < st->n_rows; i++) {
        struct store_row row = st->rows[i];
        row.frame = STR_NULL;
        cb(ctx, &row);
    }
    return BH_OK;
}

static enum bh_err memory_load_records(struct store *base, const char *ns, store_record_cb *cb,
                                       void *ctx)
{
    struct store_memory *st = memory_of(base);
    for (size_t i = 0; i < st->n_records; i++) {
        const struct mem_record *r = &st->records[i];
        if (strcmp(r->ns, ns) == 0)
            cb(ctx, record_key(r), str_make(r->value, r->value_n));
    }
    return BH_OK;
}

static enum bh_err memory_load_keys(struct store *base, int64_t since_ms, store_key_cb *cb,
                                    void *ctx)
{
    struct store_memory *st = memory_of(base);
    for (size_t i = 0; i < st->n_keys; i++)
        if (st->keys[i].at_ms >= since_ms)
            cb(ctx, st->keys[i].key, st->keys[i].at_ms);
    return BH_OK;
}

static void memory_stats(struct store *base, struct store_stats *ret)
{
    *ret = memory_of(base)->stats;
}

static void memory_close(struct store *base)
{
    struct store_memory *st = memory_of(base);

    timer_stop(st->clock, &st->turn);
    st->closed = true;
    if (!st->delivering)
        memory_free(st);
}

static const struct store_ops memory_ops = {
    .name = "memory",
    .submit = memory_submit,
    .shrink = memory_shrink,
    .fetch_free = memory_fetch_free,
    .scan_free = memory_scan_free,
    .forget_keys = memory_forget_keys,
    .load_rows = memory_load_rows,
    .load_records = memory_load_records,
    .load_keys = memory_load_keys,
    .stats = memory_stats,
    .close = memory_close,
};

struct store *store_memory_new(struct clock *clock)
{
    struct store_memory *st = xcalloc(1, sizeof *st);
    st->base = (struct store){.ops = &memory_ops, .boot = 1, .dedup_key = *hash_process_key()};
    st->clock = clock;
    st->end = &st->first;
    st->stats.healthy = true;
    timer_init(&st->turn, on_turn);
    return &st->base;
}
