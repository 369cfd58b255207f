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
    SQL_ADD,           /* uuid, created_at, expires_at, extra, content, summary, marks */
    SQL_GET,           /* uuid -> ENTRY_COLUMNS */
    SQL_BY_ID,         /* id -> ENTRY_COLUMNS */
    SQL_NEWEST,        /* now, limit -> ENTRY_COLUMNS */
    SQL_BELOW,         /* below this id -> id */
    SQL_MARKED,        /* mark, below this id -> id */
    SQL_HAS,           /* id, marks -> a row if the entry has one of them */
    SQL_FIND,          /* match, limit -> id, score */
    SQL_EXPIRED,       /* now, limit -> ENTRY_COLUMNS */
    SQL_EXPIRED_COUNT, /* now -> number */
    SQL_DROP,          /* id, summary, content */
    SQL_UNUSED,        /* -> pages, bytes of a page */
    N_STATEMENTS
};

static const char *const migrations[] = {
    "CREATE TABLE entries(id INTEGER PRIMARY KEY, uuid BLOB NOT NULL, created_at INTEGER NOT NULL,"
    " expires_at INTEGER, extra TEXT NOT NULL, content TEXT NOT NULL);"
    "CREATE UNIQUE INDEX entries_uuid ON entries(uuid);"
    "CREATE INDEX entries_expiry ON entries(expires_at) WHERE expires_at IS NOT NULL;"
    "CREATE TABLE marks(mark TEXT NOT NULL, entry INTEGER NOT NULL, PRIMARY KEY(mark, entry))"
    " WITHOUT ROWID;"
    "CREATE INDEX marks_entry ON marks(entry);"
    "CREATE VIRTUAL TABLE words USING fts5(summary, detail, content='');",
};

#define ENTRY_COLUMNS "id, uuid, created_at, expires_at, extra, content"

static const char *const statements[N_STATEMENTS] = {
    [SQL_ADD] = "INSERT INTO entries(uuid, created_at, expires_at, extra, content)"
                " VALUES(?1, ?2, ?3, ?4, ?5);"
                "INSERT OR IGNORE INTO marks SELECT value, last_insert_rowid() FROM json_each(?7);"
                "INSERT INTO words(rowid, summary, detail) VALUES(last_insert_rowid(), ?6, ?5)",
    [SQL_GET] = "SELECT " ENTRY_COLUMNS " FROM entries WHERE uuid = ?1",
    [SQL_BY_ID] = "SELECT " ENTRY_COLUMNS " FROM entries WHERE id = ?1",
    [SQL_NEWEST] = "SELECT " ENTRY_COLUMNS " FROM entries WHERE expires_at IS NULL OR"
                   " expires_at > ?1 ORDER BY id DESC LIMIT ?2",
    [SQL_BELOW] = "SELECT id FROM entries WHERE id < ?1 ORDER BY id DESC LIMIT 1",
    [SQL_MARKED] = "SELECT entry FROM marks WHERE mark = ?1 AND entry < ?2 ORDER BY entry DESC"
                   " LIMIT 1",
    [SQL_HAS] = "SELECT 1 FROM marks JOIN json_each(?2) ON mark = value WHERE entry = ?1 LIMIT 1",
    [SQL_FIND] = "SELECT rowid, bm25(words) AS score FROM words WHERE words MATCH ?1"
                 " ORDER BY score LIMIT ?2",
    [SQL_EXPIRED] = "SELECT " ENTRY_COLUMNS " FROM entries WHERE expires_at <= ?1 LIMIT ?2",
    [SQL_EXPIRED_COUNT] = "SELECT count(*) FROM entries WHERE expires_at <= ?1",
    [SQL_DROP] = "INSERT INTO words(words, rowid, summary, detail) VALUES('delete', ?1, ?2, ?3);"
                 "DELETE FROM marks WHERE entry = ?1; DELETE FROM entries WHERE id = ?1",
    [SQL_UNUSED] = "SELECT * FROM pragma_freelist_count, pragma_page_size",
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

/* Asks, and moves to the first row; false: there is none, or it failed. */
static bool ask_row(struct database *b, unsigned statement)
{
    return side_ask(&b->db->base, statement) && side_next(&b->db->base);
}

/* Bytes of free pages: deleted entries make room, although the file does not shrink. */
static uint64_t unused_bytes(struct database *b)
{
    if (b->db == NULL || !ask_row(b, SQL_UNUSED))
        return 0;
    return (uint64_t)side_get_int(&b->db->base, 0) * (uint64_t)side_get_int(&b->db->base, 1);
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

bool database_write(struct database *b, const struct data_entry *e)
{
    struct side *s = &b->db->base;
    struct buf summary = BUF_INIT;

    data_summary(e->content, &summary);
    side_blob(s, str_make(e->uuid, sizeof e->uuid));
    side_int(s, e->created_at);
    side_int_if(s, e->expires_at != DATA_FOREVER, e->expires_at);
    side_text(s, e->extra);
    side_text(s, e->content);
    side_text(s, buf_str(&summary));
    side_texts(s, e->marks, e->n_marks);
    bool ok = side_ask(s, SQL_ADD);
    buf_done(&summary);
    return ok;
}

static bool drop_entry(struct side *s, int64_t id, struct str content)
{
    struct buf summary = BUF_INIT;

    data_summary(content, &summary);
    side_int(s, id);
    side_text(s, buf_str(&summary));
    side_text(s, content);
    bool ok = side_ask(s, SQL_DROP);
    buf_done(&summary);
    return ok;
}

bool database_purge(struct database *b, int64_t now, size_t max, bool *ret_more)
{
    struct side *s = &b->db->base;
    struct arena arena = ARENA_INIT;
    int64_t *ids = xcalloc(max, sizeof *ids);
    struct str *contents = xcalloc(max, sizeof *contents);
    size_t n = 0;

    side_int(s, now);
    side_int(s, (int64_t)max);
    side_ask(s, SQL_EXPIRED);
    for (; n < max && side_next(s); n++) {
        ids[n] = side_get_int(s, 0);
        contents[n] = arena_str(&arena, side_get_str(s, 5));
    }
    bool ok = s->ok;
    for (size_t i = 0; i < n && ok; i++)
        ok = drop_entry(s, ids[i], contents[i]);
    *ret_more = n == max;
    free(ids);
    free(contents);
    arena_done(&arena);
    return ok;
}

bool database_clear(struct database *b)
{
    bool ok = sqlite3_exec(b->db->db,
                           "PRAGMA secure_delete=ON; DELETE FROM marks; DELETE FROM entries;"
                           " INSERT INTO words(words) VALUES('delete-all');"
                           " PRAGMA secure_delete=FAST",
                           NULL, NULL, NULL) == SQLITE_OK;

    b->looked_us = 0;
    return ok || side_failed(b->db, "cannot clear it");
}

/* ---- reading ---- */

static bool is_expired(const struct side *s, int64_t now)
{
    return side_get_str(s, 3).p != NULL && side_get_int(s, 3) <= now;
}

/* The row of ENTRY_COLUMNS. */
static bool tell(const struct side *s, const double *score, data_found_cb *cb, void *ctx)
{
    struct str uuid = side_get_str(s, 1);
    struct data_found f = {.uuid = (const uint8_t *)uuid.p,
                           .created_at = side_get_int(s, 2),
                           .extra = side_get_str(s, 4),
                           .content = side_get_str(s, 5),
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
    if (b->db == NULL)
        return DATA_OK;
    side_blob(&b->db->base, str_make(uuid, DATA_UUID_BYTES));
    if (ask_row(b, SQL_GET) && !is_expired(&b->db->base, now))
        tell(&b->db->base, NULL, cb, ctx);
    return b->db->base.ok ? DATA_OK : failed(b);
}

/* Reads the entry @id.  *@ret_told: it exists and has not expired.  False: failed. */
static bool tell_by_id(struct database *b, int64_t id, const double *score, int64_t now,
                       data_found_cb *cb, void *ctx, bool *ret_told, bool *ret_enough)
{
    side_int(&b->db->base, id);
    *ret_told = ask_row(b, SQL_BY_ID) && !is_expired(&b->db->base, now);
    if (*ret_told)
        *ret_enough = !tell(&b->db->base, score, cb, ctx);
    return b->db->base.ok;
}

static enum data_end newest(struct database *b, uint64_t limit, int64_t now, data_found_cb *cb,
                            void *ctx)
{
    struct side *s = &b->db->base;

    side_int(s, now);
    side_int(s, (int64_t)limit);
    side_ask(s, SQL_NEWEST);
    while (side_next(s) && tell(s, NULL, cb, ctx))
        ;
    return s->ok ? DATA_OK : failed(b);
}

/* The newest entry below @before that has the mark (absent: any entry); 0: none. */
static bool newest_below(struct database *b, struct str mark, int64_t before, int64_t *ret_id)
{
    if (mark.p != NULL)
        side_text(&b->db->base, mark);
    side_int(&b->db->base, before);
    *ret_id =
        ask_row(b, mark.p != NULL ? SQL_MARKED : SQL_BELOW) ? side_get_int(&b->db->base, 0) : 0;
    return b->db->base.ok;
}

/* *@ret: the entry passes the filters from @first on.  False: failed. */
static bool passes(struct database *b, const struct data_ask *a, size_t first, int64_t id,
                   bool *ret)
{
    *ret = true;
    for (size_t i = first; i < a->n_filters && *ret; i++) {
        side_int(&b->db->base, id);
        side_texts(&b->db->base, a->filters[i].marks, a->filters[i].n);
        *ret = ask_row(b, SQL_HAS) != a->filters[i].without;
        if (!b->db->base.ok)
            return false;
    }
    return true;
}

/* Merges one list per mark of the first filter, newest first, without collecting the lists in
 * memory, and looks the other filters up.  A filter that is @without has no lists: every entry is
 * looked at then. */
static enum data_end newest_filtered(struct database *b, const struct data_ask *a, int64_t now,
                                     data_found_cb *cb, void *ctx)
{
    static const struct str any[] = {{NULL, 0}};
    bool listed = !a->filters[0].without, found, enough = false;
    const struct str *marks = listed ? a->filters[0].marks : any;
    size_t n_marks = listed ? a->filters[0].n : 1;
    int64_t head[DATA_MAX_VALUES], before = INT64_MAX;

    for (size_t i = 0; i < n_marks; i++)
        head[i] = INT64_MAX; /* not read yet */
    for (uint64_t n = 0; n < a->limit && !enough; n += found) {
        int64_t next = 0;
        for (size_t i = 0; i < n_marks; i++) {
            if (head[i] >= before && !newest_below(b, marks[i], before, &head[i]))
                return failed(b);
            next = head[i] > next ? head[i] : next;
        }
        if (next == 0)
            break;
        if (!passes(b, a, listed, next, &found) ||
            (found && !tell_by_id(b, next, NULL, now, cb, ctx, &found, &enough)))
            return failed(b);
        before = next;
    }
    return DATA_OK;
}

static bool count_expired(struct database *b, int64_t now, uint64_t *ret_n)
{
    side_int(&b->db->base, now);
    *ret_n = ask_row(b, SQL_EXPIRED_COUNT) ? (uint64_t)side_get_int(&b->db->base, 0) : 0;
    return b->db->base.ok;
}

static sqlite3_stmt *prepare_filtered(struct database *b, const struct data_ask *a)
{
    struct buf sql = BUF_INIT;
    sqlite3_stmt *q = NULL;
    int at = 3;

    buf_add_z(&sql, "SELECT rowid, bm25(words) AS score FROM words WHERE words MATCH ?1");
    for (const struct data_filter *f = a->filters; f < a->filters + a->n_filters; f++) {
        buf_printf(&sql,
                   " AND %s EXISTS(SELECT 1 FROM marks WHERE entry = words.rowid AND mark IN (",
                   f->without ? "NOT" : "");
        for (size_t i = 0; i < f->n; i++)
            buf_printf(&sql, "%s?%d", i > 0 ? "," : "", at++);
        buf_add_z(&sql, "))");
    }
    buf_add_z(&sql, " ORDER BY score LIMIT ?2");
    if (sqlite3_prepare_v2(b->db->db, buf_z(&sql), -1, &q, NULL) != SQLITE_OK)
        side_failed(b->db, "cannot prepare");
    at = 3;
    for (const struct data_filter *f = a->filters; f < a->filters + a->n_filters && q != NULL; f++)
        for (size_t i = 0; i < f->n; i++)
            side_bind_str(q, at++, f->marks[i]);
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
    sqlite3_stmt *q = a->n_filters > 0 ? prepare_filtered(b, a) : side_sql(b->db, SQL_FIND);
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
    if (a->n_filters > 0)
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
    return a->n_filters > 0 ? newest_filtered(b, a, now, cb, ctx)
                            : newest(b, a->limit, now, cb, ctx);
}
