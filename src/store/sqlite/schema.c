/* schema.c - settings of the connection, the migrations, and what is counted per start.
 *
 * Rows of all mailboxes lie in one table in order of arrival, without a second index: appending is
 * then always at the right edge of one tree; what is acked is deleted later, in that order
 * (acked.c).  The order per mailbox is kept in memory by the relay. */
#include "store/sqlite/impl.h"
#include <inttypes.h>
#include <stdio.h>

#define MAX_BOOT ((INT64_C(1) << 23) - 1) /* boot << 40 | n stays a positive rowid */

/* [n] takes a database from version n to n + 1.  Never change one that was released: append. */
static const char *const migrations[] = {
    "CREATE TABLE meta(name TEXT PRIMARY KEY, value) WITHOUT ROWID;"
    "INSERT INTO meta VALUES('boot', 0);"
    "INSERT INTO meta VALUES('dedup_key', randomblob(16));"
    "CREATE TABLE mailbox(id INTEGER PRIMARY KEY, box INTEGER NOT NULL, kind INTEGER NOT NULL,"
    " flags INTEGER NOT NULL, at_ms INTEGER NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,"
    " parked TEXT, frame BLOB NOT NULL);"
    /* One row per transaction: all its 16-byte deduplication keys, one behind the other. */
    "CREATE TABLE seen(id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, keys BLOB NOT NULL);"
    /* One row per transaction: the ids it settled, 8 bytes each; their rows are deleted later. */
    "CREATE TABLE acked(id INTEGER PRIMARY KEY, ids BLOB NOT NULL);"
    "CREATE TABLE kv(ns TEXT NOT NULL, k BLOB NOT NULL, v BLOB NOT NULL, PRIMARY KEY(ns, k))"
    " WITHOUT ROWID;"
    /* Of the passphrase that the master key is made from (seal.h). */
    "INSERT INTO kv(ns, k, v) VALUES('seal', CAST('salt' AS BLOB), randomblob(16));",
};

static const char settings[] =
    "PRAGMA synchronous=FULL;"     /* a commit is an fsync of the log */
    "PRAGMA wal_autocheckpoint=0;" /* log.c writes the log back */
    "PRAGMA journal_size_limit=33554432;"
    "PRAGMA cache_size=-2000;" /* KiB; the hot path reads nothing, so a small cache does */
    "PRAGMA mmap_size=0;"
    "PRAGMA temp_store=MEMORY;"
    "PRAGMA secure_delete=FAST;" /* wipe what is deleted where that costs no extra write */
    "PRAGMA trusted_schema=OFF;";

int64_t schema_version(void)
{
    return (int64_t)ARRAY_LEN(migrations);
}

static bool sql_failed(struct store_sqlite *st, const char *doing, char *ret_why)
{
    return bh_why(ret_why, "%s: %s: %s", st->path, doing, sqlite3_errmsg(st->main.db));
}

bool schema_id_is_ours(const char *path, int64_t application_id, char *ret_why)
{
    if (application_id == SCHEMA_APPLICATION_ID)
        return true;
    if (application_id == SCHEMA_EARLIER_ID)
        snprintf(ret_why, 256,
                 "%.120s is of a bellhop from before version 1 of its tables, which this program "
                 "cannot read: move it away and begin with a new one",
                 path);
    else
        snprintf(ret_why, 256, "%.160s is not a database of bellhop", path);
    return false;
}

/* On a disk that is full the number is written with the first transaction that succeeds: before
 * that nothing else of this life is on disk either. */
static bool count_boot(struct store_sqlite *st, char *ret_why)
{
    int64_t boot;

    if (!sql_number(st->main.db, "SELECT value + 1 FROM meta WHERE name = 'boot'", &boot))
        return sql_failed(st, "cannot count this start", ret_why);
    if (boot < 1 || boot > MAX_BOOT)
        return bh_why(ret_why, "%s: the number of starts, %" PRId64 ", is out of range", st->path,
                      boot);
    st->worker.base.boot = (uint64_t)boot;
    st->boot_pending = true;
    if (batch_probe(st) || st->space.state != SPACE_ROOMY)
        return true;
    return sql_failed(st, "cannot count this start", ret_why);
}

static bool read_dedup_key(struct store_sqlite *st, char *ret_why)
{
    sqlite3_stmt *q = NULL;
    const char *sql = "SELECT value FROM meta WHERE name = 'dedup_key'";
    bool ok = sqlite3_prepare_v2(st->main.db, sql, -1, &q, NULL) == SQLITE_OK &&
              sqlite3_step(q) == SQLITE_ROW &&
              sqlite3_column_bytes(q, 0) == (int)sizeof st->worker.base.dedup_key;
    if (ok)
        memcpy(&st->worker.base.dedup_key, sqlite3_column_blob(q, 0),
               sizeof st->worker.base.dedup_key);
    else
        sql_failed(st, "cannot read its deduplication key", ret_why);
    sqlite3_finalize(q);
    return ok;
}

bool schema_prepare(struct store_sqlite *st, char *ret_why)
{
    sqlite3 *db = st->main.db;
    int64_t id, tables, pages;
    char why[160];

    sqlite3_busy_timeout(db, 5000); /* somebody may be taking a backup */
    if (!sql_number(db, "PRAGMA application_id", &id) ||
        !sql_number(db, "SELECT count(*) FROM sqlite_schema", &tables) ||
        !sql_number(db, "PRAGMA page_count", &pages))
        return sql_failed(st, "cannot read it", ret_why);
    if ((id != 0 || tables != 0) && !schema_id_is_ours(st->path, id, ret_why))
        return false;
    /* Before the first table: pages that were freed can then be given back to the disk. */
    if (pages == 0)
        sqlite3_exec(db, "PRAGMA auto_vacuum=INCREMENTAL", NULL, NULL, NULL);
    if (!sql_use_wal(db))
        return sql_failed(st, SQL_NO_WAL, ret_why);
    if (sqlite3_exec(db, settings, NULL, NULL, NULL) != SQLITE_OK)
        return sql_failed(st, "cannot configure", ret_why);
    if (!sql_migrate(db, SCHEMA_APPLICATION_ID, migrations, schema_version(), why))
        return why[0] == '\0' ? sql_failed(st, "cannot migrate", ret_why)
                              : bh_why(ret_why, "%.90s: %s", st->path, why);
    if (!read_dedup_key(st, ret_why))
        return false;
    if (!statements_prepare(&st->main, false))
        return sql_failed(st, "cannot prepare", ret_why);
    return count_boot(st, ret_why) &&
           (acked_recover(st) || sql_failed(st, "cannot read what was settled", ret_why));
}

/* ---- every statement that runs after the start, and what the codes of SQLite mean ---- */

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
           s == SQL_SCAN_UP || s == SQL_SCAN_DOWN || s == SQL_SCAN_DOWN_ALL || s == SQL_LOAD_ROWS ||
           s == SQL_LOAD_KEYS;
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
