/* migrate.c - a database file as one end of a migration.  (store/migrate.h has the contract.)
 *
 * As a source the file is read as it is, under the lock that keeps servers out. */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "net/loop.h"
#include "store/migrate.h"
#include "store/sqlite/impl.h"

#define ROWS_OF " FROM mailbox WHERE id NOT IN (SELECT value FROM json_each(?1))"
#define SETTLED N_MIGRATE_STATEMENTS /* -> the ids of one transaction */

static const char *const statements[] = {
    /* records */
    "SELECT ns, k, v FROM kv ORDER BY ns, k",
    "INSERT INTO kv(ns, k, v) VALUES(?1, ?2, ?3)",
    "SELECT count(*) FROM kv",
    /* messages */
    "SELECT id, box, kind, flags, at_ms, attempts, parked, frame" ROWS_OF " ORDER BY id",
    "INSERT INTO mailbox(id, box, kind, flags, at_ms, attempts, parked, frame)"
    " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    "SELECT count(*)" ROWS_OF,
    /* deduplication keys */
    "SELECT keys, at_ms FROM seen ORDER BY id",
    "INSERT INTO seen(keys, at_ms) VALUES(?1, ?2)",
    "SELECT count(*) FROM seen",
    TRANSFER_SQLITE_REST,
    [MIGRATE_IDENTITY] = "SELECT (SELECT value FROM meta WHERE name = 'dedup_key'),"
                         " (SELECT value FROM meta WHERE name = 'boot')",
    [MIGRATE_FINISH] = "UPDATE meta SET value = CASE name WHEN 'boot' THEN ?1 ELSE ?2 END"
                       " WHERE name IN ('boot', 'dedup_key')",
    [MIGRATE_CLEAR] = "DELETE FROM kv",
    [SETTLED] = "SELECT ids FROM acked",
};

/* Whatever an earlier try left goes. */
static bool make_file(const char *path, char *ret_why)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
    struct loop *loop = loop_new();
    struct store *st = NULL;
    char name[4096];

    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
        snprintf(name, sizeof name, "%s%s", path, suffixes[i]);
        unlink(name);
    }
    bool ok = store_sqlite_open(loop, path, &st, ret_why) == BH_OK;
    store_close(st);
    loop_free(loop);
    return ok;
}

/* Tables of another version stay as they are: the source is not changed. */
static bool is_current(const char *path, char *ret_why)
{
    sqlite3 *db = NULL;
    int64_t version = 0, id = 0;
    bool ok = sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK &&
              sql_number(db, "PRAGMA user_version", &version) &&
              sql_number(db, "PRAGMA application_id", &id);

    if (!ok)
        snprintf(ret_why, 256, "%.120s: %.100s", path, sqlite3_errmsg(db));
    else if (id != SCHEMA_APPLICATION_ID || version != schema_version())
        ok = bh_why(ret_why,
                    "%.120s has tables of another version: start this bellhop on it once, then "
                    "move it",
                    path);
    sqlite3_close(db);
    return ok;
}

struct sqldb *migrate_open_file(const char *path, bool fresh, int *ret_lock, char *ret_why)
{
    static struct sqldb_schema schema = {.application_id = SCHEMA_APPLICATION_ID,
                                         .statements = statements,
                                         .n_statements = ARRAY_LEN(statements),
                                         .cache_kib = 8192};
    struct sqldb_sqlite *db = NULL;

    schema.n_migrations = (int)schema_version(); /* all are done: is_current() */
    if (!fresh && access(path, F_OK) != 0)
        snprintf(ret_why, 256, "there is no database %.180s", path);
    else if ((!fresh || make_file(path, ret_why)) &&
             (*ret_lock = store_sqlite_lock(path, ret_why)) >= 0 && is_current(path, ret_why))
        db = sqldb_sqlite_open(path, &schema, fresh ? SQLDB_WRITE : SQLDB_READ, ret_why);
    return db != NULL ? &db->base : NULL;
}

bool migrate_settled(struct sqldb *file, int64_t **ret_ids, size_t *ret_n)
{
    BUF_LOCAL ids = BUF_INIT;

    sqldb_ask(file, SETTLED);
    while (sqldb_next(file))
        buf_add_str(&ids, sqldb_get_str(file, 0));
    *ret_n = ids.n / sizeof **ret_ids;
    *ret_ids = xcalloc(*ret_n + 1, sizeof **ret_ids);
    for (size_t i = 0; i < *ret_n; i++) {
        uint64_t id;
        memcpy(&id, ids.p + i * sizeof id, sizeof id);
        (*ret_ids)[i] = (int64_t)le64toh(id);
    }
    return file->ok;
}
