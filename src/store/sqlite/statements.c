/* statements.c - every statement the store runs after start-up, and what SQLite's codes mean to us.
 */
#include "store/sqlite/impl.h"
#include <stdio.h>

static const char *const sql_text[N_STATEMENTS] = {
    [SQL_BEGIN_WRITE] = "BEGIN IMMEDIATE",
    [SQL_BEGIN_READ] = "BEGIN",
    [SQL_COMMIT] = "COMMIT",
    [SQL_BOOT] = "UPDATE meta SET value = ?1 WHERE name = 'boot'",
    [SQL_SAVEPOINT] = "SAVEPOINT tx",
    [SQL_RELEASE] = "RELEASE tx",
    [SQL_UNDO] = "ROLLBACK TO tx",
    [SQL_APPEND] = "INSERT INTO mailbox(id, box, kind, flags, at_ms, frame)"
                   " VALUES(?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT(id) DO NOTHING",
    [SQL_SEEN] = "INSERT INTO seen(at_ms, keys) VALUES(?1, ?2)",
    [SQL_ACKED_ADD] = "INSERT INTO acked(id, ids) VALUES(?1, ?2)",
    [SQL_ACKED_LOAD] = "SELECT id, ids FROM acked ORDER BY id",
    [SQL_LOG_END] = "SELECT max(id) FROM acked",
    [SQL_ACKED_FORGET] = "DELETE FROM acked WHERE id <= ?1",
    [SQL_PURGE_RUN] = "DELETE FROM mailbox WHERE id BETWEEN ?1 AND ?2",
    [SQL_MARK] = "UPDATE mailbox SET attempts = ?2, parked = ?3, frame = coalesce(?4, frame)"
                 " WHERE id = ?1",
    [SQL_KV_PUT] = "INSERT INTO kv(ns, k, v) VALUES(?1, ?2, ?3)"
                   " ON CONFLICT(ns, k) DO UPDATE SET v = excluded.v",
    [SQL_KV_INSERT] = "INSERT INTO kv(ns, k, v) VALUES(?1, ?2, ?3)",
    [SQL_KV_DELETE] = "DELETE FROM kv WHERE ns = ?1 AND k = ?2",
    [SQL_KV_ERASE] = "DELETE FROM kv WHERE ns = ?1 AND k BETWEEN ?2 AND ?3",
    /* Keys lie in order of arrival, so the old ones are at the front: no index, no full scan. */
    [SQL_FORGET] = "DELETE FROM seen WHERE at_ms < ?1 AND"
                   " id IN (SELECT id FROM seen ORDER BY id LIMIT ?2)",
    [SQL_FETCH] = "SELECT id, box, kind, flags, at_ms, attempts, parked, frame FROM mailbox"
                  " WHERE id >= ?1 ORDER BY id",
    [SQL_LIST] = "SELECT id, box, kind, flags, at_ms, attempts, parked, frame FROM mailbox"
                 " WHERE id > ?1 ORDER BY id",
    [SQL_SCAN_UP] = "SELECT k, v FROM kv WHERE ns = ?1 AND k >= ?2 ORDER BY k",
    [SQL_SCAN_DOWN] = "SELECT k, v FROM kv WHERE ns = ?1 AND k < ?2 ORDER BY k DESC",
    [SQL_SCAN_DOWN_ALL] = "SELECT k, v FROM kv WHERE ns = ?1 ORDER BY k DESC",
    [SQL_LOAD_ROWS] = "SELECT id, box, kind, flags, at_ms, attempts, parked, length(frame),"
                      " CASE WHEN flags & 2 THEN frame END FROM mailbox ORDER BY id",
    [SQL_LOAD_KEYS] = "SELECT at_ms, keys FROM seen WHERE at_ms >= ?1 ORDER BY id",
    [SQL_PROBE] = "INSERT INTO meta(name, value) VALUES('probe', 1)"
                  " ON CONFLICT(name) DO UPDATE SET value = value + 1",
};

static bool is_for_reader(int s)
{
    return s == SQL_BEGIN_READ || s == SQL_COMMIT || s == SQL_LOG_END || s == SQL_FETCH ||
           s == SQL_LIST || s == SQL_SCAN_UP || s == SQL_SCAN_DOWN || s == SQL_SCAN_DOWN_ALL ||
           s == SQL_LOAD_ROWS || s == SQL_LOAD_KEYS;
}

bool statements_prepare(struct sql_conn *c, bool reader)
{
    for (int i = 0; i < N_STATEMENTS; i++)
        if ((!reader || is_for_reader(i)) &&
            sqlite3_prepare_v3(c->db, sql_text[i], -1, SQLITE_PREPARE_PERSISTENT, &c->sql[i],
                               NULL) != SQLITE_OK)
            return false;
    return true;
}

void statements_finalize(struct sql_conn *c)
{
    for (int i = 0; i < N_STATEMENTS; i++)
        sqlite3_finalize(c->sql[i]);
}

int sql_run(struct sql_conn *c, enum statement s)
{
    int rc;
    while ((rc = sqlite3_step(c->sql[s])) == SQLITE_ROW)
        ;
    sqlite3_reset(c->sql[s]);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

bool sql_one_int(struct sql_conn *c, const char *sql, int64_t *ret_v)
{
    sqlite3_stmt *q = NULL;
    bool ok =
        sqlite3_prepare_v2(c->db, sql, -1, &q, NULL) == SQLITE_OK && sqlite3_step(q) == SQLITE_ROW;
    if (ok)
        *ret_v = sqlite3_column_int64(q, 0);
    sqlite3_finalize(q);
    return ok;
}

void sql_bind_bytes(sqlite3_stmt *q, int at, struct str s)
{
    /* What is too large for SQLite becomes NULL, which the NOT NULL of our columns turns into a
     * failure of this op alone. */
    if (sqlite3_bind_blob64(q, at, s.p != NULL ? s.p : "", s.n, SQLITE_STATIC) != SQLITE_OK)
        sqlite3_bind_null(q, at);
}

struct str sql_bytes(sqlite3_stmt *q, int column)
{
    const void *p = sqlite3_column_blob(q, column); /* NULL for an empty blob */
    return str_make(p != NULL ? p : "", (size_t)sqlite3_column_bytes(q, column));
}

void note_problem(struct store_sqlite *st, const char *doing, int rc)
{
    if (st->batch_problem[0] == '\0') /* the first one is the cause, the others follow from it */
        snprintf(st->batch_problem, sizeof st->batch_problem, "%s: %s (code %d)", doing,
                 sqlite3_errmsg(st->main.db), rc);
}
