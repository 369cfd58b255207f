/* write.c - the statements of one transaction.
 *
 * Mailbox rows and records are different tables, so the ops change places: all appends become one
 * statement, then the records follow in the order of submission, then the acks as one statement,
 * then the marks (a row that is deleted is gone, marked before or after).  A hundred deliveries
 * cost one statement.
 *
 *      pg_write_ask   queues the statements and notes in st->asked whose answer says more than yes
 *      pg_write_read  reads the answers in the same order */
#include <stdlib.h>
#include "base/mem.h"
#include "store/postgres/impl.h"

#define EACH(op, first, end, op_kind) \
    for (struct store_op *op = (first); op != (end); op = op->next) \
        if (op->kind == (op_kind))

/* @op: the answer is its own; NULL: the answer says only that the statement was done. */
static void ask(struct store_postgres *st, enum pg_statement s, struct store_op *op)
{
    st->asked = xgrow(st->asked, st->n_asked, &st->cap_asked, sizeof(struct store_op *));
    st->asked[st->n_asked++] = op;
    line_ask(&st->main, s, &st->params);
}

/* ---- rows ---- */

static void ask_appends(struct store_postgres *st, struct store_op *first, struct store_op *end)
{
    struct params *p = &st->params;
    size_t n = 0;

    params_reset(p);
#define COLUMN(type, add) \
    array_begin(p, type); \
    EACH(op, first, end, STORE_APPEND) \
    { \
        const struct store_append *a = container_of(op, struct store_append, op); \
        if (!a->shrunk) \
            add; \
    } \
    array_end(p)
    COLUMN(PARAM_I64, (array_i64(p, (int64_t)a->id), n++));
    COLUMN(PARAM_I32, array_i32(p, (int32_t)a->box));
    COLUMN(PARAM_I32, array_i32(p, a->row_kind));
    COLUMN(PARAM_I32, array_i32(p, a->flags));
    COLUMN(PARAM_I64, array_i64(p, a->at_ms));
    COLUMN(PARAM_BYTES, array_bytes(p, a->frame));
#undef COLUMN
    if (n > 0)
        ask(st, PG_APPEND, NULL);
}

/* One record of the transaction has all its deduplication keys. */
static void ask_keys(struct store_postgres *st, struct store_op *first, struct store_op *end)
{
    struct buf *keys = &st->keys;
    int64_t newest_ms = 0;

    buf_reset(keys);
    EACH(op, first, end, STORE_APPEND)
    {
        const struct store_append *a = container_of(op, struct store_append, op);
        if (!a->has_key)
            continue;
        result_add_key(keys, a->key);
        for (size_t i = 0; a->extra != NULL && i < a->extra->n_keys; i++)
            result_add_key(keys, a->extra->keys[i]);
        if (a->at_ms > newest_ms)
            newest_ms = a->at_ms;
    }
    if (keys->n == 0)
        return;
    params_reset(&st->params);
    param_i64(&st->params, newest_ms);
    param_bytes(&st->params, buf_str(keys));
    ask(st, PG_SEEN, NULL);
}

/* What acks name, and the staged rows that appends replace. */
static void ask_deletes(struct store_postgres *st, struct store_op *first, struct store_op *end)
{
    struct params *p = &st->params;
    size_t n = 0;

    params_reset(p);
    array_begin(p, PARAM_I64);
    EACH(op, first, end, STORE_ACK)
    {
        const struct store_ack *a = container_of(op, struct store_ack, op);
        for (size_t i = 0; i < a->n; i++, n++)
            array_i64(p, (int64_t)a->ids[i]);
    }
    EACH(op, first, end, STORE_APPEND)
    {
        const struct store_append *a = container_of(op, struct store_append, op);
        if (a->replaces != 0) {
            array_i64(p, (int64_t)a->replaces);
            n++;
        }
    }
    array_end(p);
    if (n > 0)
        ask(st, PG_ACK, NULL);
}

static void ask_mark(struct store_postgres *st, const struct store_mark *m)
{
    struct params *p = &st->params;

    params_reset(p);
    param_i64(p, (int64_t)m->id);
    param_i32(p, (int32_t)m->attempts);
    param_opt(p, m->parked);
    param_opt(p, m->frame);
    ask(st, PG_MARK, NULL);
}

/* ---- records ---- */

static bool has_conditions(const struct store_tx *t)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->items[i].verb == KV_INSERT || t->items[i].verb == KV_CONSUME)
            return true;
    return false;
}

/* With conditions: one item after the other, up to the first that does not hold. */
static void ask_tries(struct store_postgres *st, struct store_tx *t)
{
    struct params *p = &st->params;

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
    ask(st, PG_KV_TRY, &t->op);
}

/* By record; changes of one record in their order. */
static int by_record(const void *x, const void *y)
{
    const struct kv_last *a = x, *b = y;
    int c = strcmp(a->item->ns, b->item->ns);

    if (c == 0)
        c = str_cmp(a->item->key, b->item->key);
    return c != 0 ? c : (a->at > b->at) - (a->at < b->at);
}

/* Without conditions only the last change of each record counts.  Sorts the first @n of st->kvs and
 * answers how many are left. */
static size_t keep_last(struct store_postgres *st, size_t n)
{
    size_t last = 0;

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

static void ask_sets(struct store_postgres *st, size_t n)
{
    struct params *p = &st->params;

    if (n == 0)
        return;
    n = keep_last(st, n);
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
    ask(st, PG_KV_SET, NULL);
}

static size_t gather(struct store_postgres *st, const struct store_kv *items, size_t more, size_t n)
{
    if (n + more > st->cap_kvs) {
        st->cap_kvs = 2 * (n + more) + 64;
        st->kvs = xrealloc(st->kvs, st->cap_kvs * sizeof *st->kvs);
    }
    for (size_t i = 0; i < more; i++, n++)
        st->kvs[n] = (struct kv_last){&items[i], n};
    return n;
}

static void ask_erase(struct store_postgres *st, struct store_erase *e)
{
    struct params *p = &st->params;
    struct buf end = BUF_INIT;
    bool bounded = scan_prefix_end(&end, e->prefix);
    struct str to = bounded ? buf_str(&end) : STR_NULL;

    if (e->end.p != NULL && (!bounded || str_cmp(e->end, to) < 0))
        to = e->end;
    params_reset(p);
    param_bytes(p, str_of(e->ns));
    param_bytes(p, e->prefix);
    param_opt(p, to);
    param_i64(p, STORE_ERASE_ITEMS);
    ask(st, PG_ERASE, &e->op);
    buf_done(&end);
}

/* Transactions without conditions that follow each other, and the records of appends between them,
 * become one statement. */
static void ask_records(struct store_postgres *st, struct store_op *first, struct store_op *end)
{
    size_t n = 0;

    for (struct store_op *op = first; op != end; op = op->next) {
        struct store_tx *t = container_of(op, struct store_tx, op);
        bool plain = op->kind == STORE_TX && !has_conditions(t);
        if (plain)
            n = gather(st, t->items, t->n, n);
        const struct store_append *a = container_of(op, const struct store_append, op);
        if (op->kind == STORE_APPEND && a->extra != NULL)
            n = gather(st, a->extra->puts, a->extra->n_puts, n);
        if (plain || (op->kind != STORE_TX && op->kind != STORE_ERASE))
            continue;
        ask_sets(st, n);
        n = 0;
        if (op->kind == STORE_TX)
            ask_tries(st, t);
        else
            ask_erase(st, container_of(op, struct store_erase, op));
    }
    ask_sets(st, n);
}

/* ---- all of them ---- */

void pg_write_ask(struct store_postgres *st, struct store_op *first, struct store_op *end)
{
    st->n_asked = 0;
    ask_appends(st, first, end);
    ask_keys(st, first, end);
    ask_records(st, first, end);
    ask_deletes(st, first, end);
    EACH(op, first, end, STORE_MARK)
    ask_mark(st, container_of(op, struct store_mark, op));
}

static void settle(struct store_op *op, const PGresult *r)
{
    if (op->kind == STORE_ERASE) {
        struct store_erase *e = container_of(op, struct store_erase, op);
        e->n = (size_t)column_int(r, 0, 0);
        e->more = column_int(r, 0, 1) != 0;
    } else if (column_int(r, 0, 0) >= 0) { /* the item whose condition does not hold */
        op->err = BH_CONFLICT;
    }
}

enum line_end pg_write_read(struct store_postgres *st)
{
    enum line_end end = LINE_OK;

    for (size_t i = 0; i < st->n_asked && end != LINE_LOST; i++) {
        PGresult *r;
        enum line_end e = line_answer(&st->main, &r);
        if (r != NULL && st->asked[i] != NULL)
            settle(st->asked[i], r);
        PQclear(r);
        line_fold(&end, e);
    }
    return end;
}
