/* side.c - opening, settings, migrations and statements of a database beside the main one.
 * (side.h has the contract.)
 *
 * A long read is stopped from inside: SQLite asks us every so many steps whether to go on. */
#include "store/sqlite/side.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/mem.h"
#include "store/lanes.h"

#define PROGRESS_STEPS 1000 /* of SQLite's machine; a row of a full text search takes about ten */

static int on_progress(void *ctx)
{
    const struct side_db *db = ctx;
    return db->job != NULL && lane_job_must_stop(db->job);
}

bool side_failed(struct side_db *db, const char *doing)
{
    snprintf(db->why, sizeof db->why, "%s: %s", doing, sqlite3_errmsg(db->db));
    return false;
}

static bool run_text(struct side_db *db, const char *sql)
{
    return sqlite3_exec(db->db, sql, NULL, NULL, NULL) == SQLITE_OK;
}

static bool one_int(struct side_db *db, const char *sql, int64_t *ret_v)
{
    sqlite3_stmt *q = NULL;
    bool ok =
        sqlite3_prepare_v2(db->db, sql, -1, &q, NULL) == SQLITE_OK && sqlite3_step(q) == SQLITE_ROW;

    if (ok)
        *ret_v = sqlite3_column_int64(q, 0);
    sqlite3_finalize(q);
    return ok;
}

static bool is_ours(struct side_db *db)
{
    int64_t id, tables;

    if (!one_int(db, "PRAGMA application_id", &id) ||
        !one_int(db, "SELECT count(*) FROM sqlite_schema", &tables))
        return side_failed(db, "cannot read it");
    if (id == db->schema->application_id || (id == 0 && tables == 0))
        return true;
    snprintf(db->why, sizeof db->why, "it is a database, but not the one that belongs here");
    return false;
}

static bool migrate(struct side_db *db)
{
    int64_t version;
    const int64_t known = db->schema->n_migrations;

    if (!one_int(db, "PRAGMA user_version", &version))
        return side_failed(db, "cannot read its version");
    if (version > known) {
        snprintf(db->why, sizeof db->why,
                 "it was written by a newer bellhop (version %" PRId64 " of the tables, this one "
                 "knows %" PRId64 ")",
                 version, known);
        return false;
    }
    for (; version < known; version++) {
        char stamp[96];
        snprintf(stamp, sizeof stamp, "PRAGMA application_id=%d; PRAGMA user_version=%" PRId64,
                 db->schema->application_id, version + 1);
        if (!run_text(db, "BEGIN IMMEDIATE") || !run_text(db, db->schema->migrations[version]) ||
            !run_text(db, stamp) || !run_text(db, "COMMIT"))
            return side_failed(db, "cannot migrate");
    }
    return true;
}

static bool configure(struct side_db *db, enum side_mode mode)
{
    char text[512];

    snprintf(text, sizeof text,
             "PRAGMA synchronous=%s;"          /* FULL: a commit is an fsync of the log */
             "PRAGMA wal_autocheckpoint=4000;" /* pages: the log stays near 16 MiB */
             "PRAGMA journal_size_limit=16777216;"
             "PRAGMA cache_size=-%d;"
             "PRAGMA mmap_size=0;"
             "PRAGMA temp_store=MEMORY;"
             "PRAGMA secure_delete=FAST;"
             "PRAGMA trusted_schema=OFF;"
             "PRAGMA query_only=%d;",
             db->schema->derived ? "NORMAL" : "FULL", db->schema->cache_kib, mode == SIDE_READ);
    return run_text(db, text) || side_failed(db, "cannot configure it");
}

static bool use_wal(struct side_db *db)
{
    sqlite3_stmt *q = NULL;
    bool ok = sqlite3_prepare_v2(db->db, "PRAGMA journal_mode=WAL", -1, &q, NULL) == SQLITE_OK &&
              sqlite3_step(q) == SQLITE_ROW &&
              sqlite3_stricmp((const char *)sqlite3_column_text(q, 0), "wal") == 0;

    if (!ok)
        side_failed(db, "cannot use a write-ahead log here (a network file system?)");
    sqlite3_finalize(q);
    return ok;
}

/* Several threads open one file at once; only the first makes the tables. */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

/* SQLite would create it readable by everybody; the log beside it inherits the mode. */
static bool file_create(const char *path, char *ret_why)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    if (fd < 0) {
        snprintf(ret_why, 256, "cannot open %.160s: %s", path, strerror(errno));
        return false;
    }
    close(fd);
    return true;
}

struct side_db *side_open(const char *path, const struct side_schema *schema, enum side_mode mode,
                          char *ret_why)
{
    /* NOMUTEX: a connection belongs to one thread.  A reader opens for writing too, for it may have
     * to recover the log; query_only keeps it from changing anything. */
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;
    struct side_db *db = xcalloc(1, sizeof *db);

    assert(schema->n_statements <= SIDE_MAX_STATEMENTS);
    db->schema = schema;
    if (!file_create(path, ret_why)) {
        free(db);
        return NULL;
    }
    pthread_mutex_lock(&opening);
    bool ok = sqlite3_open_v2(path, &db->db, flags, NULL) == SQLITE_OK ||
              side_failed(db, "cannot open it");
    if (ok)
        sqlite3_busy_timeout(db->db, 10000); /* a backup, or the writer making the tables */
    ok = ok && is_ours(db) && use_wal(db) && migrate(db) && configure(db, mode);
    pthread_mutex_unlock(&opening);
    if (!ok) {
        snprintf(ret_why, 256, "%.90s: %s", path, db->why);
        side_close(db);
        return NULL;
    }
    sqlite3_progress_handler(db->db, PROGRESS_STEPS, on_progress, db);
    return db;
}

void side_close(struct side_db *db)
{
    if (db == NULL)
        return;
    for (size_t i = 0; i < SIDE_MAX_STATEMENTS; i++)
        sqlite3_finalize(db->sql[i]);
    sqlite3_close(db->db);
    free(db);
}

bool side_begin(struct side_db *db, enum side_mode mode)
{
    return run_text(db, mode == SIDE_WRITE ? "BEGIN IMMEDIATE" : "BEGIN") ||
           side_failed(db, "cannot begin");
}

bool side_commit(struct side_db *db)
{
    return run_text(db, "COMMIT") || side_failed(db, "cannot commit");
}

void side_rollback(struct side_db *db)
{
    if (!sqlite3_get_autocommit(db->db)) /* some failures have rolled back by themselves */
        run_text(db, "ROLLBACK");
}

sqlite3_stmt *side_sql(struct side_db *db, unsigned n)
{
    assert(n < db->schema->n_statements);
    if (db->sql[n] == NULL &&
        sqlite3_prepare_v3(db->db, db->schema->statements[n], -1, SQLITE_PREPARE_PERSISTENT,
                           &db->sql[n], NULL) != SQLITE_OK) {
        side_failed(db, "cannot prepare");
        return NULL;
    }
    sqlite3_reset(db->sql[n]);
    sqlite3_clear_bindings(db->sql[n]);
    return db->sql[n];
}

void side_bind_str(sqlite3_stmt *q, int at, struct str s)
{
    if (s.p == NULL)
        sqlite3_bind_null(q, at);
    else
        sqlite3_bind_text64(q, at, s.p, s.n, SQLITE_STATIC, SQLITE_UTF8);
}

void side_bind_blob(sqlite3_stmt *q, int at, struct str s)
{
    if (s.p == NULL)
        sqlite3_bind_null(q, at);
    else
        sqlite3_bind_blob64(q, at, s.p, s.n, SQLITE_STATIC);
}

struct str side_str(sqlite3_stmt *q, int column)
{
    if (sqlite3_column_type(q, column) == SQLITE_NULL)
        return STR_NULL;
    const void *p = sqlite3_column_blob(q, column); /* NULL for an empty one */
    return str_make(p != NULL ? p : "", (size_t)sqlite3_column_bytes(q, column));
}

bool side_step(struct side_db *db, sqlite3_stmt *q, bool *ret_ok)
{
    int rc = sqlite3_step(q);

    *ret_ok = rc == SQLITE_ROW || rc == SQLITE_DONE;
    if (rc == SQLITE_ROW)
        return true;
    if (rc != SQLITE_DONE)
        side_failed(db, "cannot read or write");
    sqlite3_reset(q);
    return false;
}

bool side_run(struct side_db *db, sqlite3_stmt *q)
{
    bool ok;

    while (side_step(db, q, &ok))
        ;
    return ok;
}
