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

/* The column holds the kind, the flags above it, and a bit which says that there are flags: rows
 * of older databases have none. */
static int row_kind_pack(const struct store_append *a)
{
    return a->row_kind | a->flags << 8 | ROW_HAS_FLAGS;
}

static int insert_row(struct store_sqlite *st, const struct store_append *a)
{
    sqlite3_stmt *q = st->main.sql[SQL_APPEND];
    sqlite3_bind_int64(q, 1, (int64_t)a->id);
    sqlite3_bind_int64(q, 2, a->box);
    sqlite3_bind_int(q, 3, row_kind_pack(a));
    sqlite3_bind_int64(q, 4, a->at_ms);
    sql_bind_bytes(q, 5, a->frame);
    return sql_run(&st->main, SQL_APPEND);
}

static struct str key_bytes(const struct store_append *a, uint64_t room[2])
{
    room[0] = htole64(a->key.lo);
    room[1] = htole64(a->key.hi);
    return str_make(room, 2 * sizeof room[0]);
}

/* Was the key there?  Then it tells which row has it. */
static int find_once(struct store_sqlite *st, struct store_append *a)
{
    sqlite3_stmt *q = st->main.sql[SQL_ONCE_FIND];
    uint64_t room[2];

    sql_bind_bytes(q, 1, key_bytes(a, room));
    int rc = sqlite3_step(q);
    a->exists = rc == SQLITE_ROW;
    if (a->exists) {
        uint64_t row = (uint64_t)sqlite3_column_int64(q, 0);
        bool there = sqlite3_column_type(q, 1) != SQLITE_NULL && !acked_has(&st->acked, row);
        a->sequence = there ? row : 0;
    }
    sqlite3_reset(q);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int add_once(struct store_sqlite *st, const struct store_append *a, bool row)
{
    sqlite3_stmt *q = st->main.sql[SQL_ONCE_ADD];
    uint64_t room[2];

    sql_bind_bytes(q, 1, key_bytes(a, room));
    sqlite3_bind_int64(q, 2, a->at_ms);
    sqlite3_bind_int64(q, 3, row ? (int64_t)a->id : 0);
    return sql_run(&st->main, SQL_ONCE_ADD);
}

int write_append(struct store_sqlite *st, struct store_append *a, struct store_stats *counts)
{
    bool row = false, once = a->has_key && a->once;

    a->exists = false;
    a->sequence = a->id;
    if (once) {
        int rc = find_once(st, a);
        if (rc != SQLITE_OK || a->exists)
            return rc;
    }

    if (worker_take_append(a)) {
        assert(a->id > 0 && a->id <= INT64_MAX);
        int rc = settle(&a->op, insert_row(st, a));
        if (rc != SQLITE_OK || a->op.err != BH_OK)
            return rc; /* no row, no key */
        counts->rows_written++;
        row = true;
    } else {
        counts->shrunk++;
    }
    if (a->has_key)
        add_key(st, a);
    if (a->replaces != 0)
        acked_add(&st->acked, a->replaces);
    return once ? add_once(st, a, row) : SQLITE_OK;
}

int write_ack(struct store_sqlite *st, const struct store_ack *a)
{
    for (size_t i = 0; i < a->n; i++)
        acked_add(&st->acked, a->ids[i]);
    return SQLITE_OK;
}

int write_mark(struct store_sqlite *st, struct store_mark *m)
{
    sqlite3_stmt *q = st->main.sql[SQL_MARK];
    sqlite3_bind_int64(q, 1, (int64_t)m->id);
    sqlite3_bind_int64(q, 2, m->attempts);
    if (m->parked.p != NULL)
        sqlite3_bind_text64(q, 3, m->parked.p, m->parked.n, SQLITE_STATIC, SQLITE_UTF8);
    else
        sqlite3_bind_null(q, 3);
    if (m->frame.p != NULL)
        sql_bind_bytes(q, 4, m->frame);
    else
        sqlite3_bind_null(q, 4);
    return settle(&m->op, sql_run(&st->main, SQL_MARK));
}

static int run_kv(struct store_sqlite *st, struct store_op *op, const struct store_kv *kv)
{
    static const enum statement by_verb[] = {[KV_PUT] = SQL_KV_PUT,
                                             [KV_INSERT] = SQL_KV_INSERT,
                                             [KV_DELETE] = SQL_KV_DELETE,
                                             [KV_CONSUME] = SQL_KV_DELETE};
    enum statement s = by_verb[kv->verb];
    sqlite3_stmt *q = st->main.sql[s];

    sqlite3_bind_text(q, 1, kv->ns, -1, SQLITE_STATIC);
    sql_bind_bytes(q, 2, kv->key);
    if (s != SQL_KV_DELETE)
        sql_bind_bytes(q, 3, kv->value);
    int rc = settle(op, sql_run(&st->main, s));
    if (rc == SQLITE_OK && kv->verb == KV_CONSUME && sqlite3_changes(st->main.db) == 0)
        op->err = BH_CONFLICT;
    return rc;
}

/* One statement undoes itself; only several need a savepoint. */
int write_tx(struct store_sqlite *st, struct store_tx *t)
{
    int rc = t->n > 1 ? sql_run(&st->main, SQL_SAVEPOINT) : SQLITE_OK;

    t->ret_failed = t->n;
    for (size_t i = 0; i < t->n && rc == SQLITE_OK; i++) {
        rc = run_kv(st, &t->op, &t->items[i]);
        if (t->op.err != BH_OK) {
            t->ret_failed = i;
            break;
        }
    }
    if (t->n > 1 && rc == SQLITE_OK && t->op.err != BH_OK)
        rc = sql_run(&st->main, SQL_UNDO);
    if (t->n > 1 && rc == SQLITE_OK)
        rc = sql_run(&st->main, SQL_RELEASE);
    return rc;
}

int write_seen(struct store_sqlite *st, struct store_stats *counts)
{
    sqlite3_stmt *q = st->main.sql[SQL_SEEN];

    if (st->keys.n == 0)
        return SQLITE_OK;
    sqlite3_bind_int64(q, 1, st->keys_at_ms);
    sql_bind_bytes(q, 2, buf_str(&st->keys));
    counts->keys_written += st->keys.n / sizeof(struct hash128);
    return sql_run(&st->main, SQL_SEEN);
}
