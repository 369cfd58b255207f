/* erase.c - deleting many records, or the rows of a mailbox, a bounded number at a time. */
#include "store/sqlite/impl.h"

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

static int erase_records(struct store_sqlite *st, struct store_erase *e)
{
    sqlite3_stmt *q = st->main.sql[SQL_KV_ERASE];
    int rc = erase_plan(st, e);

    if (rc != SQLITE_OK || e->n == 0)
        return rc;
    sqlite3_bind_text(q, 1, e->ns, -1, SQLITE_STATIC);
    sql_bind_bytes(q, 2, e->prefix);
    sql_bind_bytes(q, 3, buf_str(&st->main.scratch));
    return sql_run(&st->main, SQL_KV_ERASE);
}

/* Rows of all mailboxes lie mixed, so this walks the table, a bounded stretch at a time. */
static int erase_rows(struct store_sqlite *st, struct store_erase *e)
{
    sqlite3_stmt *q = st->main.sql[SQL_LIST];
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
