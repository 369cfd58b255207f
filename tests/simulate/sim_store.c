/* sim_store.c - design.  (sim_store.h has the contract.)
 *
 * The disk is that of the in-memory store, which outlives the struct stores opened on it.  A
 * transaction is all or nothing except that a conflicting STORE_TX fails alone, as the real stores
 * do it. */
#include "simulate/sim_store.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include "core/event.h"
#include "store/memory/disk.h"
#include "simulate/op_copy.h"
#include "simulate/truth.h"
#include "store/result.h"

enum { SIM_QUEUED, SIM_RUN, SIM_CANCELLED };

/* The lease is checked under a lock, and another node waits for it.  (0: mutant.) */
enum { FENCE_LOCKS = 1 };
/* A store begins no transaction while one of its own is in doubt.  (0: mutant.) */
enum { DOUBT_BLOCKS = 1 };
/* COMMIT is sent after the row that tells its fate was written, so a commit whose answer is lost is
 * never taken for one that did not happen.  (0: mutant.) */
enum { FATE_FIRST = 1 };
enum { MAX_STORES = 16, MAX_TIED = 3, MAX_LIMBO = 12 + MAX_TIED };

struct limbo {                       /* a transaction whose process hears of it no more */
    struct store_op *ops[MAX_LIMBO]; /* owned copies */
    size_t n;
    struct store_fence guard;
    int64_t begun_ms;
    const struct sim_store *of; /* borrowed; in doubt there; NULL: its process crashed */
};

struct sim_disk {
    struct mem_disk mem;
    bool shared;
    uint64_t boot;
    int64_t now_ms;
    struct truth truth;
    bool watched;
    struct sim_store *stores[MAX_STORES]; /* borrowed; those that are open */
    struct limbo limbo;
};
struct queue {
    struct store_op *head, **tail;
    size_t n;
};
struct sim_store {
    struct store base;
    struct sim_disk *disk; /* borrowed */
    struct queue queued, finished;
    size_t n_open; /* of @queued: in a transaction that has begun */
    int64_t begun_ms;
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
    d->shared = true;
    return d;
}

void sim_disk_free(struct sim_disk *d)
{
    sim_disk_end_limbo(d, true);
    mem_disk_done(&d->mem);
    free(d);
}

struct truth *sim_disk_truth(struct sim_disk *d)
{
    d->watched = true;
    return &d->truth;
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
bool sim_disk_is_staged(const struct sim_disk *d, const char *message_id, const char *tenant,
                        const char *instance, uint32_t life)
{
    char mark[48], of_life[24] = "", to[96];
    snprintf(mark, sizeof mark, "\"message_id\":\"%s\"", message_id);
    if (life != 0) /* a zero is not written */
        snprintf(of_life, sizeof of_life, ",\"life\":%u", life);
    snprintf(to, sizeof to, "{\"tenant\":\"%s\",\"instance\":\"%s\"%s}", tenant, instance, of_life);
    for (size_t i = 0; i < d->mem.n_rows; i++)
        if ((d->mem.rows[i].flags & STORE_ROW_STAGED) != 0 &&
            str_contains(d->mem.rows[i].frame, str_of(mark)) &&
            str_contains(d->mem.rows[i].frame, str_of(to)))
            return true;
    return false;
}
bool sim_disk_joins(const struct sim_disk *d, uint64_t id, const char *message_id)
{
    const struct store_row *r = mem_disk_row(&d->mem, id);
    const char *at = r != NULL ? memmem(r->frame.p, r->frame.n, "\"message_ids\":[", 15) : NULL;
    char mark[48];
    if (at == NULL)
        return false;
    struct str rest = str_skip(r->frame, (size_t)(at - r->frame.p)), list;
    snprintf(mark, sizeof mark, "\"%s\"", message_id);
    return str_split(&rest, ']', &list) && str_contains(list, str_of(mark));
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
        if (d->mem.keys[i].key.lo == key.lo && d->mem.keys[i].key.hi == key.hi)
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

static enum bh_err apply(struct sim_disk *d, struct store_op *op, const struct store_fence *guard,
                         int64_t begun_ms)
{
    if (op->state == SIM_CANCELLED)
        return BH_CANCELLED;
    enum bh_err err = mem_disk_run(&d->mem, op, d->now_ms);
    if (!d->watched || err != BH_OK)
        return err;
    if (op->kind == STORE_LEASE)
        truth_leased(&d->truth, container_of(op, struct store_lease, op), d->now_ms);
    else if (op->kind < STORE_LEASE)
        truth_written(&d->truth, op, guard->epoch, begun_ms);
    return err;
}

/* ---- transactions that are under way for longer ---- */

static bool lease_waits(const struct sim_store *s)
{
    const struct sim_disk *d = s->disk;
    bool waits = d->limbo.n > 0;
    for (size_t i = 0; i < MAX_STORES; i++)
        waits |= d->stores[i] != NULL && d->stores[i] != s && d->stores[i]->n_open > 0;
    return waits && FENCE_LOCKS;
}

/* Does it wait for the end of another transaction? */
static bool waits(const struct sim_store *s, const struct store_op *op)
{
    const struct limbo *l = &s->disk->limbo;
    if (op->kind == STORE_LEASE)
        return lease_waits(s);
    return l->n > 0 && l->of == s && op->kind < STORE_LEASE && DOUBT_BLOCKS;
}

void sim_store_begin(struct store *st, size_t n)
{
    struct sim_store *s = sim_of(st);
    const struct store_op *op = s->queued.head;
    if (s->n_open > 0)
        return; /* it was frozen before, and has not gone on far enough to commit */
    for (; (s->n_open < n || op_is_tied(op)) && op != NULL && op->kind < STORE_LEASE;
         op = op->next) {
        if (is_fenced(s, op) || waits(s, op) || op->kind == STORE_TX)
            break;
        s->n_open++;
        s->begun_ms = s->disk->now_ms;
    }
}
bool sim_store_is_open(const struct store *st)
{
    return container_of(st, const struct sim_store, base)->n_open > 0;
}

static void finish(struct sim_store *s, struct store_op *op, enum bh_err err)
{
    op->err = (uint8_t)err;
    op->state = SIM_RUN;
    queue_push(&s->finished, op);
}

void sim_store_abort(struct store *st)
{
    struct sim_store *s = sim_of(st);
    for (; s->n_open > 0; s->n_open--)
        finish(s, queue_pop(&s->queued), BH_UNAVAILABLE);
}

void sim_store_tire(struct store *st)
{
    struct sim_store *s = sim_of(st);
    if (s->n_open > 0 || s->queued.head == NULL || !waits(s, s->queued.head))
        return;
    do
        finish(s, queue_pop(&s->queued), BH_UNAVAILABLE);
    while (op_is_tied(s->queued.head));
}

/* Whether a change of the facts happened cannot be asked again by a key: those answers arrive. */
static bool may_be_lost(const struct store_op *op)
{
    return op->kind == STORE_APPEND || op->kind == STORE_ACK || op->kind == STORE_MARK;
}

/* Its first ops, as far as they can be copied. */
static size_t enter_limbo(struct sim_store *s, size_t n, int64_t begun_ms)
{
    struct limbo *l = &s->disk->limbo;
    const struct store_op *op = s->queued.head;
    if (l->n > 0)
        return 0;
    *l = (struct limbo){.guard = s->base.guard, .begun_ms = begun_ms, .of = s};
    if (n > MAX_LIMBO - MAX_TIED)
        n = MAX_LIMBO - MAX_TIED; /* room for what is tied to the last */
    for (; op != NULL && (l->n < n || op_is_tied(op)) && may_be_lost(op); op = op->next)
        l->ops[l->n++] = op_copy(op);
    return l->n;
}

void sim_store_limbo(struct store *st, size_t n)
{
    struct sim_store *s = sim_of(st);
    if (s->n_open > 0 || s->queued.head == NULL || is_fenced(s, s->queued.head))
        return;
    for (n = enter_limbo(s, n, s->disk->now_ms); n > 0; n--)
        finish(s, queue_pop(&s->queued), BH_UNKNOWN);
}

bool sim_disk_in_limbo(const struct sim_disk *d)
{
    return d->limbo.n > 0;
}

void sim_disk_end_limbo(struct sim_disk *d, bool fails)
{
    for (size_t i = 0; i < d->limbo.n; i++) {
        if (!fails || d->limbo.of != NULL)
            (void)apply(d, d->limbo.ops[i], &d->limbo.guard, d->limbo.begun_ms);
        op_free(d->limbo.ops[i]);
    }
    d->limbo.n = 0;
}

bool sim_disk_may_get_key(const struct sim_disk *d, struct hash128 key)
{
    for (size_t i = 0; i < d->limbo.n; i++) {
        const struct store_op *op = d->limbo.ops[i];
        const struct store_append *a = container_of(op, const struct store_append, op);
        if (op->kind != STORE_APPEND)
            continue;
        if (a->has_key && a->key.lo == key.lo && a->key.hi == key.hi)
            return true;
        for (size_t k = 0; a->extra != NULL && k < a->extra->n_keys; k++)
            if (a->extra->keys[k].lo == key.lo && a->extra->keys[k].hi == key.hi)
                return true;
    }
    return false;
}

/* ---- one that ends at once ---- */

static enum bh_err lost_answer(const struct store_op *op)
{
    if (op->kind == STORE_LEASE)
        return BH_UNAVAILABLE;
    if (!may_be_lost(op))
        return BH_OK;
    return FATE_FIRST ? BH_UNKNOWN : BH_UNAVAILABLE;
}

/* A mutant's: as if it were written. */
static inline enum bh_err answer_early(const struct store_op *op)
{
    return op->kind == STORE_APPEND ? BH_OK : BH_UNAVAILABLE;
}

void sim_store_commit(struct store *st, size_t n, enum sim_fate fate)
{
    struct sim_store *s = sim_of(st);
    for (; (n > 0 || op_is_tied(s->queued.head)) && s->queued.n > 0; n -= n > 0) {
        bool open = s->n_open > 0;
        enum bh_err err;
        if (!open && !is_fenced(s, s->queued.head) && waits(s, s->queued.head))
            break;
        struct store_op *op = queue_pop(&s->queued);
        s->n_open -= open;
        if (fate == SIM_ROLLED_BACK && op->kind < STORE_FETCH)
            err = BH_UNAVAILABLE;
        else if (!open && is_fenced(s, op))
            err = BH_FENCED;
        else
            err = apply(s->disk, op, &s->base.guard, open ? s->begun_ms : s->disk->now_ms);
        if (fate == SIM_ANSWER_LOST && err == BH_OK)
            err = lost_answer(op);
        finish(s, op, err);
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

static enum bh_err sim_load_records(struct store *st, const char *ns, struct str prefix,
                                    store_record_cb *cb, void *ctx)
{
    mem_disk_load_records(&sim_of(st)->disk->mem, ns, prefix, cb, ctx);
    return BH_OK;
}

static enum bh_err sim_load_keys(struct store *st, int64_t since_ms, store_key_cb *cb, void *ctx)
{
    struct mem_disk *d = &sim_of(st)->disk->mem;
    for (size_t i = 0; i < d->n_keys; i++)
        if (d->keys[i].at_ms >= since_ms)
            cb(ctx, d->keys[i].key, d->keys[i].at_ms);
    return BH_OK;
}

static void sim_stats(struct store *st, struct store_stats *ret)
{
    *ret = (struct store_stats){.healthy = true, .queued = sim_of(st)->queued.n};
}

void sim_store_crash(struct store *st)
{
    struct sim_store *s = sim_of(st);
    if (s->n_open > 0)
        enter_limbo(s, s->n_open, s->begun_ms);
    if (s->disk->limbo.of == s)
        s->disk->limbo.of = NULL;
    for (size_t i = 0; i < MAX_STORES; i++)
        if (s->disk->stores[i] == s)
            s->disk->stores[i] = NULL;
    for (struct store_op *op; (op = queue_pop(&s->finished)) != NULL;)
        result_free(op);
    free(s);
}

static const struct store_ops sim_ops = {
    .name = "simulated",
    .submit = sim_submit,
    .shrink = sim_shrink,
    .cancel = sim_cancel,
    .forget_keys = sim_forget_keys,
    .load_rows = sim_load_rows,
    .load_records = sim_load_records,
    .load_keys = sim_load_keys,
    .stats = sim_stats,
    .close = sim_store_crash,
};

void sim_store_serve(struct store *st)
{
    struct sim_disk *d = sim_of(st)->disk;
    struct store_lease l = {.op = {.kind = STORE_LEASE},
                            .verb = LEASE_TAKE,
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
                             .shared = d->shared};
    s->disk = d;
    queue_init(&s->queued);
    queue_init(&s->finished);
    for (size_t i = 0; i < MAX_STORES; i++)
        if (d->stores[i] == NULL) {
            d->stores[i] = s;
            return &s->base;
        }
    abort(); /* somebody forgot to close them */
}
