/* write.c - the writing ops, each inside the transaction of its batch. */
#include "store/sqlite/impl.h"
#include <assert.h>
#include <endian.h>

/* A failure that is the op's own is noted in it and the batch goes on. */
static int settle(struct store_op *op, int rc)
{
    switch (rc & 0xff) {
    case SQLITE_CONSTRAINT:
        op->err = BH_CONFLICT;
        return SQLITE_OK;
    case SQLITE_TOOBIG:
        op->err = BH_REFUSED;
        return SQLITE_OK;
    default:
        return rc;
    }
}

static void add_key(struct store_sqlite *st, const struct store_append *a)
{
    uint64_t bytes[2] = {htole64(a->key.lo), htole64(a->key.hi)};
    buf_add(&st->keys, bytes, sizeof bytes);
    if (a->at_ms > st->keys_at_ms)
        st->keys_at_ms = a->at_ms;
}

static int insert_row(struct store_sqlite *st, const struct store_append *a)
{
    sqlite3_stmt *q = st->sql[SQL_APPEND];
    sqlite3_bind_int64(q, 1, (int64_t)a->id);
    sqlite3_bind_int64(q, 2, a->box);
    sqlite3_bind_int(q, 3, a->row_kind);
    sqlite3_bind_int64(q, 4, a->at_ms);
    sql_bind_bytes(q, 5, a->frame);
    return sql_run(st, SQL_APPEND);
}

int write_append(struct store_sqlite *st, struct store_append *a, struct store_stats *counts)
{
    uint8_t expected = OP_QUEUED;

    if (__atomic_compare_exchange_n(&a->op.state, &expected, OP_TAKEN, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE)) {
        assert(a->id > 0 && a->id <= INT64_MAX);
        int rc = settle(&a->op, insert_row(st, a));
        if (rc != SQLITE_OK || a->op.err != BH_OK)
            return rc; /* no row, no key */
        counts->rows_written++;
    } else {
        counts->shrunk++;
    }
    if (a->has_key)
        add_key(st, a);
    return SQLITE_OK;
}

int write_ack(struct store_sqlite *st, const struct store_ack *a)
{
    for (size_t i = 0; i < a->n; i++)
        acked_add(&st->acked, a->ids[i]);
    return SQLITE_OK;
}

int write_mark(struct store_sqlite *st, struct store_mark *m)
{
    sqlite3_stmt *q = st->sql[SQL_MARK];
    sqlite3_bind_int64(q, 1, (int64_t)m->id);
    sqlite3_bind_int64(q, 2, m->attempts);
    if (m->parked.p != NULL)
        sqlite3_bind_text64(q, 3, m->parked.p, m->parked.n, SQLITE_STATIC, SQLITE_UTF8);
    else
        sqlite3_bind_null(q, 3);
    return settle(&m->op, sql_run(st, SQL_MARK));
}

static int run_kv(struct store_sqlite *st, struct store_op *op, const struct store_kv *kv)
{
    static const enum statement by_verb[] = {[KV_PUT] = SQL_KV_PUT,
                                             [KV_INSERT] = SQL_KV_INSERT,
                                             [KV_DELETE] = SQL_KV_DELETE,
                                             [KV_CONSUME] = SQL_KV_DELETE};
    enum statement s = by_verb[kv->verb];
    sqlite3_stmt *q = st->sql[s];

    sqlite3_bind_text(q, 1, kv->ns, -1, SQLITE_STATIC);
    sql_bind_bytes(q, 2, kv->key);
    if (s != SQL_KV_DELETE)
        sql_bind_bytes(q, 3, kv->value);
    int rc = settle(op, sql_run(st, s));
    if (rc == SQLITE_OK && kv->verb == KV_CONSUME && sqlite3_changes(st->db) == 0)
        op->err = BH_CONFLICT;
    return rc;
}

/* One statement undoes itself; only several need a savepoint. */
int write_tx(struct store_sqlite *st, struct store_tx *t)
{
    int rc = t->n > 1 ? sql_run(st, SQL_SAVEPOINT) : SQLITE_OK;

    t->ret_failed = t->n;
    for (size_t i = 0; i < t->n && rc == SQLITE_OK; i++) {
        rc = run_kv(st, &t->op, &t->items[i]);
        if (t->op.err != BH_OK) {
            t->ret_failed = i;
            break;
        }
    }
    if (t->n > 1 && rc == SQLITE_OK && t->op.err != BH_OK)
        rc = sql_run(st, SQL_UNDO);
    if (t->n > 1 && rc == SQLITE_OK)
        rc = sql_run(st, SQL_RELEASE);
    return rc;
}

int write_seen(struct store_sqlite *st, struct store_stats *counts)
{
    sqlite3_stmt *q = st->sql[SQL_SEEN];

    if (st->keys.n == 0)
        return SQLITE_OK;
    sqlite3_bind_int64(q, 1, st->keys_at_ms);
    sql_bind_bytes(q, 2, buf_str(&st->keys));
    counts->keys_written += st->keys.n / sizeof(struct hash128);
    return sql_run(st, SQL_SEEN);
}
