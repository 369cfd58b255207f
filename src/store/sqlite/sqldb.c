/* sqldb.c - opening, settings, migrations and statements of a database beside the main one.
 * (sqldb.h has the contract.)
 *
 * A long read is stopped from inside: SQLite asks us every so many steps whether to go on. */
#include "store/sqlite/sqldb.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/jw.h"
#include "base/mem.h"
#include "store/jobs.h"

#define PROGRESS_STEPS 1000 /* of SQLite's machine; a row of a full text search takes about ten */

static int on_progress(void *ctx)
{
    const struct sqldb_sqlite *db = ctx;
    return db->base.job != NULL && db_job_must_stop(db->base.job);
}

bool sqldb_failed(struct sqldb_sqlite *db, const char *doing)
{
    snprintf(db->base.why, sizeof db->base.why, "%s: %s", doing, sqlite3_errmsg(db->db));
    return false;
}

static bool run_text(struct sqldb_sqlite *db, const char *sql)
{
    return sqlite3_exec(db->db, sql, NULL, NULL, NULL) == SQLITE_OK;
}

bool sql_number(sqlite3 *db, const char *sql, int64_t *ret_v)
{
    sqlite3_stmt *q = NULL;
    bool ok =
        sqlite3_prepare_v2(db, sql, -1, &q, NULL) == SQLITE_OK && sqlite3_step(q) == SQLITE_ROW;

    if (ok)
        *ret_v = sqlite3_column_int64(q, 0);
    sqlite3_finalize(q);
    return ok;
}

bool sql_use_wal(sqlite3 *db)
{
    sqlite3_stmt *q = NULL;
    bool ok = sqlite3_prepare_v2(db, "PRAGMA journal_mode=WAL", -1, &q, NULL) == SQLITE_OK &&
              sqlite3_step(q) == SQLITE_ROW &&
              sqlite3_stricmp((const char *)sqlite3_column_text(q, 0), "wal") == 0;

    sqlite3_finalize(q);
    return ok;
}

bool sql_file_create(const char *path, char *ret_why)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    if (fd < 0)
        return bh_why(ret_why, "cannot open %.160s: %s", path, strerror(errno));
    close(fd);
    return true;
}

bool sql_migrate(sqlite3 *db, int application_id, const char *const *migrations, int64_t n,
                 char *ret_why)
{
    int64_t version;

    ret_why[0] = '\0';
    if (!sql_number(db, "PRAGMA user_version", &version))
        return false;
    if (version > n) {
        snprintf(ret_why, 160,
                 "it was written by a newer bellhop (its tables: %" PRId64
                 ", this program's: %" PRId64 "): start the newer program, or restore a backup",
                 version, n);
        return false;
    }
    for (; version < n; version++) {
        char stamp[96];
        snprintf(stamp, sizeof stamp, "PRAGMA application_id=%d; PRAGMA user_version=%" PRId64,
                 application_id, version + 1);
        const char *const steps[] = {"BEGIN IMMEDIATE", migrations[version], stamp, "COMMIT"};
        for (size_t i = 0; i < ARRAY_LEN(steps); i++)
            if (sqlite3_exec(db, steps[i], NULL, NULL, NULL) != SQLITE_OK)
                return false;
    }
    return true;
}

static bool is_ours(struct sqldb_sqlite *db)
{
    int64_t id, tables;

    if (!sql_number(db->db, "PRAGMA application_id", &id) ||
        !sql_number(db->db, "SELECT count(*) FROM sqlite_schema", &tables))
        return sqldb_failed(db, "cannot read it");
    if (id == db->schema->application_id || (id == 0 && tables == 0))
        return true;
    snprintf(db->base.why, sizeof db->base.why,
             "it is a database, but not the one that belongs here");
    return false;
}

static bool configure(struct sqldb_sqlite *db, enum sqldb_mode mode)
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
             db->schema->derived ? "NORMAL" : "FULL", db->schema->cache_kib, mode == SQLDB_READ);
    return run_text(db, text) || sqldb_failed(db, "cannot configure it");
}

static const struct sqldb_ops db_ops;

/* Several threads open one file at once; only the first makes the tables. */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

struct sqldb_sqlite *sqldb_sqlite_open(const char *path, const struct sqldb_schema *schema,
                                       enum sqldb_mode mode, char *ret_why)
{
    /* NOMUTEX: a connection belongs to one thread.  A reader opens for writing too, for it may have
     * to recover the log; query_only keeps it from changing anything. */
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;
    struct sqldb_sqlite *db = xcalloc(1, sizeof *db);

    assert(schema->n_statements <= SQLDB_MAX_STATEMENTS);
    db->base.ops = &db_ops;
    db->schema = schema;
    if (!sql_file_create(path, ret_why)) {
        free(db);
        return NULL;
    }
    pthread_mutex_lock(&opening);
    bool ok = sqlite3_open_v2(path, &db->db, flags, NULL) == SQLITE_OK ||
              sqldb_failed(db, "cannot open it");
    if (ok)
        sqlite3_busy_timeout(db->db, 10000); /* a backup, or the writer making the tables */
    ok = ok && is_ours(db) && (sql_use_wal(db->db) || sqldb_failed(db, SQL_NO_WAL)) &&
         (sql_migrate(db->db, schema->application_id, schema->migrations, schema->n_migrations,
                      db->base.why) ||
          (db->base.why[0] == '\0' && sqldb_failed(db, "cannot migrate"))) &&
         configure(db, mode);
    pthread_mutex_unlock(&opening);
    if (!ok) {
        snprintf(ret_why, 256, "%.90s: %s", path, db->base.why);
        sqldb_close(&db->base);
        return NULL;
    }
    sqlite3_progress_handler(db->db, PROGRESS_STEPS, on_progress, db);
    return db;
}

/* Prepares all commands of statement @n. */
static bool prepare(struct sqldb_sqlite *db, unsigned n)
{
    const char *text = db->schema->statements[n];

    assert(n < db->schema->n_statements);
    for (size_t i = 0; db->sql[n][0] == NULL || *text != '\0'; i++) {
        assert(i < SQLDB_MAX_COMMANDS);
        if (sqlite3_prepare_v3(db->db, text, -1, SQLITE_PREPARE_PERSISTENT, &db->sql[n][i],
                               &text) != SQLITE_OK)
            return sqldb_failed(db, "cannot prepare");
    }
    return true;
}

sqlite3_stmt *sqldb_statement(struct sqldb_sqlite *db, unsigned n)
{
    if (db->sql[n][0] == NULL && !prepare(db, n))
        return NULL;
    sqlite3_reset(db->sql[n][0]);
    sqlite3_clear_bindings(db->sql[n][0]);
    return db->sql[n][0];
}

void sqldb_bind_str(sqlite3_stmt *q, int at, struct str s)
{
    if (s.p == NULL)
        sqlite3_bind_null(q, at);
    else
        sqlite3_bind_text64(q, at, s.p, s.n, SQLITE_STATIC, SQLITE_UTF8);
}

/* True: a row.  False: no more, and *@ret_ok tells whether that is all; the statement is reset. */
static bool step(struct sqldb_sqlite *db, sqlite3_stmt *q, bool *ret_ok)
{
    int rc = sqlite3_step(q);

    *ret_ok = rc == SQLITE_ROW || rc == SQLITE_DONE;
    if (rc == SQLITE_ROW)
        return true;
    if (rc != SQLITE_DONE)
        sqldb_failed(db, "cannot read or write");
    sqlite3_reset(q);
    return false;
}

/* ---- store/sqldb.h ---- */

static struct sqldb_sqlite *db_of(const struct sqldb *s)
{
    return container_of((struct sqldb *)(uintptr_t)s, struct sqldb_sqlite, base);
}

static bool db_begin(struct sqldb *s, bool write)
{
    return run_text(db_of(s), write ? "BEGIN IMMEDIATE" : "BEGIN") ||
           sqldb_failed(db_of(s), "cannot begin");
}

/* The rows of the question before are not wanted any more. */
static void forget_asked(struct sqldb_sqlite *db)
{
    sqlite3_reset(db->asked);
    db->asked = NULL;
}

static enum sqldb_end db_commit(struct sqldb *s)
{
    forget_asked(db_of(s));
    if (run_text(db_of(s), "COMMIT"))
        return SQLDB_DONE;
    sqldb_failed(db_of(s), "cannot commit");
    return SQLDB_UNDONE;
}

static void db_rollback(struct sqldb *s)
{
    forget_asked(db_of(s));
    if (!sqlite3_get_autocommit(db_of(s)->db)) /* some failures have rolled back by themselves */
        run_text(db_of(s), "ROLLBACK");
}

static void db_close(struct sqldb *s)
{
    struct sqldb_sqlite *db = db_of(s);

    for (size_t i = 0; i < SQLDB_MAX_STATEMENTS; i++)
        for (size_t k = 0; k < SQLDB_MAX_COMMANDS; k++)
            sqlite3_finalize(db->sql[i][k]);
    sqlite3_close(db->db);
    buf_done(&db->list);
    free(db);
}

/* A list as the text of a JSON array. */
static struct str list_text(struct sqldb_sqlite *db, const struct sqldb_arg *a)
{
    struct jw w = jw_begin(&db->list);

    buf_reset(&db->list);
    jw_arr(&w);
    for (size_t i = 0; i < a->n; i++)
        if (a->type == SQLDB_INTS)
            jw_i64(&w, ((const int64_t *)a->list)[i]);
        else
            jw_str(&w, ((const struct str *)a->list)[i]);
    jw_end_arr(&w);
    return buf_str(&db->list);
}

static void bind_args(struct sqldb_sqlite *db, sqlite3_stmt *q)
{
    int n = sqlite3_bind_parameter_count(q);

    sqlite3_clear_bindings(q);
    for (int i = 0; i < n && i < (int)db->base.n_args; i++) {
        const struct sqldb_arg *a = &db->base.args[i];
        if (a->type == SQLDB_INT)
            sqlite3_bind_int64(q, i + 1, a->i);
        else if (a->type == SQLDB_BLOB)
            sqlite3_bind_blob64(q, i + 1, a->s.p, a->s.n, SQLITE_STATIC);
        else if (a->type == SQLDB_TEXT)
            sqldb_bind_str(q, i + 1, a->s);
        else if (a->type != SQLDB_NULL)
            sqldb_bind_str(q, i + 1, list_text(db, a));
    }
}

static bool db_ask(struct sqldb *s, unsigned n)
{
    struct sqldb_sqlite *db = db_of(s);
    bool ok = true;

    forget_asked(db);
    if (db->sql[n][0] == NULL && !prepare(db, n))
        return false;
    for (size_t i = 0; ok && i < SQLDB_MAX_COMMANDS && db->sql[n][i] != NULL; i++) {
        bool last = i + 1 == SQLDB_MAX_COMMANDS || db->sql[n][i + 1] == NULL;
        bind_args(db, db->sql[n][i]);
        if (last) {
            db->asked = db->sql[n][i];
            db->fresh = true;
            db->has_row = step(db, db->asked, &ok);
        } else {
            while (step(db, db->sql[n][i], &ok))
                ;
        }
    }
    return ok;
}

static bool db_next(struct sqldb *s)
{
    struct sqldb_sqlite *db = db_of(s);

    if (!db->fresh && db->has_row)
        db->has_row = step(db, db->asked, &s->ok);
    db->fresh = false;
    return db->has_row;
}

static int64_t db_get_int(const struct sqldb *s, int column)
{
    return sqlite3_column_int64(db_of(s)->asked, column);
}

static struct str db_get_str(const struct sqldb *s, int column)
{
    sqlite3_stmt *q = db_of(s)->asked;

    if (sqlite3_column_type(q, column) == SQLITE_NULL)
        return STR_NULL;
    const void *p = sqlite3_column_blob(q, column); /* NULL for an empty one */
    return str_make(p != NULL ? p : "", (size_t)sqlite3_column_bytes(q, column));
}

static const struct sqldb_ops db_ops = {.begin = db_begin,
                                        .commit = db_commit,
                                        .rollback = db_rollback,
                                        .ask = db_ask,
                                        .next = db_next,
                                        .get_int = db_get_int,
                                        .get_str = db_get_str,
                                        .close = db_close};
