/* memory.c - design.  (memory.h has the contract.)
 *
 * A queue in front of a mem_disk, which does the work. */
#include "store/memory/memory.h"
#include <stdlib.h>
#include "base/clock.h"
#include "base/mem.h"
#include "store/memory/disk.h"
#include "store/result.h"

enum { MEM_QUEUED = 1, MEM_DONE, MEM_CANCELLED };

struct store_memory {
    struct store base;
    struct clock *clock;           /* borrowed */
    struct timer turn;             /* armed while the queue holds something */
    struct store_op *first, **end; /* the queue */
    bool delivering, closed;       /* closed while delivering: freed when that ends */
    struct mem_disk disk;
    struct store_stats stats;
};

static struct store_memory *memory_of(struct store *st)
{
    return container_of(st, struct store_memory, base);
}

static void count_append(struct store_stats *s, const struct store_append *a)
{
    if (a->op.err != BH_OK)
        return;
    s->rows_written += !a->shrunk;
    s->shrunk += a->shrunk;
    s->keys_written += a->has_key + (a->extra != NULL ? a->extra->n_keys : 0);
}

static void run_op(struct store_memory *st, struct store_op *op)
{
    bool read = op->kind >= STORE_FETCH;
    int64_t now_ms = clock_wall_ms(st->clock);

    if (op->state == MEM_CANCELLED)
        op->err = BH_CANCELLED;
    else if (op->kind < STORE_LEASE && !leases_hold(&st->disk.leases, &st->base.guard, now_ms))
        op->err = BH_FENCED;
    else if (op->kind == STORE_LEASE && !st->base.shared)
        op->err = BH_REFUSED;
    else
        op->err = (uint8_t)mem_disk_run(&st->disk, op, now_ms);
    if (op->kind == STORE_APPEND)
        count_append(&st->stats, container_of(op, struct store_append, op));
    st->stats.reads += read && op->state != MEM_CANCELLED;
    st->stats.cancelled += read && op->state == MEM_CANCELLED;
    st->stats.ops++;
    st->stats.queued--;
    op->state = MEM_DONE;
}

static struct store_op *run_queue(struct store_memory *st)
{
    struct store_op *list = st->first;

    st->first = NULL;
    st->end = &st->first;
    for (struct store_op *op = list; op != NULL; op = op->next)
        run_op(st, op);
    st->stats.commits++;
    return list;
}

static void memory_free(struct store_memory *st)
{
    mem_disk_done(&st->disk);
    free(st);
}

static void on_turn(struct timer *t)
{
    struct store_memory *st = container_of(t, struct store_memory, turn);
    struct store_op *op = run_queue(st);

    st->delivering = true;
    for (struct store_op *next; op != NULL; op = next) {
        next = op->next;
        if (st->closed)
            result_free(op);
        else if (op->done != NULL)
            op->done(op, (enum bh_err)op->err);
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
    result_clear(op);
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

static void memory_cancel(struct store *base, struct store_op *read)
{
    if (read->state == MEM_QUEUED)
        read->state = MEM_CANCELLED;
}

/* ---- the rest ---- */

static void memory_forget_keys(struct store *base, int64_t before_ms)
{
    mem_disk_forget_keys(&memory_of(base)->disk, before_ms);
}

static enum bh_err memory_load_rows(struct store *base, store_row_cb *cb, void *ctx)
{
    mem_disk_load_rows(&memory_of(base)->disk, cb, ctx);
    return BH_OK;
}

static enum bh_err memory_load_records(struct store *base, const char *ns, struct str prefix,
                                       store_record_cb *cb, void *ctx)
{
    mem_disk_load_records(&memory_of(base)->disk, ns, prefix, cb, ctx);
    return BH_OK;
}

static enum bh_err memory_load_keys(struct store *base, int64_t since_ms, store_key_cb *cb,
                                    void *ctx)
{
    mem_disk_load_keys(&memory_of(base)->disk, since_ms, cb, ctx);
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
    .cancel = memory_cancel,
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

struct store *store_memory_new_shared(struct clock *clock)
{
    struct store *st = store_memory_new(clock);

    st->shared = true;
    return st;
}
