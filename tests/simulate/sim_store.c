/* sim_store.c - design.  (sim_store.h has the contract.)
 *
 * The disk is that of the in-memory store, which outlives the struct stores opened on it.  A
 * transaction is all or nothing except that a conflicting STORE_TX fails alone, as the real stores
 * do it. */
#include "simulate/sim_store.h"
#include <assert.h>
#include <stdlib.h>
#include "core/delivery_id.h"
#include "store/memory/disk.h"
#include "store/result.h"

enum { SIM_QUEUED, SIM_RUN, SIM_CANCELLED };

struct sim_disk {
    struct mem_disk mem;
    uint64_t boot;
    int64_t now_ms;
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

/* ---- the disk ---- */

struct sim_disk *sim_disk_new(void)
{
    return xcalloc(1, sizeof(struct sim_disk));
}

struct sim_disk *sim_disk_new_shared(void)
{
    struct sim_disk *d = sim_disk_new();
    d->mem.shared = true;
    return d;
}

void sim_disk_free(struct sim_disk *d)
{
    mem_disk_done(&d->mem);
    free(d);
}

void sim_disk_set_time(struct sim_disk *d, int64_t now_ms)
{
    d->now_ms = now_ms;
}

bool sim_disk_has_row(const struct sim_disk *d, uint64_t id)
{
    return mem_disk_row(&d->mem, id) != NULL;
}
uint64_t sim_disk_named(const struct sim_disk *d, struct str buffer_id, size_t *ret_n)
{
    uint64_t found = 0;
    size_t n = 0;
    for (size_t i = 0; i < d->mem.n_rows; i++)
        if (str_eq(delivery_id_in(d->mem.rows[i].frame), buffer_id)) {
            found = d->mem.rows[i].id;
            n++;
        }
    if (ret_n != NULL)
        *ret_n = n;
    return found;
}
bool sim_disk_is_parked(const struct sim_disk *d, uint64_t id)
{
    const struct store_row *r = mem_disk_row(&d->mem, id);
    return r != NULL && r->parked.p != NULL;
}
size_t sim_disk_rows(const struct sim_disk *d)
{
    return d->mem.n_rows;
}
void sim_disk_each_frame(const struct sim_disk *d, void (*each)(void *ctx, struct str frame),
                         void *ctx)
{
    for (size_t i = 0; i < d->mem.n_rows; i++)
        each(ctx, d->mem.rows[i].frame);
}
bool sim_disk_has_key(const struct sim_disk *d, struct hash128 key)
{
    for (size_t i = 0; i < d->mem.n_keys; i++)
        if (d->mem.keys[i]->key.lo == key.lo && d->mem.keys[i]->key.hi == key.hi)
            return true;
    return false;
}

/* ---- turned by the scheduler ---- */

/* As the database checks it, inside the transaction. */
static bool is_fenced(const struct sim_store *s, const struct store_op *op)
{
    return op->kind < STORE_LEASE && s->base.guard.epoch != 0 &&
           !leases_hold(&s->disk->mem.leases, &s->base.guard, s->disk->now_ms);
}

static enum bh_err apply(struct sim_disk *d, struct store_op *op)
{
    if (op->state == SIM_CANCELLED)
        return BH_CANCELLED;
    enum bh_err err = mem_disk_run(&d->mem, op, d->now_ms);
    assert(op->kind != STORE_APPEND || err != BH_CONFLICT); /* an id is used once */
    return err;
}

/* Whether a change of the facts happened cannot be asked again by a key: those answers arrive. */
static bool may_be_lost(const struct store_op *op)
{
    return op->kind == STORE_APPEND || op->kind == STORE_ACK || op->kind == STORE_MARK;
}

void sim_store_commit(struct store *st, size_t n, enum sim_fate fate)
{
    struct sim_store *s = sim_of(st);
    for (; n > 0 && s->queued.n > 0; n--) {
        struct store_op *op = queue_pop(&s->queued);
        bool read = op->kind >= STORE_FETCH;
        if (fate == SIM_ROLLED_BACK && !read)
            op->err = BH_UNAVAILABLE;
        else
            op->err = (uint8_t)(is_fenced(s, op) ? BH_FENCED : apply(s->disk, op));
        if (fate == SIM_ANSWER_LOST && op->err == BH_OK && may_be_lost(op))
            op->err = BH_UNKNOWN;
        op->state = SIM_RUN;
        queue_push(&s->finished, op);
    }
}

size_t sim_store_complete(struct store *st, size_t n)
{
    struct sim_store *s = sim_of(st);
    size_t failed = 0;
    for (; n > 0 && s->finished.n > 0; n--) {
        struct store_op *op = queue_pop(&s->finished);
        failed += op->err != BH_OK;
        if (op->done != NULL)
            op->done(op, (enum bh_err)op->err);
    }
    return failed;
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
    op->state = SIM_QUEUED;
    result_clear(op);
    if (op->kind == STORE_APPEND)
        container_of(op, struct store_append, op)->shrunk = false;
    queue_push(&sim_of(st)->queued, op);
}

static bool sim_shrink(struct store *st, struct store_append *a)
{
    (void)st;
    if (a->op.state != SIM_QUEUED)
        return false;
    a->shrunk = true;
    return true;
}

static void sim_cancel(struct store *st, struct store_op *read)
{
    (void)st;
    if (read->state == SIM_QUEUED)
        read->state = SIM_CANCELLED;
}

static void sim_forget_keys(struct store *st, int64_t before_ms)
{
    (void)st;
    (void)before_ms;
}

static enum bh_err sim_load_rows(struct store *st, store_row_cb *cb, void *ctx)
{
    mem_disk_load_rows(&sim_of(st)->disk->mem, cb, ctx);
    return BH_OK;
}

static enum bh_err sim_load_records(struct store *st, const char *ns, store_record_cb *cb,
                                    void *ctx)
{
    mem_disk_load_under(&sim_of(st)->disk->mem, ns, STR(""), cb, ctx);
    return BH_OK;
}

static enum bh_err sim_load_under(struct store *st, const char *ns, struct str prefix,
                                  store_record_cb *cb, void *ctx)
{
    mem_disk_load_under(&sim_of(st)->disk->mem, ns, prefix, cb, ctx);
    return BH_OK;
}

static enum bh_err sim_load_keys(struct store *st, int64_t since_ms, store_key_cb *cb, void *ctx)
{
    struct mem_disk *d = &sim_of(st)->disk->mem;
    for (size_t i = 0; i < d->n_keys; i++)
        cb(ctx, d->keys[i]->key, since_ms + 1);
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
        result_free(op);
    free(s);
}

static const struct store_ops sim_ops = {
    .name = "simulated",
    .submit = sim_submit,
    .shrink = sim_shrink,
    .cancel = sim_cancel,
    .fetch_free = result_free_fetch,
    .list_free = result_free_list,
    .scan_free = result_free_scan,
    .forget_keys = sim_forget_keys,
    .load_rows = sim_load_rows,
    .load_records = sim_load_records,
    .load_under = sim_load_under,
    .load_keys = sim_load_keys,
    .stats = sim_stats,
    .close = sim_store_crash,
};

void sim_store_serve(struct store *st)
{
    struct sim_disk *d = sim_of(st)->disk;
    struct store_lease l = {.op = {.kind = STORE_LEASE},
                            .verb = LEASE_STEAL,
                            .name = STR("serve"),
                            .owner = STR("node"),
                            .ttl_ms = INT64_MAX / 4};
    if (mem_disk_run(&d->mem, &l.op, d->now_ms) != BH_OK)
        abort();
    store_guard(st, STR("serve"), l.epoch);
}

struct store *sim_store_open(struct sim_disk *d)
{
    struct sim_store *s = xcalloc(1, sizeof *s);
    s->base = (struct store){.ops = &sim_ops,
                             .boot = ++d->boot,
                             .dedup_key = SIM_DEDUP_KEY,
                             .shared = d->mem.shared};
    s->disk = d;
    queue_init(&s->queued);
    queue_init(&s->finished);
    return &s->base;
}
