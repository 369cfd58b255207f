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
int row_kind_pack(const struct store_append *a)
{
    return a->row_kind | a->flags << 8 | ROW_HAS_FLAGS;
}

static int insert_row(struct store_sqlite *st, const struct store_append *a)
{
    sqlite3_stmt *q = st->sql[SQL_APPEND];
    sqlite3_bind_int64(q, 1, (int64_t)a->id);
    sqlite3_bind_int64(q, 2, a->box);
    sqlite3_bind_int(q, 3, row_kind_pack(a));
    sqlite3_bind_int64(q, 4, a->at_ms);
    sql_bind_bytes(q, 5, a->frame);
    return sql_run(st, SQL_APPEND);
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
    sqlite3_stmt *q = st->sql[SQL_ONCE_FIND];
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
    sqlite3_stmt *q = st->sql[SQL_ONCE_ADD];
    uint64_t room[2];

    sql_bind_bytes(q, 1, key_bytes(a, room));
    sqlite3_bind_int64(q, 2, a->at_ms);
    sqlite3_bind_int64(q, 3, row ? (int64_t)a->id : 0);
    return sql_run(st, SQL_ONCE_ADD);
}

int write_append(struct store_sqlite *st, struct store_append *a, struct store_stats *counts)
{
    uint8_t expected = OP_QUEUED;
    bool row = false, once = a->has_key && a->once;

    a->exists = false;
    a->sequence = a->id;
    if (once) {
        int rc = find_once(st, a);
        if (rc != SQLITE_OK || a->exists)
            return rc;
    }

    if (__atomic_compare_exchange_n(&a->op.state, &expected, OP_TAKEN, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE)) {
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

/* ---- deleting many ---- */

/* The last key of those that go now, into scratch; how many they are. */
static int erase_plan(struct store_sqlite *st, struct store_erase *e)
{
    sqlite3_stmt *q = st->sql[SQL_SCAN_UP];
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
        buf_reset(&st->scratch);
        buf_add_str(&st->scratch, key);
        e->n++;
    }
    sqlite3_reset(q);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int erase_records(struct store_sqlite *st, struct store_erase *e)
{
    sqlite3_stmt *q = st->sql[SQL_KV_ERASE];
    int rc = erase_plan(st, e);

    if (rc != SQLITE_OK || e->n == 0)
        return rc;
    sqlite3_bind_text(q, 1, e->ns, -1, SQLITE_STATIC);
    sql_bind_bytes(q, 2, e->prefix);
    sql_bind_bytes(q, 3, buf_str(&st->scratch));
    return sql_run(st, SQL_KV_ERASE);
}

/* Rows of all mailboxes lie mixed, so this walks the table, a bounded stretch at a time. */
static int erase_rows(struct store_sqlite *st, struct store_erase *e)
{
    sqlite3_stmt *q = st->sql[SQL_LIST];
    size_t seen = 0;
    int rc;

    sqlite3_bind_int64(q, 1, (int64_t)e->at);
    while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
        uint64_t id = (uint64_t)sqlite3_column_int64(q, 0);
        if (id > e->up_to)
            break;
        e->more = e->n == STORE_ERASE_ITEMS || seen++ == ERASE_LOOK;
        if (e->more)
            break;
        e->at = id;
        if ((uint32_t)sqlite3_column_int64(q, 1) != e->box || acked_has(&st->acked, id))
            continue;
        acked_add(&st->acked, id);
        e->n++;
    }
    sqlite3_reset(q);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int write_erase(struct store_sqlite *st, struct store_erase *e)
{
    e->n = 0;
    e->more = false;
    return e->ns != NULL ? erase_records(st, e) : erase_rows(st, e);
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
