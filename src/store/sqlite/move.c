/* move.c - a database file as one end of a move.  (store/move_side.h has the contract.)
 *
 * As a source it is read as it lies, under the lock that keeps servers out; rows that are settled
 * but not deleted yet are passed over.  As a target everything is one transaction: a file that was
 * not finished is thrown away. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/mem.h"
#include "net/loop.h"
#include "store/move_side.h"
#include "store/sqlite/impl.h"

struct sqlite_side {
    struct move_side base;
    struct sql_conn c; /* owned; no statements */
    int lock_fd;       /* owned */
    sqlite3_stmt *put; /* owned; target: of the table being written, with the next one */
    int put_table;
};

static struct sqlite_side *side_of(struct move_side *s)
{
    return container_of(s, struct sqlite_side, base);
}

static bool failed(struct sqlite_side *s, const char *doing)
{
    return bh_why(s->base.why, "SQLite, %.60s: %.180s", doing, sqlite3_errmsg(s->c.db));
}

static bool exec(struct sqlite_side *s, const char *sql)
{
    return sqlite3_exec(s->c.db, sql, NULL, NULL, NULL) == SQLITE_OK || failed(s, sql);
}

static sqlite3_stmt *prepare(struct sqlite_side *s, const char *sql)
{
    sqlite3_stmt *q = NULL;

    if (sqlite3_prepare_v2(s->c.db, sql, -1, &q, NULL) != SQLITE_OK)
        failed(s, "preparing");
    return q;
}

/* ---- reading ---- */

static const char *const all_of[N_MOVE_TABLES] = {
    [MOVE_RECORDS] = "SELECT ns, k, v FROM kv ORDER BY ns, k",
    [MOVE_ROWS] = ("SELECT id, box, kind, flags, at_ms, attempts, parked, frame FROM mailbox "
                   "WHERE id NOT IN (SELECT id FROM temp.settled) ORDER BY id"),
    [MOVE_SEEN] = "SELECT keys, at_ms FROM seen ORDER BY id",
};

static struct move_item item_of(enum store_table t, sqlite3_stmt *q)
{
    struct move_item item = {0};

    for (int i = 0; move_columns[t][i].type != MOVE_END; i++) {
        void *at = (char *)&item + move_columns[t][i].at;
        if (move_columns[t][i].type == MOVE_I64)
            *(int64_t *)at = sqlite3_column_int64(q, i);
        else if (move_columns[t][i].type == MOVE_I32)
            *(uint32_t *)at = (uint32_t)sqlite3_column_int64(q, i);
        else if (sqlite3_column_type(q, i) != SQLITE_NULL)
            *(struct str *)at = sql_bytes(q, i);
    }
    return item;
}

static bool file_read(struct move_side *base, enum store_table t, move_item_cb *cb, void *ctx)
{
    struct sqlite_side *s = side_of(base);
    sqlite3_stmt *q = prepare(s, all_of[t]);
    bool go_on = q != NULL;
    int rc = SQLITE_DONE;

    while (go_on && (rc = sqlite3_step(q)) == SQLITE_ROW) {
        struct move_item item = item_of(t, q);
        go_on = cb(ctx, &item);
    }
    if (go_on && rc != SQLITE_DONE)
        go_on = failed(s, "reading");
    sqlite3_finalize(q);
    return go_on;
}

static bool file_count(struct move_side *base, enum store_table t, uint64_t *ret_n)
{
    struct sqlite_side *s = side_of(base);
    char sql[400];
    int64_t n;

    snprintf(sql, sizeof sql, "SELECT count(*) FROM (%s)", all_of[t]);
    if (!sql_number(s->c.db, sql, &n))
        return failed(s, "counting");
    *ret_n = (uint64_t)n;
    return true;
}

static bool file_identity(struct move_side *base, struct move_identity *ret)
{
    struct sqlite_side *s = side_of(base);
    sqlite3_stmt *q = prepare(s, "SELECT (SELECT value FROM meta WHERE name = 'dedup_key'), "
                                 "(SELECT value FROM meta WHERE name = 'boot')");
    bool ok =
        q != NULL && sqlite3_step(q) == SQLITE_ROW && sql_bytes(q, 0).n == sizeof ret->dedup_key;

    if (ok) {
        memcpy(ret->dedup_key, sql_bytes(q, 0).p, sizeof ret->dedup_key);
        ret->boot = (uint64_t)sqlite3_column_int64(q, 1);
    } else {
        failed(s, "reading what it is");
    }
    sqlite3_finalize(q);
    return ok;
}

/* ---- writing ---- */

static bool file_begin(struct move_side *base, const struct move_identity *from,
                       uint64_t ret_done[N_MOVE_TABLES])
{
    struct sqlite_side *s = side_of(base);

    s->put_table = -1;
    memset(ret_done, 0, N_MOVE_TABLES * sizeof *ret_done);
    return exec(s, "BEGIN IMMEDIATE") && exec(s, "DELETE FROM kv");
}

static bool run(struct sqlite_side *s, sqlite3_stmt *q)
{
    int rc = sqlite3_step(q);

    sqlite3_reset(q);
    return rc == SQLITE_DONE || failed(s, "writing");
}

static bool put_one(struct sqlite_side *s, enum store_table t, const struct move_item *item)
{
    for (int i = 0; move_columns[t][i].type != MOVE_END; i++) {
        const void *at = (const char *)item + move_columns[t][i].at;
        const struct str *text = at;
        if (move_columns[t][i].type == MOVE_I64)
            sqlite3_bind_int64(s->put, i + 1, *(const int64_t *)at);
        else if (move_columns[t][i].type == MOVE_I32)
            sqlite3_bind_int64(s->put, i + 1, *(const uint32_t *)at);
        else if (move_columns[t][i].type == MOVE_BYTES)
            sql_bind_bytes(s->put, i + 1, *text);
        else /* an absent text becomes NULL */
            sqlite3_bind_text(s->put, i + 1, text->p, (int)text->n, SQLITE_STATIC);
    }
    return run(s, s->put);
}

static bool file_write(struct move_side *base, enum store_table t, const struct move_item *items,
                       size_t n, uint64_t done)
{
    static const char *const into[N_MOVE_TABLES] = {
        [MOVE_RECORDS] = "INSERT INTO kv(ns, k, v) VALUES(?1, ?2, ?3)",
        [MOVE_ROWS] = ("INSERT INTO mailbox(id, box, kind, flags, at_ms, attempts, parked, frame) "
                       "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"),
        [MOVE_SEEN] = "INSERT INTO seen(keys, at_ms) VALUES(?1, ?2)",
    };
    struct sqlite_side *s = side_of(base);

    if (s->put_table != (int)t) {
        sqlite3_finalize(s->put);
        s->put = prepare(s, into[t]);
        s->put_table = (int)t;
    }
    if (s->put == NULL)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!put_one(s, t, &items[i]))
            return false;
    return true;
}

static bool file_finish(struct move_side *base, const struct move_identity *from)
{
    struct sqlite_side *s = side_of(base);
    sqlite3_stmt *q = prepare(s, "UPDATE meta SET value = CASE name WHEN 'boot' THEN ?1 ELSE ?2 END"
                                 " WHERE name IN ('boot', 'dedup_key')");
    bool ok = q != NULL;

    if (ok) {
        sqlite3_bind_int64(q, 1, (int64_t)from->boot);
        sqlite3_bind_blob(q, 2, from->dedup_key, sizeof from->dedup_key, SQLITE_STATIC);
        ok = run(s, q);
    }
    sqlite3_finalize(q);
    sqlite3_finalize(s->put);
    s->put = NULL;
    return ok && exec(s, "COMMIT") && exec(s, "PRAGMA wal_checkpoint(TRUNCATE)") &&
           exec(s, "PRAGMA journal_mode=DELETE");
}

/* ---- opening and closing ---- */

static void file_close(struct move_side *base)
{
    struct sqlite_side *s = side_of(base);

    sqlite3_finalize(s->put);
    sqlite3_close(s->c.db);
    if (s->lock_fd >= 0)
        close(s->lock_fd);
    free(s);
}

static const struct move_side_ops file_ops = {.identity = file_identity,
                                              .count = file_count,
                                              .read = file_read,
                                              .begin = file_begin,
                                              .write = file_write,
                                              .finish = file_finish,
                                              .close = file_close};

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
    if (ok)
        store_close(st);
    loop_free(loop);
    return ok;
}

/* Rows that the log of acks names are gone, though they lie there. */
static bool note_settled(struct sqlite_side *s)
{
    return exec(s, "CREATE TEMP TABLE settled(id INTEGER PRIMARY KEY)") &&
           exec(s, "WITH RECURSIVE w(ids, at, n) AS (SELECT ids, 1, length(ids) FROM main.acked "
                   "UNION ALL SELECT ids, at + 8, n FROM w WHERE at + 8 <= n) "
                   "INSERT OR IGNORE INTO temp.settled SELECT id_of(substr(ids, at, 8)) FROM w "
                   "WHERE n >= 8");
}

static void on_id_of(sqlite3_context *ctx, int n, sqlite3_value **args)
{
    uint64_t id = 0;

    if (sqlite3_value_bytes(args[0]) == (int)sizeof id)
        memcpy(&id, sqlite3_value_blob(args[0]), sizeof id);
    sqlite3_result_int64(ctx, (sqlite3_int64)le64toh(id));
}

static bool is_current(struct sqlite_side *s, const char *path)
{
    int64_t version = 0, id = 0;

    if (!sql_number(s->c.db, "PRAGMA user_version", &version) ||
        !sql_number(s->c.db, "PRAGMA application_id", &id))
        return failed(s, "reading its version");
    if (id == SCHEMA_APPLICATION_ID && version == schema_version())
        return true;
    return bh_why(
        s->base.why,
        "%.120s has tables of another version: start this bellhop on it once, then move it", path);
}

struct move_side *move_side_sqlite(const char *path, bool fresh, char *ret_why)
{
    struct sqlite_side *s;

    if (!fresh && access(path, F_OK) != 0) {
        snprintf(ret_why, 256, "there is no database %.180s", path);
        return NULL;
    }
    if (fresh && !make_file(path, ret_why))
        return NULL;
    s = xcalloc(1, sizeof *s);
    s->base.ops = &file_ops;
    s->lock_fd = store_sqlite_lock(path, ret_why);
    if (s->lock_fd >= 0 &&
        (sqlite3_open_v2(path, &s->c.db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK ||
         sqlite3_create_function_v2(s->c.db, "id_of", 1, SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL,
                                    on_id_of, NULL, NULL, NULL) != SQLITE_OK ||
         !is_current(s, path) || !note_settled(s))) {
        if (s->base.why[0] == '\0')
            failed(s, "opening");
        snprintf(ret_why, 256, "%s", s->base.why);
    } else if (s->lock_fd >= 0) {
        return &s->base;
    }
    file_close(&s->base);
    return NULL;
}
