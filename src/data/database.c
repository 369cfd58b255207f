/* database.c - design.  (database.h has the contract.)
 *
 * Each store has its own file.  FTS5's scores depend on the frequency of a word in the whole table,
 * so a shared table would reveal other tenants' words.  Separate tables in one file would make
 * opening slow, because SQLite reads the whole schema.  Files of idle stores are closed.
 *
 * The index is contentless: it stores no copy of the texts, and deleting an entry means giving the
 * index the old text.  A query skips expired entries and raises its limit by their number, so it
 * still returns enough entries.  They are deleted later.
 *
 * The file is long because it keeps the statements of one schema and their callers together. */
#include "data/database.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "base/mem.h"
#include "store/engine.h"
#include "store/sqlite/side.h"

enum {
    SQL_ADD,
    SQL_ADD_WORDS,
    SQL_ADD_TAG,
    SQL_GET,
    SQL_BY_ID,
    SQL_NEWEST,
    SQL_TAGGED,
    SQL_FIND,
    SQL_EXPIRED,
    SQL_EXPIRED_COUNT,
    SQL_DROP,
    SQL_DROP_WORDS,
    SQL_DROP_TAGS,
    SQL_FREE_PAGES,
    SQL_PAGE_BYTES, /* behind it */
    N_STATEMENTS
};

static const char *const migrations[] = {
    "CREATE TABLE entries(id INTEGER PRIMARY KEY, uuid BLOB NOT NULL, created_at INTEGER NOT NULL,"
    " expires_at INTEGER, extra TEXT NOT NULL, content TEXT NOT NULL);"
    "CREATE UNIQUE INDEX entries_uuid ON entries(uuid);"
    "CREATE INDEX entries_expiry ON entries(expires_at) WHERE expires_at IS NOT NULL;"
    "CREATE TABLE tags(tag TEXT NOT NULL, entry INTEGER NOT NULL, PRIMARY KEY(tag, entry))"
    " WITHOUT ROWID;"
    "CREATE INDEX tags_entry ON tags(entry);"
    "CREATE VIRTUAL TABLE words USING fts5(summary, detail, content='');",
};

#define ENTRY_COLUMNS "id, uuid, created_at, expires_at, extra, content"

static const char *const statements[N_STATEMENTS] = {
    [SQL_ADD] = "INSERT INTO entries(uuid, created_at, expires_at, extra, content)"
                " VALUES(?, ?, ?, ?, ?)",
    [SQL_ADD_WORDS] = "INSERT INTO words(rowid, summary, detail) VALUES(?, ?, ?)",
    [SQL_ADD_TAG] = "INSERT OR IGNORE INTO tags(tag, entry) VALUES(?, ?)",
    [SQL_GET] = "SELECT " ENTRY_COLUMNS " FROM entries WHERE uuid = ?",
    [SQL_BY_ID] = "SELECT " ENTRY_COLUMNS " FROM entries WHERE id = ?",
    [SQL_NEWEST] = "SELECT " ENTRY_COLUMNS " FROM entries WHERE expires_at IS NULL OR"
                   " expires_at > ? ORDER BY id DESC",
    [SQL_TAGGED] = "SELECT entry FROM tags WHERE tag = ? AND entry < ? ORDER BY entry DESC LIMIT 1",
    [SQL_FIND] = "SELECT rowid, bm25(words) AS score FROM words WHERE words MATCH ?"
                 " ORDER BY score LIMIT ?",
    [SQL_EXPIRED] = "SELECT " ENTRY_COLUMNS " FROM entries WHERE expires_at <= ? LIMIT ?",
    [SQL_EXPIRED_COUNT] = "SELECT count(*) FROM entries WHERE expires_at <= ?",
    [SQL_DROP] = "DELETE FROM entries WHERE id = ?",
    [SQL_DROP_WORDS] = "INSERT INTO words(words, rowid, summary, detail) VALUES('delete', ?, ?, ?)",
    [SQL_DROP_TAGS] = "DELETE FROM tags WHERE entry = ?",
    [SQL_FREE_PAGES] = "PRAGMA freelist_count",
    [SQL_PAGE_BYTES] = "PRAGMA page_size",
};

static const struct side_schema schema = {
    .application_id = 0x62646174, /* "bdat" */
    .migrations = migrations,
    .n_migrations = 1,
    .statements = statements,
    .n_statements = N_STATEMENTS,
    .cache_kib = 2048,
};

struct database {
    char *path;         /* owned */
    struct side_db *db; /* owned; NULL: a reader whose file does not exist yet */
    bool writer;
    uint64_t tenant_bytes; /* cached, see database_tenant_bytes() */
    int64_t looked_us;
    char why[160];
};

/* ---- connections ---- */

void database_key(struct str tenant, struct str ns, struct buf *out)
{
    file_name_add(out, tenant);
    buf_add_z(out, "/");
    if (ns.n > 0)
        buf_add_z(out, "@");
    file_name_add(out, ns.n > 0 ? ns : STR("data"));
}

static bool make_dirs(const char *path, char *ret_why)
{
    char *dir = xstrdup(path);
    bool ok = true;

    *strrchr(dir, '/') = '\0';
    if (mkdir(dir, 0700) != 0 && errno != EEXIST) {
        snprintf(ret_why, 256, "cannot make %.160s: %s", dir, strerror(errno));
        ok = false;
    }
    free(dir);
    return ok;
}

static bool open_file(struct database *b, char *ret_why)
{
    if (b->db != NULL || (!b->writer && access(b->path, F_OK) != 0))
        return true;
    if (b->writer && !make_dirs(b->path, ret_why))
        return false;
    b->db = side_db_open(b->path, &schema, b->writer ? SIDE_WRITE : SIDE_READ, ret_why);
    return b->db != NULL;
}

static void base_close(void *conn)
{
    struct database *b = conn;

    if (b->db != NULL)
        side_close(&b->db->base);
    free(b->path);
    free(b);
}

static void *base_open(void *ctx, struct str key, bool writer, char *ret_why)
{
    struct database *b = xcalloc(1, sizeof *b);
    struct buf path = BUF_INIT;

    buf_printf(&path, "%s/%.*s.db", (const char *)ctx, STR_FMT(key));
    *b = (struct database){.path = buf_take(&path), .writer = writer};
    if (open_file(b, ret_why))
        return b;
    base_close(b);
    return NULL;
}

static bool told(struct database *b, bool ok, char *ret_why)
{
    if (!ok)
        snprintf(ret_why, 256, "%s", b->db->base.why);
    return ok;
}

static bool base_begin(void *conn, bool write, char *ret_why)
{
    struct database *b = conn;

    if (!open_file(b, ret_why))
        return false;
    return b->db == NULL || told(b, side_begin(&b->db->base, write), ret_why);
}

static bool base_commit(void *conn, char *ret_why)
{
    struct database *b = conn;
    return b->db == NULL || told(b, side_commit(&b->db->base), ret_why);
}

static void base_rollback(void *conn)
{
    struct database *b = conn;

    if (b->db != NULL)
        side_rollback(&b->db->base);
}

static const char *base_problem(void *conn)
{
    const struct database *b = conn;
    return b->db != NULL ? b->db->base.why : b->why;
}

const struct lanes_ops database_ops = {.open = base_open,
                                       .close = base_close,
                                       .begin = base_begin,
                                       .commit = base_commit,
                                       .rollback = base_rollback,
                                       .problem = base_problem};

void database_for_job(struct database *b, const struct lane_job *job)
{
    if (b->db != NULL)
        b->db->base.job = job;
}

const char *database_problem(const struct database *b)
{
    return b->why;
}

/* Bytes of free pages: deleted entries make room, although the file does not shrink. */
static uint64_t unused_bytes(struct database *b)
{
    uint64_t n[2] = {0, 0};

    for (unsigned i = 0; b->db != NULL && i < 2; i++) {
        sqlite3_stmt *q = side_sql(b->db, SQL_FREE_PAGES + i);
        bool ok = true;
        if (q != NULL && side_step(b->db, q, &ok)) {
            n[i] = (uint64_t)sqlite3_column_int64(q, 0);
            sqlite3_reset(q);
        }
    }
    return n[0] * n[1];
}

uint64_t database_tenant_bytes(struct database *b)
{
    int64_t now = thread_now_us();

    if (b->looked_us == 0 || now - b->looked_us > 1000000) {
        uint64_t all = file_folder_bytes(b->path), unused = unused_bytes(b);
        b->tenant_bytes = all > unused ? all - unused : 0;
        b->looked_us = now;
    }
    return b->tenant_bytes;
}

/* ---- writing ---- */

static bool put_words(struct database *b, unsigned statement, int64_t id, struct str content)
{
    sqlite3_stmt *q = side_sql(b->db, statement);
    struct buf summary = BUF_INIT;

    if (q == NULL)
        return false;
    data_summary(content, &summary);
    sqlite3_bind_int64(q, 1, id);
    side_bind_str(q, 2, buf_str(&summary));
    side_bind_str(q, 3, content);
    bool ok = side_run(b->db, q);
    sqlite3_clear_bindings(q);
    buf_done(&summary);
    return ok;
}

bool database_write(struct database *b, const struct data_entry *e)
{
    sqlite3_stmt *q = side_sql(b->db, SQL_ADD);

    if (q == NULL)
        return false;
    side_bind_blob(q, 1, str_make(e->uuid, sizeof e->uuid));
    sqlite3_bind_int64(q, 2, e->created_at);
    if (e->expires_at != DATA_FOREVER)
        sqlite3_bind_int64(q, 3, e->expires_at);
    side_bind_str(q, 4, e->extra);
    side_bind_str(q, 5, e->content);
    if (!side_run(b->db, q))
        return false;
    int64_t id = sqlite3_last_insert_rowid(b->db->db);
    for (size_t i = 0; i < e->n_tags; i++) {
        q = side_sql(b->db, SQL_ADD_TAG);
        if (q == NULL)
            return false;
        side_bind_str(q, 1, e->tags[i]);
        sqlite3_bind_int64(q, 2, id);
        if (!side_run(b->db, q))
            return false;
    }
    return put_words(b, SQL_ADD_WORDS, id, e->content);
}

static bool drop_row(struct database *b, unsigned statement, int64_t id)
{
    sqlite3_stmt *q = side_sql(b->db, statement);

    if (q == NULL)
        return false;
    sqlite3_bind_int64(q, 1, id);
    return side_run(b->db, q);
}

bool database_purge(struct database *b, int64_t now, size_t max, bool *ret_more)
{
    struct arena arena = ARENA_INIT;
    int64_t *ids = xcalloc(max, sizeof *ids);
    struct str *contents = xcalloc(max, sizeof *contents);
    sqlite3_stmt *q = side_sql(b->db, SQL_EXPIRED);
    size_t n = 0;
    bool ok = q != NULL;

    if (ok) {
        sqlite3_bind_int64(q, 1, now);
        sqlite3_bind_int64(q, 2, (int64_t)max);
    }
    while (ok && n < max && side_step(b->db, q, &ok)) {
        ids[n] = sqlite3_column_int64(q, 0);
        contents[n++] = arena_str(&arena, side_str(q, 5));
    }
    if (q != NULL)
        sqlite3_reset(q);
    for (size_t i = 0; i < n && ok; i++)
        ok = put_words(b, SQL_DROP_WORDS, ids[i], contents[i]) &&
             drop_row(b, SQL_DROP_TAGS, ids[i]) && drop_row(b, SQL_DROP, ids[i]);
    *ret_more = n == max;
    free(ids);
    free(contents);
    arena_done(&arena);
    return ok;
}

bool database_clear(struct database *b)
{
    bool ok = sqlite3_exec(b->db->db,
                           "PRAGMA secure_delete=ON; DELETE FROM tags; DELETE FROM entries;"
                           " INSERT INTO words(words) VALUES('delete-all');"
                           " PRAGMA secure_delete=FAST",
                           NULL, NULL, NULL) == SQLITE_OK;

    b->looked_us = 0;
    return ok || side_failed(b->db, "cannot clear it");
}

/* ---- reading ---- */

static bool is_expired(sqlite3_stmt *q, int64_t now)
{
    return sqlite3_column_type(q, 3) != SQLITE_NULL && sqlite3_column_int64(q, 3) <= now;
}

static bool tell(sqlite3_stmt *q, const double *score, data_found_cb *cb, void *ctx)
{
    struct str uuid = side_str(q, 1);
    struct data_found f = {.uuid = (const uint8_t *)uuid.p,
                           .created_at = sqlite3_column_int64(q, 2),
                           .extra = side_str(q, 4),
                           .content = side_str(q, 5),
                           .score = score};

    return uuid.n != DATA_UUID_BYTES || cb(ctx, &f);
}

static enum data_end failed(struct database *b)
{
    snprintf(b->why, sizeof b->why, "%s", b->db->base.why);
    return DATA_FAILED;
}

enum data_end database_get(struct database *b, const uint8_t uuid[DATA_UUID_BYTES], int64_t now,
                           data_found_cb *cb, void *ctx)
{
    sqlite3_stmt *q = b->db != NULL ? side_sql(b->db, SQL_GET) : NULL;
    bool ok = true;

    if (b->db == NULL)
        return DATA_OK;
    if (q == NULL)
        return failed(b);
    side_bind_blob(q, 1, str_make(uuid, DATA_UUID_BYTES));
    if (side_step(b->db, q, &ok)) {
        if (!is_expired(q, now))
            tell(q, NULL, cb, ctx);
        sqlite3_reset(q);
    }
    return ok ? DATA_OK : failed(b);
}

/* Reads the entry @id.  *@ret_told: it exists and has not expired.  False: failed. */
static bool tell_by_id(struct database *b, int64_t id, const double *score, int64_t now,
                       data_found_cb *cb, void *ctx, bool *ret_told, bool *ret_enough)
{
    sqlite3_stmt *q = side_sql(b->db, SQL_BY_ID);
    bool ok = q != NULL;

    *ret_told = false;
    if (!ok)
        return false;
    sqlite3_bind_int64(q, 1, id);
    if (side_step(b->db, q, &ok)) {
        *ret_told = !is_expired(q, now);
        if (*ret_told)
            *ret_enough = !tell(q, score, cb, ctx);
        sqlite3_reset(q);
    }
    return ok;
}

static enum data_end newest(struct database *b, uint64_t limit, int64_t now, data_found_cb *cb,
                            void *ctx)
{
    sqlite3_stmt *q = side_sql(b->db, SQL_NEWEST);
    bool ok = q != NULL;

    if (!ok)
        return failed(b);
    sqlite3_bind_int64(q, 1, now);
    for (uint64_t n = 0; n < limit && side_step(b->db, q, &ok); n++)
        if (!tell(q, NULL, cb, ctx))
            break;
    sqlite3_reset(q);
    return ok ? DATA_OK : failed(b);
}

/* The newest entry below @before that has the tag; 0: none. */
static bool newest_tagged(struct database *b, struct str tag, int64_t before, int64_t *ret_id)
{
    sqlite3_stmt *q = side_sql(b->db, SQL_TAGGED);
    bool ok = q != NULL;

    *ret_id = 0;
    if (!ok)
        return false;
    side_bind_str(q, 1, tag);
    sqlite3_bind_int64(q, 2, before);
    if (side_step(b->db, q, &ok)) {
        *ret_id = sqlite3_column_int64(q, 0);
        sqlite3_reset(q);
    }
    return ok;
}

/* Merges one list per tag, newest first, without collecting the lists in memory. */
static enum data_end newest_of_tags(struct database *b, const struct data_ask *a, int64_t now,
                                    data_found_cb *cb, void *ctx)
{
    int64_t head[DATA_MAX_TAGS], before = INT64_MAX;
    bool found, enough = false;

    for (size_t i = 0; i < a->n_tags; i++)
        head[i] = INT64_MAX; /* not read yet */
    for (uint64_t n = 0; n < a->limit && !enough; n += found) {
        int64_t next = 0;
        for (size_t i = 0; i < a->n_tags; i++) {
            if (head[i] >= before && !newest_tagged(b, a->tags[i], before, &head[i]))
                return failed(b);
            next = head[i] > next ? head[i] : next;
        }
        if (next == 0)
            break;
        if (!tell_by_id(b, next, NULL, now, cb, ctx, &found, &enough))
            return failed(b);
        before = next;
    }
    return DATA_OK;
}

static bool count_expired(struct database *b, int64_t now, uint64_t *ret_n)
{
    sqlite3_stmt *q = side_sql(b->db, SQL_EXPIRED_COUNT);
    bool ok = q != NULL;

    if (!ok)
        return false;
    sqlite3_bind_int64(q, 1, now);
    if (side_step(b->db, q, &ok)) {
        *ret_n = (uint64_t)sqlite3_column_int64(q, 0);
        sqlite3_reset(q);
    }
    return ok;
}

static sqlite3_stmt *prepare_tagged(struct database *b, const struct data_ask *a)
{
    struct buf sql = BUF_INIT;
    sqlite3_stmt *q = NULL;

    buf_add_z(&sql, "SELECT rowid, bm25(words) AS score FROM words WHERE words MATCH ?1 AND EXISTS("
                    "SELECT 1 FROM tags WHERE entry = words.rowid AND tag IN (");
    for (size_t i = 0; i < a->n_tags; i++)
        buf_printf(&sql, "%s?%zu", i > 0 ? "," : "", i + 3);
    buf_add_z(&sql, ")) ORDER BY score LIMIT ?2");
    if (sqlite3_prepare_v2(b->db->db, buf_z(&sql), -1, &q, NULL) != SQLITE_OK)
        side_failed(b->db, "cannot prepare");
    for (size_t i = 0; i < a->n_tags && q != NULL; i++)
        side_bind_str(q, (int)i + 3, a->tags[i]);
    buf_done(&sql);
    return q;
}

/* FTS5 reports bad query syntax with the same code as any other SQL error. */
static enum data_end why_not(struct database *b, int rc)
{
    if (rc != SQLITE_ERROR)
        return failed(b);
    snprintf(b->why, sizeof b->why, "%s", sqlite3_errmsg(b->db->db));
    return DATA_BAD_SYNTAX;
}

static enum data_end find(struct database *b, const struct data_ask *a, uint64_t expired,
                          int64_t now, data_found_cb *cb, void *ctx)
{
    sqlite3_stmt *q = a->n_tags > 0 ? prepare_tagged(b, a) : side_sql(b->db, SQL_FIND);
    uint64_t limit = a->limit + expired, n = 0;
    bool told_it, enough = false, ok = true;
    int rc = SQLITE_OK;

    if (q == NULL)
        return failed(b);
    side_bind_str(q, 1, a->match);
    sqlite3_bind_int64(q, 2, (int64_t)limit);
    while (ok && !enough && n < a->limit && (rc = sqlite3_step(q)) == SQLITE_ROW) {
        double score = sqlite3_column_double(q, 1);
        ok = tell_by_id(b, sqlite3_column_int64(q, 0), &score, now, cb, ctx, &told_it, &enough);
        n += told_it;
    }
    enum data_end end = !ok                                     ? failed(b)
                        : rc == SQLITE_ROW || rc == SQLITE_DONE ? DATA_OK
                                                                : why_not(b, rc);
    if (a->n_tags > 0)
        sqlite3_finalize(q);
    else
        sqlite3_reset(q);
    return end;
}

enum data_end database_query(struct database *b, const struct data_ask *a, int64_t now,
                             data_found_cb *cb, void *ctx, uint64_t *ret_expired)
{
    *ret_expired = 0;
    if (b->db == NULL)
        return a->kind != FTS_RAW || fts_syntax_ok(a->match, b->why, sizeof b->why)
                   ? DATA_OK
                   : DATA_BAD_SYNTAX;
    if (!count_expired(b, now, ret_expired))
        return failed(b);
    if (a->kind != FTS_BLANK)
        return find(b, a, *ret_expired, now, cb, ctx);
    return a->n_tags > 0 ? newest_of_tags(b, a, now, cb, ctx) : newest(b, a->limit, now, cb, ctx);
}
