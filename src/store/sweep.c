/* sweep.c - design.  (sweep.h has the contract.)
 *
 * While an operation is in flight the sweep is registered with store_leave().  So sweep_stop()
 * returns at once, before or after the store is closed. */
#include "store/sweep.h"
#include <stdlib.h>
#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "store/store.h"

#define STEP_BYTES ((size_t)128 << 10)
#define STEP_MS 10

struct sweep {
    struct store *store; /* borrowed */
    struct clock *clock; /* borrowed */
    const char *ns;
    const struct sweep_ops *ops; /* borrowed; NULL: stopped */
    void *ctx;
    int64_t rest_ms;
    struct store_left left;
    struct store_scan scan;
    struct store_tx tx;
    struct store_kv *items; /* owned; of @tx */
    struct buf after;       /* cursor: the last key of the previous step; empty: a pass begins */
    struct timer timer;
    bool busy; /* an operation is in flight */
};

static void sweep_free(struct sweep *s)
{
    free(s->items);
    buf_done(&s->after);
    free(s);
}

static void read_on(struct sweep *s);

static void step_over(struct sweep *s, enum bh_err err)
{
    bool more = s->scan.more;

    store_take_back(&s->left);
    store_scan_free(&s->scan);
    free(s->items);
    s->items = NULL;
    s->busy = false;
    if (s->ops == NULL) {
        sweep_free(s);
    } else if (more && err == BH_OK && s->clock == NULL) {
        read_on(s);
    } else if (more && err == BH_OK) {
        timer_set(s->clock, &s->timer, STEP_MS);
    } else {
        buf_reset(&s->after);
        if (s->rest_ms != 0)
            timer_set(s->clock, &s->timer, s->rest_ms);
        if (s->ops->end != NULL)
            s->ops->end(s->ctx, err == BH_OK);
    }
}

static void on_deleted(struct store_op *op, enum bh_err err)
{
    struct sweep *s = container_of(op, struct sweep, tx.op);

    step_over(s, s->clock != NULL ? BH_OK : err); /* the next pass finds what was not deleted */
}

static void on_read(struct store_op *op, enum bh_err err)
{
    struct sweep *s = container_of(op, struct sweep, scan.op);
    size_t n = 0;

    if (s->ops == NULL || err != BH_OK || s->scan.n_records == 0) {
        step_over(s, err);
        return;
    }
    buf_reset(&s->after);
    buf_add_str(&s->after, s->scan.records[s->scan.n_records - 1].key);
    s->items = xcalloc(s->scan.n_records, sizeof *s->items);
    for (size_t i = 0; i < s->scan.n_records; i++) {
        const struct store_record *r = &s->scan.records[i];
        if (s->ops->goes(s->ctx, r->key, r->value))
            s->items[n++] = (struct store_kv){KV_DELETE, s->ns, r->key, STR_NULL};
    }
    if (n == 0) {
        step_over(s, BH_OK);
        return;
    }
    s->tx = (struct store_tx){.op = {.done = on_deleted}, .items = s->items, .n = n};
    store_tx(s->store, &s->tx, false);
}

static void on_store_closed(struct store_left *l)
{
    struct sweep *s = container_of(l, struct sweep, left);

    store_scan_free(&s->scan);
    s->busy = false; /* no done() runs any more */
    if (s->ops == NULL)
        sweep_free(s);
}

static void read_on(struct sweep *s)
{
    if (s->after.n == 0 && s->ops->begin != NULL)
        s->ops->begin(s->ctx);
    s->busy = true;
    store_leave(s->store, &s->left, on_store_closed);
    s->scan = (struct store_scan){.op = {.done = on_read},
                                  .ns = s->ns,
                                  .prefix = STR(""),
                                  .max_bytes = STEP_BYTES,
                                  .loose = s->clock != NULL};
    if (s->after.n > 0)
        s->scan.after = buf_str(&s->after);
    store_scan(s->store, &s->scan);
}

static void on_timer(struct timer *t)
{
    read_on(container_of(t, struct sweep, timer));
}

struct sweep *sweep_start(struct store *st, struct clock *clock, const char *ns, int64_t rest_ms,
                          const struct sweep_ops *ops, void *ctx)
{
    struct sweep *s = xcalloc(1, sizeof *s);

    *s = (struct sweep){.store = st,
                        .clock = clock,
                        .ns = ns,
                        .rest_ms = rest_ms,
                        .ops = ops,
                        .ctx = ctx,
                        .after = BUF_INIT};
    timer_init(&s->timer, on_timer);
    if (clock != NULL)
        timer_set(clock, &s->timer, STEP_MS);
    else
        read_on(s);
    return s;
}

void sweep_stop(struct sweep **handle)
{
    struct sweep *s = *handle;

    *handle = NULL;
    if (s == NULL)
        return;
    if (s->clock != NULL)
        timer_stop(s->clock, &s->timer);
    s->ops = NULL; /* while busy, done() or store_close() frees it */
    if (!s->busy)
        sweep_free(s);
}
