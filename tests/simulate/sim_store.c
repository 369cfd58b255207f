/* sim_store.c - design.  (sim_store.h has the contract.)
 *
 * Dumb on purpose: arrays searched from the end.  A transaction is all or nothing except that a
 * conflicting STORE_TX fails alone, as the real stores do it. */
#include "simulate/sim_store.h"
#include <assert.h>
#include <stdlib.h>
#include "base/buf.h"

struct row {
    uint64_t id;
    uint32_t box, attempts;
    uint8_t kind;
    int64_t at_ms;
    char *frame, *parked; /* owned */
    size_t frame_n;
};
struct record {
    char *ns; /* owned */
    struct buf key, value;
};
struct sim_disk {
    struct row *rows;
    size_t n_rows, cap_rows;
    struct record *records;
    size_t n_records, cap_records;
    struct hash128 *keys;
    size_t n_keys, cap_keys;
    uint64_t boot;
};
struct queue {
    struct store_op *head, **tail;
    size_t n;
};
struct sim_store {
    struct store base;
    struct sim_disk *disk; /* borrowed */
    struct queue queued, finished;
};

static struct sim_store *sim_of(struct store *st)
{
    return container_of(st, struct sim_store, base);
}
static void queue_init(struct queue *q)
{
    *q = (struct queue){.tail = &q->head};
}
static void queue_push(struct queue *q, struct store_op *op)
{
    op->next = NULL;
    *q->tail = op;
    q->tail = &op->next;
    q->n++;
}
static struct store_op *queue_pop(struct queue *q)
{
    struct store_op *op = q->head;
    if (op == NULL)
        return NULL;
    q->head = op->next;
    if (q->head == NULL)
        q->tail = &q->head;
    q->n--;
    op->next = NULL;
    return op;
}

struct sim_disk *sim_disk_new(void)
{
    return xcalloc(1, sizeof(struct sim_disk));
}

static void row_done(struct row *r)
{
    free(r->frame);
    free(r->parked);
}
static void record_done(struct record *r)
{
    free(r->ns);
    buf_done(&r->key);
    buf_done(&r->value);
}

void sim_disk_free(struct sim_disk *d)
{
    for (size_t i = 0; i < d->n_rows; i++)
        row_done(&d->rows[i]);
    for (size_t i = 0; i < d->n_records; i++)
        record_done(&d->records[i]);
    free(d->rows);
    free(d->records);
    free(d->keys);
    free(d);
}

static struct row *find_row(const struct sim_disk *d, uint64_t id)
{
    size_t lo = 0, hi = d->n_rows; /* ascending by id */
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (d->rows[mid].id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < d->n_rows && d->rows[lo].id == id ? &d->rows[lo] : NULL;
}

bool sim_disk_has_row(const struct sim_disk *d, uint64_t id)
{
    return find_row(d, id) != NULL;
}
bool sim_disk_is_parked(const struct sim_disk *d, uint64_t id)
{
    const struct row *r = find_row(d, id);
    return r != NULL && r->parked != NULL;
}
size_t sim_disk_rows(const struct sim_disk *d)
{
    return d->n_rows;
}
bool sim_disk_has_key(const struct sim_disk *d, struct hash128 key)
{
    for (size_t i = 0; i < d->n_keys; i++)
        if (d->keys[i].lo == key.lo && d->keys[i].hi == key.hi)
            return true;
    return false;
}

#define GROW(array, n, cap) \
    do { \
        if ((n) == (cap)) { \
            (cap) = (cap) != 0 ? (cap)*2 : 16; \
            (array) = xrealloc((array), (cap) * sizeof *(array)); \
        } \
    } while (0)

static void apply_append(struct sim_disk *d, const struct store_append *a)
{
    if (a->has_key) {
        GROW(d->keys, d->n_keys, d->cap_keys);
        d->keys[d->n_keys++] = a->key;
    }
    if (a->shrunk)
        return;
    assert(find_row(d, a->id) == NULL);
    GROW(d->rows, d->n_rows, d->cap_rows);
    size_t at = d->n_rows++;
    for (; at > 0 && d->rows[at - 1].id > a->id; at--) /* an append that was tried again */
        d->rows[at] = d->rows[at - 1];
    d->rows[at] = (struct row){.id = a->id,
                               .box = a->box,
                               .kind = a->row_kind,
                               .at_ms = a->at_ms,
                               .frame = xstrndup(a->frame.p, a->frame.n),
                               .frame_n = a->frame.n};
}

static void apply_ack(struct sim_disk *d, const struct store_ack *a)
{
    for (size_t i = 0; i < a->n; i++) {
        struct row *r = find_row(d, a->ids[i]);
        if (r == NULL)
            continue;
        row_done(r);
        size_t at = (size_t)(r - d->rows);
        memmove(r, r + 1, (d->n_rows - at - 1) * sizeof *r);
        d->n_rows--;
    }
}

static void apply_mark(struct sim_disk *d, const struct store_mark *m)
{
    struct row *r = find_row(d, m->id);
    if (r == NULL)
        return;
    r->attempts = m->attempts;
    free(r->parked);
    r->parked = m->parked.p != NULL ? xstrndup(m->parked.p, m->parked.n) : NULL;
}

/* Records stay sorted by (ns, key), so that scans and loads come in order. */
static size_t record_at(const struct sim_disk *d, const char *ns, struct str key, bool *ret_hit)
{
    size_t i = 0;
    *ret_hit = false;
    for (; i < d->n_records; i++) {
        int c = strcmp(d->records[i].ns, ns);
        if (c == 0)
            c = str_cmp(buf_str(&d->records[i].key), key);
        if (c >= 0) {
            *ret_hit = c == 0;
            break;
        }
    }
    return i;
}

static void record_put(struct sim_disk *d, const struct store_kv *kv)
{
    bool hit;
    size_t i = record_at(d, kv->ns, kv->key, &hit);
    if (!hit) {
        GROW(d->records, d->n_records, d->cap_records);
        memmove(&d->records[i + 1], &d->records[i], (d->n_records - i) * sizeof *d->records);
        d->n_records++;
        d->records[i] = (struct record){.ns = xstrdup(kv->ns)};
        buf_add_str(&d->records[i].key, kv->key);
    }
    buf_reset(&d->records[i].value);
    buf_add_str(&d->records[i].value, kv->value);
}

static void record_del(struct sim_disk *d, const struct store_kv *kv)
{
    bool hit;
    size_t i = record_at(d, kv->ns, kv->key, &hit);
    if (!hit)
        return;
    record_done(&d->records[i]);
    memmove(&d->records[i], &d->records[i + 1], (d->n_records - i - 1) * sizeof *d->records);
    d->n_records--;
}

static enum bh_err apply_tx(struct sim_disk *d, struct store_tx *t)
{
    for (size_t i = 0; i < t->n; i++) { /* conditions first: all or nothing */
        bool hit;
        record_at(d, t->items[i].ns, t->items[i].key, &hit);
        if ((t->items[i].verb == KV_INSERT && hit) || (t->items[i].verb == KV_CONSUME && !hit)) {
            t->ret_failed = i;
            return BH_CONFLICT;
        }
    }
    for (size_t i = 0; i < t->n; i++) {
        if (t->items[i].verb == KV_PUT || t->items[i].verb == KV_INSERT)
            record_put(d, &t->items[i]);
        else
            record_del(d, &t->items[i]);
    }
    return BH_OK;
}

static void row_view(const struct row *r, bool body, struct store_row *ret)
{
    *ret = (struct store_row){.id = r->id,
                              .box = r->box,
                              .attempts = r->attempts,
                              .row_kind = r->kind,
                              .at_ms = r->at_ms,
                              .frame = body ? str_make(r->frame, r->frame_n) : STR_NULL,
                              .frame_bytes = r->frame_n,
                              .parked = str_of(r->parked)};
}

/* The rows are copied: what the disk holds may change before done() runs. */
static void run_fetch(struct sim_disk *d, struct store_fetch *f)
{
    size_t bytes = 0;
    f->rows = xcalloc(f->n + 1, sizeof *f->rows);
    f->n_rows = 0;
    for (size_t i = 0; i < f->n; i++) {
        const struct row *r = find_row(d, f->ids[i]);
        if (r == NULL)
            continue;
        if (f->max_bytes != 0 && f->n_rows > 0 && bytes + r->frame_n > f->max_bytes)
            break;
        struct store_row *out = &f->rows[f->n_rows++];
        row_view(r, true, out);
        out->frame.p = xstrndup(r->frame, r->frame_n);
        out->parked = r->parked != NULL ? str_of(xstrdup(r->parked)) : STR_NULL;
        bytes += r->frame_n;
    }
}

static void sim_fetch_free(struct store_fetch *f)
{
    for (size_t i = 0; i < f->n_rows; i++) {
        free((char *)f->rows[i].frame.p);
        free((char *)f->rows[i].parked.p);
    }
    free(f->rows);
    f->rows = NULL;
    f->n_rows = 0;
}

static void run_scan(struct store_scan *s)
{
    s->records = NULL; /* nothing in the heart scans */
    s->n_records = 0;
}
static void sim_scan_free(struct store_scan *s)
{
    s->n_records = 0;
}

static enum bh_err apply(struct sim_disk *d, struct store_op *op)
{
    switch (op->kind) {
    case STORE_APPEND:
        apply_append(d, (struct store_append *)(void *)op);
        return BH_OK;
    case STORE_ACK:
        apply_ack(d, (struct store_ack *)(void *)op);
        return BH_OK;
    case STORE_MARK:
        apply_mark(d, (struct store_mark *)(void *)op);
        return BH_OK;
    case STORE_TX:
        return apply_tx(d, (struct store_tx *)(void *)op);
    case STORE_FETCH:
        run_fetch(d, (struct store_fetch *)(void *)op);
        return BH_OK;
    default:
        run_scan((struct store_scan *)(void *)op);
        return BH_OK;
    }
}

void sim_store_commit(struct store *st, size_t n, bool fail)
{
    struct sim_store *s = sim_of(st);
    for (; n > 0 && s->queued.n > 0; n--) {
        struct store_op *op = queue_pop(&s->queued);
        bool read = op->kind == STORE_FETCH || op->kind == STORE_SCAN;
        op->err = (uint8_t)(fail && !read ? BH_UNAVAILABLE : apply(s->disk, op));
        op->state = 1;
        queue_push(&s->finished, op);
    }
}

void sim_store_complete(struct store *st, size_t n)
{
    struct sim_store *s = sim_of(st);
    for (; n > 0 && s->finished.n > 0; n--) {
        struct store_op *op = queue_pop(&s->finished);
        if (op->done != NULL)
            op->done(op, (enum bh_err)op->err);
    }
}

size_t sim_store_queued(const struct store *st)
{
    return container_of(st, const struct sim_store, base)->queued.n;
}
size_t sim_store_finished(const struct store *st)
{
    return container_of(st, const struct sim_store, base)->finished.n;
}

/* ---- the interface the heart sees ---- */

static void sim_submit(struct store *st, struct store_op *op, bool urgent)
{
    (void)urgent; /* the scheduler decides when anything reaches the disk */
    op->state = 0;
    if (op->kind == STORE_APPEND)
        ((struct store_append *)(void *)op)->shrunk = false;
    queue_push(&sim_of(st)->queued, op);
}

static bool sim_shrink(struct store *st, struct store_append *a)
{
    (void)st;
    if (a->op.state != 0)
        return false;
    a->shrunk = true;
    return true;
}

static void sim_forget_keys(struct store *st, int64_t before_ms)
{
    (void)st;
    (void)before_ms;
}

static enum bh_err sim_load_rows(struct store *st, store_row_cb *cb, void *ctx)
{
    struct sim_disk *d = sim_of(st)->disk;
    for (size_t i = 0; i < d->n_rows; i++) {
        struct store_row view;
        row_view(&d->rows[i], false, &view);
        cb(ctx, &view);
    }
    return BH_OK;
}

static enum bh_err sim_load_records(struct store *st, const char *ns, store_record_cb *cb,
                                    void *ctx)
{
    struct sim_disk *d = sim_of(st)->disk;
    for (size_t i = 0; i < d->n_records; i++)
        if (strcmp(d->records[i].ns, ns) == 0)
            cb(ctx, buf_str(&d->records[i].key), buf_str(&d->records[i].value));
    return BH_OK;
}

static enum bh_err sim_load_keys(struct store *st, int64_t since_ms, store_key_cb *cb, void *ctx)
{
    struct sim_disk *d = sim_of(st)->disk;
    for (size_t i = 0; i < d->n_keys; i++)
        cb(ctx, d->keys[i], since_ms + 1);
    return BH_OK;
}

static void sim_stats(struct store *st, struct store_stats *ret)
{
    *ret = (struct store_stats){.healthy = true, .queued = sim_of(st)->queued.n};
}

void sim_store_crash(struct store *st)
{
    struct sim_store *s = sim_of(st);
    for (struct store_op *op; (op = queue_pop(&s->finished)) != NULL;)
        if (op->kind == STORE_FETCH)
            sim_fetch_free((struct store_fetch *)(void *)op);
    free(s);
}

static const struct store_ops sim_ops = {
    .name = "simulated",
    .submit = sim_submit,
    .shrink = sim_shrink,
    .fetch_free = sim_fetch_free,
    .scan_free = sim_scan_free,
    .forget_keys = sim_forget_keys,
    .load_rows = sim_load_rows,
    .load_records = sim_load_records,
    .load_keys = sim_load_keys,
    .stats = sim_stats,
    .close = sim_store_crash,
};

struct store *sim_store_open(struct sim_disk *d)
{
    struct sim_store *s = xcalloc(1, sizeof *s);
    s->base = (struct store){.ops = &sim_ops, .boot = ++d->boot, .dedup_key = SIM_DEDUP_KEY};
    s->disk = d;
    queue_init(&s->queued);
    queue_init(&s->finished);
    return &s->base;
}
