/* budget_store.c - see budget_store.h. */
#include "budget_store.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "base/mem.h"
#include "store/result.h"

enum { ROWS = 1 << 20, BYTES = 1 << 30, ROW_MASK = ROWS - 1 };

struct budget_store {
    struct store base;
    struct store_op *first, **end; /* not answered yet */
    bool urgent;                   /* one of them is */
    struct store_row *rows;        /* by the low bits of their ids; id 0: none */
    char *bytes;                   /* of their frames */
    size_t n_bytes;
};

static struct budget_store *store_of(struct store *st)
{
    return container_of(st, struct budget_store, base);
}

static void *map(size_t n)
{
    void *p =
        mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED) {
        perror("budget: mmap");
        exit(2);
    }
    return p;
}

static void append(struct budget_store *b, const struct store_append *a)
{
    struct store_row *row = &b->rows[a->id & ROW_MASK];

    if (a->shrunk)
        return;
    if (b->n_bytes + a->frame.n > BYTES)
        b->n_bytes = 0;
    *row = (struct store_row){.id = a->id,
                              .box = a->box,
                              .row_kind = a->row_kind,
                              .flags = a->flags,
                              .at_ms = a->at_ms,
                              .frame = str_make(b->bytes + b->n_bytes, a->frame.n),
                              .frame_bytes = a->frame.n};
    memcpy(b->bytes + b->n_bytes, a->frame.p, a->frame.n);
    b->n_bytes += a->frame.n;
}

static void fetch(struct budget_store *b, struct store_fetch *f)
{
    struct result r = result_begin(f->max_bytes, 0);

    for (f->n_used = 0; f->n_used < f->n; f->n_used++) {
        const struct store_row *row = &b->rows[f->ids[f->n_used] & ROW_MASK];
        if (row->id != f->ids[f->n_used])
            continue;
        if (!result_has_room(&r, row->frame.n))
            break;
        result_add_row(&r, row);
    }
    result_end_fetch(&r, f);
}

static void perform(struct budget_store *b, struct store_op *op)
{
    struct result none;

    if (op->kind == STORE_APPEND) {
        append(b, container_of(op, struct store_append, op));
    } else if (op->kind == STORE_FETCH) {
        fetch(b, container_of(op, struct store_fetch, op));
    } else if (op->kind == STORE_SCAN) {
        none = result_begin(0, 0);
        result_end_scan(&none, container_of(op, struct store_scan, op), false);
    }
}

void budget_store_turn(struct store *st, bool all)
{
    struct budget_store *b = store_of(st);
    struct store_op *op = b->first, *next;

    if (!all && !b->urgent)
        return;
    b->first = NULL;
    b->end = &b->first;
    b->urgent = false;
    for (struct store_op *at = op; at != NULL; at = at->next)
        perform(b, at);
    for (; op != NULL; op = next) {
        next = op->next;
        if (op->done != NULL)
            op->done(op, BH_OK);
    }
}

static void budget_submit(struct store *st, struct store_op *op, bool urgent)
{
    struct budget_store *b = store_of(st);

    if (op->kind == STORE_APPEND)
        container_of(op, struct store_append, op)->shrunk = false;
    op->next = NULL;
    *b->end = op;
    b->end = &op->next;
    b->urgent |= urgent;
}

/* An op whose done() has not run is still in the queue, and nothing was done for it. */
static bool budget_shrink(struct store *st, struct store_append *a)
{
    a->shrunk = true;
    return true;
}

static void budget_cancel(struct store *st, struct store_op *read)
{
}

static void budget_forget_keys(struct store *st, int64_t before_ms)
{
}

static enum bh_err budget_load_rows(struct store *st, store_row_cb *cb, void *ctx)
{
    return BH_OK;
}

static enum bh_err budget_load_records(struct store *st, const char *ns, struct str prefix,
                                       store_record_cb *cb, void *ctx)
{
    return BH_OK;
}

static enum bh_err budget_load_keys(struct store *st, int64_t since_ms, store_key_cb *cb, void *ctx)
{
    return BH_OK;
}

static void budget_stats(struct store *st, struct store_stats *ret)
{
    *ret = (struct store_stats){.healthy = true};
}

static void budget_close(struct store *st)
{
    struct budget_store *b = store_of(st);

    munmap(b->rows, ROWS * sizeof *b->rows);
    munmap(b->bytes, BYTES);
    free(b);
}

static const struct store_ops ops = {.name = "budget",
                                     .submit = budget_submit,
                                     .shrink = budget_shrink,
                                     .cancel = budget_cancel,
                                     .forget_keys = budget_forget_keys,
                                     .load_rows = budget_load_rows,
                                     .load_records = budget_load_records,
                                     .load_keys = budget_load_keys,
                                     .stats = budget_stats,
                                     .close = budget_close};

struct store *budget_store_new(void)
{
    struct budget_store *b = xcalloc(1, sizeof *b);

    b->base = (struct store){.ops = &ops, .boot = 1, .dedup_key = {1, 2}};
    b->end = &b->first;
    b->rows = map(ROWS * sizeof *b->rows);
    b->bytes = map(BYTES);
    return &b->base;
}
