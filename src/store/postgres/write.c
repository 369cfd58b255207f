/* write.c - the writing ops of a transaction.  Ops of one kind that follow each other become one
 * question: a hundred rows cost one statement. */
#include <stdlib.h>
#include "base/mem.h"
#include "store/postgres/impl.h"

#define BOX_END(box) ((uint64_t)(box) << 40 | ((UINT64_C(1) << 40) - 1))

static bool has_conditions(const struct store_tx *t)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->items[i].verb == KV_INSERT || t->items[i].verb == KV_CONSUME)
            return true;
    return false;
}

static bool may_join(const struct store_op *a, const struct store_op *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind == STORE_TX)
        return !has_conditions(container_of(a, const struct store_tx, op)) &&
               !has_conditions(container_of(b, const struct store_tx, op));
    return a->kind == STORE_APPEND || a->kind == STORE_ACK;
}

struct store_op *pg_write_run_end(struct store_op *first, struct store_op *end)
{
    struct store_op *op = first->next;

    while (op != end && may_join(first, op))
        op = op->next;
    return op;
}

/* What a fence stopped is not asked. */
static bool is_due(const struct store_op *op)
{
    return op->err == BH_OK;
}

/* ---- asking ---- */

static struct store_append *row_of(struct store_op *op)
{
    struct store_append *a = container_of(op, struct store_append, op);
    return !a->exists && !a->shrunk ? a : NULL;
}

static bool ask_append(struct store_postgres *st, struct store_op *first, struct store_op *end)
{
    struct params *p = &st->params;
    size_t n = 0;

    params_reset(p);
#define COLUMN(type, add) \
    array_begin(p, type); \
    for (struct store_op *op = first; op != end; op = op->next) { \
        struct store_append *a = row_of(op); \
        if (a != NULL) \
            add; \
    } \
    array_end(p)
    COLUMN(PARAM_I64, (array_i64(p, (int64_t)a->sequence), n++));
    COLUMN(PARAM_I32, array_i32(p, a->row_kind));
    COLUMN(PARAM_I32, array_i32(p, a->flags));
    COLUMN(PARAM_I64, array_i64(p, a->at_ms));
    COLUMN(PARAM_BYTES, array_bytes(p, a->frame));
#undef COLUMN
    if (n > 0)
        line_ask(&st->main, PG_APPEND, p);
    return n > 0;
}

/* The staged rows that appends take the place of, and those of acks. */
static bool ask_ack(struct store_postgres *st, struct store_op *first, struct store_op *end)
{
    struct params *p = &st->params;
    size_t n = 0;

    params_reset(p);
    array_begin(p, PARAM_I64);
    for (struct store_op *op = first; op != end; op = op->next) {
        const struct store_ack *a = container_of(op, struct store_ack, op);
        for (size_t i = 0; is_due(op) && i < a->n; i++, n++)
            array_i64(p, (int64_t)a->ids[i]);
    }
    array_end(p);
    if (n > 0)
        line_ask(&st->main, PG_ACK, p);
    return n > 0;
}

static bool ask_replaced(struct store_postgres *st, struct store_op *first, struct store_op *end)
{
    struct params *p = &st->params;
    size_t n = 0;

    params_reset(p);
    array_begin(p, PARAM_I64);
    for (struct store_op *op = first; op != end; op = op->next) {
        const struct store_append *a = container_of(op, struct store_append, op);
        if (!a->exists && a->replaces != 0) {
            array_i64(p, (int64_t)a->replaces);
            n++;
        }
    }
    array_end(p);
    if (n > 0)
        line_ask(&st->main, PG_ACK, p);
    return n > 0;
}

static void ask_mark(struct store_postgres *st, const struct store_mark *m)
{
    struct params *p = &st->params;

    params_reset(p);
    param_i64(p, (int64_t)m->id);
    param_i32(p, (int32_t)m->attempts);
    if (m->parked.p != NULL)
        param_bytes(p, m->parked);
    else
        param_null(p);
    if (m->frame.p != NULL)
        param_bytes(p, m->frame);
    else
        param_null(p);
    line_ask(&st->main, PG_MARK, p);
}

/* With conditions: one after the other, up to the first that does not hold. */
static bool ask_tries(struct store_postgres *st, const struct store_tx *t)
{
    struct params *p = &st->params;

    if (!is_due(&t->op) || t->n == 0)
        return false;
    params_reset(p);
#define COLUMN(type, add) \
    array_begin(p, type); \
    for (size_t i = 0; i < t->n; i++) \
        add; \
    array_end(p)
    COLUMN(PARAM_I32, array_i32(p, (int32_t)t->items[i].verb));
    COLUMN(PARAM_BYTES, array_bytes(p, str_of(t->items[i].ns)));
    COLUMN(PARAM_BYTES, array_bytes(p, t->items[i].key));
    COLUMN(PARAM_BYTES, array_bytes(p, t->items[i].value));
#undef COLUMN
    line_ask(&st->main, PG_KV_TRY, p);
    return true;
}

/* By record; the same one in order. */
static int by_record(const void *x, const void *y)
{
    const struct kv_last *a = x, *b = y;
    int c = strcmp(a->item->ns, b->item->ns);

    if (c == 0)
        c = str_cmp(a->item->key, b->item->key);
    return c != 0 ? c : (a->at > b->at) - (a->at < b->at);
}

static size_t gather_kvs(struct store_postgres *st, struct store_op *first, struct store_op *end)
{
    size_t n = 0, last = 0;

    for (struct store_op *op = first; op != end; op = op->next) {
        const struct store_tx *t = container_of(op, struct store_tx, op);
        if (n + t->n > st->cap_kvs) {
            st->cap_kvs = 2 * (n + t->n) + 64;
            st->kvs = xrealloc(st->kvs, st->cap_kvs * sizeof *st->kvs);
        }
        for (size_t i = 0; is_due(op) && i < t->n; i++, n++)
            st->kvs[n] = (struct kv_last){&t->items[i], n};
    }
    if (n > 1)
        qsort(st->kvs, n, sizeof *st->kvs, by_record);
    for (size_t i = 0; i < n; i++) {
        bool again = i + 1 < n && strcmp(st->kvs[i].item->ns, st->kvs[i + 1].item->ns) == 0 &&
                     str_eq(st->kvs[i].item->key, st->kvs[i + 1].item->key);
        if (!again)
            st->kvs[last++] = st->kvs[i];
    }
    return last;
}

/* Without conditions: what each record is in the end. */
static bool ask_tx(struct store_postgres *st, struct store_op *first, struct store_op *end)
{
    struct params *p = &st->params;
    size_t n;

    if (has_conditions(container_of(first, struct store_tx, op)))
        return ask_tries(st, container_of(first, struct store_tx, op));
    n = gather_kvs(st, first, end);
    params_reset(p);
#define COLUMN(puts, what) \
    array_begin(p, PARAM_BYTES); \
    for (size_t i = 0; i < n; i++) \
        if ((st->kvs[i].item->verb == KV_PUT) == (puts)) \
            array_bytes(p, what); \
    array_end(p)
    COLUMN(true, str_of(st->kvs[i].item->ns));
    COLUMN(true, st->kvs[i].item->key);
    COLUMN(true, st->kvs[i].item->value);
    COLUMN(false, str_of(st->kvs[i].item->ns));
    COLUMN(false, st->kvs[i].item->key);
#undef COLUMN
    if (n > 0)
        line_ask(&st->main, PG_KV_SET, p);
    return n > 0;
}

static void ask_erase(struct store_postgres *st, const struct store_erase *e)
{
    struct params *p = &st->params;
    struct buf end = BUF_INIT;

    params_reset(p);
    if (e->ns == NULL) {
        uint64_t last = BOX_END(e->box) < e->up_to ? BOX_END(e->box) : e->up_to;
        param_i64(p, (int64_t)((uint64_t)e->box << 40));
        param_i64(p, (int64_t)last);
        param_i64(p, STORE_ERASE_ITEMS);
        line_ask(&st->main, PG_ERASE_ROWS, p);
        return;
    }
    bool bounded = scan_prefix_end(&end, e->prefix);
    struct str to = bounded ? buf_str(&end) : STR_NULL;
    if (e->end.p != NULL && (!bounded || str_cmp(e->end, to) < 0))
        to = e->end;
    param_bytes(p, str_of(e->ns));
    param_bytes(p, e->prefix);
    if (to.p != NULL)
        param_bytes(p, to);
    else
        param_null(p);
    param_i64(p, STORE_ERASE_ITEMS);
    line_ask(&st->main, PG_ERASE_RECORDS, p);
    buf_done(&end);
}

bool pg_write_ask(struct store_postgres *st, struct store_op *first, struct store_op *end)
{
    switch ((enum store_kind)first->kind) {
    case STORE_APPEND:
        return ask_append(st, first, end);
    case STORE_ACK:
        return ask_ack(st, first, end);
    case STORE_TX:
        return ask_tx(st, first, end);
    case STORE_MARK:
        if (is_due(first))
            ask_mark(st, container_of(first, struct store_mark, op));
        return is_due(first);
    case STORE_ERASE:
        if (is_due(first))
            ask_erase(st, container_of(first, struct store_erase, op));
        return is_due(first);
    default: /* leases have a transaction of their own, reads a thread */
        return false;
    }
}

bool pg_write_ask_replaced(struct store_postgres *st, struct store_op *first, struct store_op *end)
{
    return first->kind == STORE_APPEND && ask_replaced(st, first, end);
}

bool pg_write_tells_more(struct store_op *first, struct store_op *end)
{
    for (struct store_op *op = first; op != end; op = op->next)
        if (op->kind == STORE_ERASE ||
            (op->kind == STORE_TX && has_conditions(container_of(op, struct store_tx, op))))
            return true;
    return false;
}

/* ---- answers ---- */

static void settle_tx(struct store_op *first, struct store_op *end, const PGresult *r)
{
    int64_t culprit = column_int(r, 0, 0);

    for (struct store_op *op = first; op != end; op = op->next) {
        struct store_tx *t = container_of(op, struct store_tx, op);
        t->ret_failed = culprit >= 0 ? (size_t)culprit : t->n;
        if (culprit >= 0)
            op->err = BH_CONFLICT;
    }
}

enum line_end pg_write_read(struct store_postgres *st, struct store_op *first, struct store_op *end)
{
    PGresult *r;
    enum line_end e = line_answer(&st->main, &r);

    if (e != LINE_OK)
        return e;
    if (first->kind == STORE_TX) {
        settle_tx(first, end, r);
    } else if (first->kind == STORE_ERASE) {
        struct store_erase *erase = container_of(first, struct store_erase, op);
        erase->n = (size_t)column_int(r, 0, 0);
        erase->more = column_int(r, 0, 1) != 0;
    }
    PQclear(r);
    return LINE_OK;
}
