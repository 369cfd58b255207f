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
    sqlite3_stmt *q = st->main.sql[SQL_APPEND];

    assert(a->id > 0 && a->id <= INT64_MAX);
    sqlite3_bind_int64(q, 1, (int64_t)a->id);
    sqlite3_bind_int64(q, 2, a->box);
    sqlite3_bind_int(q, 3, a->row_kind);
    sqlite3_bind_int(q, 4, a->flags);
    sqlite3_bind_int64(q, 5, a->at_ms);
    sql_bind_bytes(q, 6, a->frame);
    return sql_run(&st->main, SQL_APPEND);
}

int write_append(struct store_sqlite *st, struct store_append *a, struct store_stats *counts)
{
    if (worker_take_append(a)) {
        int rc = settle(&a->op, insert_row(st, a));
        if (rc != SQLITE_OK || a->op.err != BH_OK)
            return rc; /* no row, no key */
        counts->rows_written++;
    } else {
        counts->shrunk++;
    }
    if (a->has_key)
        add_key(st, a);
    if (a->replaces != 0)
        acked_add(&st->acked, a->replaces);
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

/* ---- erase ---- */

/* The last key of those that go now, into scratch; how many they are. */
static int erase_plan(struct store_sqlite *st, struct store_erase *e)
{
    sqlite3_stmt *q = st->main.sql[SQL_SCAN_UP];
    int rc;

    sqlite3_bind_text(q, 1, e->ns, -1, SQLITE_STATIC);
    sql_bind_bytes(q, 2, e->prefix);
    while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
        struct str key = sql_bytes(q, 0);
        if (!str_starts(key, e->prefix) || (e->end.p != NULL && str_cmp(key, e->end) >= 0))
            break;
        e->more = e->n == STORE_ERASE_ITEMS;
        if (e->more)
            break;
        buf_reset(&st->main.scratch);
        buf_add_str(&st->main.scratch, key);
        e->n++;
    }
    sqlite3_reset(q);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int write_erase(struct store_sqlite *st, struct store_erase *e)
{
    sqlite3_stmt *q = st->main.sql[SQL_KV_ERASE];
    int rc;

    e->n = 0;
    e->more = false;
    rc = erase_plan(st, e);
    if (rc != SQLITE_OK || e->n == 0)
        return rc;
    sqlite3_bind_text(q, 1, e->ns, -1, SQLITE_STATIC);
    sql_bind_bytes(q, 2, e->prefix);
    sql_bind_bytes(q, 3, buf_str(&st->main.scratch));
    return sql_run(&st->main, SQL_KV_ERASE);
}

/* ---- the keys of the batch ---- */

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
