/* records.c - design.  (records.h has the contract.)
 *
 * The store uses an op until its done() runs.  So a cancelled scan is not freed at once: it stays
 * with the store (store_leave()), and done() or the closing of the store frees it. */
#include "dispatch/records.h"
#include <stdlib.h>
#include "base/mem.h"

struct record_scan {
    struct store_scan op;
    struct store_left left;
    struct store *st; /* borrowed */
    record_scan_cb *done;
    void *ctx;
    char bytes[]; /* prefix, then after */
};

static void on_scanned(struct store_op *op, enum bh_err err)
{
    struct record_scan *s = container_of(op, struct record_scan, op.op);

    store_take_back(&s->left);
    if (s->done != NULL)
        s->done(s->ctx, err, &s->op);
    store_scan_free(&s->op);
    free(s);
}

struct record_scan *records_scan(struct store *st, const char *ns, struct str prefix,
                                 struct str after, size_t limit, bool reverse, record_scan_cb *done,
                                 void *ctx)
{
    struct record_scan *s = xcalloc(1, sizeof *s + prefix.n + after.n + 1);

    s->st = st;
    s->done = done;
    s->ctx = ctx;
    memcpy(s->bytes, prefix.p != NULL ? prefix.p : "", prefix.n);
    memcpy(s->bytes + prefix.n, after.p != NULL ? after.p : "", after.n);
    s->op = (struct store_scan){.op = {.done = on_scanned},
                                .ns = ns,
                                .prefix = str_make(s->bytes, prefix.n),
                                .limit = limit,
                                .reverse = reverse};
    if (after.p != NULL)
        s->op.after = str_make(s->bytes + prefix.n, after.n);
    store_scan(st, &s->op);
    return s;
}

static void scan_release(struct store_left *l)
{
    struct record_scan *s = container_of(l, struct record_scan, left);

    store_scan_free(&s->op);
    free(s);
}

void records_cancel(struct record_scan **s)
{
    if (*s != NULL) {
        (*s)->done = NULL;
        store_leave((*s)->st, &(*s)->left, scan_release);
    }
    *s = NULL;
}

/* ---- clearing ---- */

struct clearing {
    struct store_erase op;
    struct store_left left;
    struct store *st; /* borrowed */
    char bytes[];
};

static void on_cleared(struct store_op *op, enum bh_err err)
{
    struct clearing *c = container_of(op, struct clearing, op.op);

    if (err == BH_OK && c->op.more) {
        store_erase(c->st, &c->op);
        return;
    }
    store_take_back(&c->left);
    free(c);
}

static void clearing_release(struct store_left *l)
{
    free(container_of(l, struct clearing, left));
}

void records_clear(struct store *st, const char *ns, struct str prefix, struct str end)
{
    struct clearing *c = xcalloc(1, sizeof *c + prefix.n + end.n + 1);

    c->st = st;
    memcpy(c->bytes, prefix.p != NULL ? prefix.p : "", prefix.n);
    memcpy(c->bytes + prefix.n, end.p != NULL ? end.p : "", end.n);
    c->op = (struct store_erase){.op = {.done = on_cleared},
                                 .ns = ns,
                                 .prefix = str_make(c->bytes, prefix.n)};
    if (end.p != NULL)
        c->op.end = str_make(c->bytes + prefix.n, end.n);
    store_leave(st, &c->left, clearing_release);
    store_erase(st, &c->op);
}

uint64_t records_number(struct str key, size_t chars)
{
    uint64_t n = 0;

    for (size_t i = 0; i < key.n && i < chars; i++)
        n = n << 4 | ((unsigned)hex_value(key.p[i]) & 15);
    return n;
}
