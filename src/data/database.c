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
 * With a remote (several nodes) PostgreSQL has the entries, and an entry's id is its number there.
 * The writer reads what the file lacks when it first uses the file, then adds each entry on both
 * sides: PostgreSQL is committed first.  If the file cannot follow, the session ends, and all files
 * are compared with PostgreSQL again.
 *
 *      reader: origin.session == place.session? -- no --> the writer: sync(), then answers
 *
 * The file is long because it keeps the statements of one schema and their callers together. */
#include "data/database.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "base/mem.h"
#include "data/remote.h"
#include "store/engine.h"
#include "store/sqlite/sqldb.h"

enum {
    SQL_ADD,           /* uuid, created_at, expires_at, extra, content, summary, marks, id */
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
    SQL_ORIGIN,        /* -> store, session */
    SQL_SET_ORIGIN,    /* store, session */
    SQL_LAST,          /* -> id, uuid */
    SQL_EACH,          /* -> ENTRY_COLUMNS */
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
    "CREATE VIRTUAL TABLE words USING fts5(summary, detail, content='');"
    "CREATE TABLE origin(one INTEGER PRIMARY KEY, store INTEGER NOT NULL, session INTEGER NOT"
    " NULL);",
};

#define ENTRY_COLUMNS "id, uuid, created_at, expires_at, extra, content"

static const char *const statements[N_STATEMENTS] = {
    [SQL_ADD] = "INSERT INTO entries(id, uuid, created_at, expires_at, extra, content)"
                " VALUES(?8, ?1, ?2, ?3, ?4, ?5);"
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
    [SQL_ORIGIN] = "SELECT store, session FROM origin",
    [SQL_SET_ORIGIN] = "INSERT OR REPLACE INTO origin VALUES(1, ?1, ?2)",
    [SQL_LAST] = "SELECT id, uuid FROM entries ORDER BY id DESC LIMIT 1",
    [SQL_EACH] = "SELECT " ENTRY_COLUMNS " FROM entries ORDER BY id",
};

#define SCHEMA \
    .application_id = 0x62646174 /* "bdat" */, .migrations = migrations, .n_migrations = 1, \
    .statements = statements, .n_statements = N_STATEMENTS, .cache_kib = 2048
static const struct sqldb_schema schema = {SCHEMA};
static const struct sqldb_schema schema_derived = {SCHEMA, .derived = true};

struct database {
    struct database_location *place; /* borrowed */
    char *path;                      /* owned */
    char *key;                       /* owned */
    struct sqldb_sqlite *db;         /* owned; NULL: the file does not exist yet */
    bool writer;
    bool in_it;            /* a transaction of @db is under way */
    bool behind;           /* of a reader, see database_is_behind() */
    bool doubt;            /* of the last commit */
    uint64_t session;      /* of a writer: the file is up to date in this one */
    uint64_t tenant_bytes; /* cached, see database_tenant_bytes() */
    int64_t looked_us;
    char why[256];
};

/* ---- connections ---- */

/* Asks, and moves to the first row; false: there is none, or it failed. */
static bool ask_row(struct database *b, unsigned statement)
{
    return sqldb_ask(&b->db->base, statement) && sqldb_next(&b->db->base);
}

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
    bool shared = b->place->remote != NULL;

    if (b->db != NULL || (!b->writer && access(b->path, F_OK) != 0))
        return true;
    if (b->writer && !make_dirs(b->path, ret_why))
        return false;
    b->db = sqldb_sqlite_open(b->path, shared ? &schema_derived : &schema,
                              b->writer ? SQLDB_WRITE : SQLDB_READ, ret_why);
    return b->db != NULL;
}

static void db_close(void *conn)
{
    struct database *b = conn;

    if (b->db != NULL)
        sqldb_close(&b->db->base);
    free(b->path);
    free(b->key);
    free(b);
}

static void *db_open(void *ctx, struct str key, bool writer, char *ret_why)
{
    struct database_location *place = ctx;
    struct database *b = xcalloc(1, sizeof *b);
    struct buf path = BUF_INIT;

    buf_printf(&path, "%s/%.*s.db", place->dir, STR_FMT(key));
    *b = (struct database){.place = place,
                           .path = buf_take(&path),
                           .key = xstrndup(key.p, key.n),
                           .writer = writer};
    if (place->remote != NULL || open_file(b, ret_why))
        return b;
    db_close(b);
    return NULL;
}

static bool told(struct database *b, bool ok, char *ret_why)
{
    if (!ok)
        snprintf(ret_why, 256, "%s", b->db->base.why);
    return ok;
}

static uint64_t session_of(const struct database *b)
{
    return __atomic_load_n(&b->place->session, __ATOMIC_ACQUIRE);
}

/* All files are compared with PostgreSQL again. */
static void end_session(struct database *b)
{
    __atomic_fetch_add(&b->place->session, 1, __ATOMIC_ACQ_REL);
}

static bool begin_file(struct database *b, bool write, char *ret_why)
{
    b->in_it = b->db != NULL && sqldb_begin(&b->db->base, write);
    return b->in_it || b->db == NULL || told(b, false, ret_why);
}

static bool sync_file(struct database *b, char *ret_why);

static bool db_begin(void *conn, bool write, char *ret_why)
{
    struct database *b = conn;

    b->doubt = false;
    b->why[0] = '\0';
    if (b->place->remote != NULL && b->writer) {
        if (b->session != session_of(b) && !sync_file(b, ret_why))
            return false;
        return begin_file(b, write, ret_why); /* the first entry makes the file */
    }
    if (!open_file(b, ret_why) || !begin_file(b, write, ret_why))
        return false;
    if (b->place->remote != NULL)
        b->behind = b->db == NULL || !ask_row(b, SQL_ORIGIN) ||
                    (uint64_t)sqldb_get_int(&b->db->base, 1) != session_of(b);
    return true;
}

/* PostgreSQL first: an entry that only PostgreSQL has is read again, one that only the file has
 * would be a ghost. */
static bool db_commit(void *conn, char *ret_why)
{
    struct database *b = conn;
    bool shared = b->place->remote != NULL && b->writer, in_it = b->in_it;
    enum sqldb_end end = shared ? remote_commit(b->place->remote) : SQLDB_DONE;

    b->doubt = end == SQLDB_UNKNOWN;
    if (b->doubt)
        end_session(b);
    if (end != SQLDB_DONE) {
        snprintf(ret_why, 256, "%s", remote_problem(b->place->remote));
        return false;
    }
    b->in_it = false;
    if (!in_it || sqldb_commit(&b->db->base))
        return true;
    if (shared) { /* what is in PostgreSQL is done */
        sqldb_rollback(&b->db->base);
        end_session(b);
        return true;
    }
    b->in_it = true;
    return told(b, false, ret_why);
}

static bool db_in_doubt(void *conn)
{
    return ((const struct database *)conn)->doubt;
}

static void db_rollback(void *conn)
{
    struct database *b = conn;

    if (b->place->remote != NULL && b->writer)
        remote_rollback(b->place->remote);
    if (b->in_it)
        sqldb_rollback(&b->db->base);
    b->in_it = false;
}

static const char *db_problem(void *conn)
{
    const struct database *b = conn;
    return b->why[0] == '\0' && b->db != NULL ? b->db->base.why : b->why;
}

const struct db_jobs_ops database_ops = {.open = db_open,
                                         .close = db_close,
                                         .begin = db_begin,
                                         .commit = db_commit,
                                         .in_doubt = db_in_doubt,
                                         .rollback = db_rollback,
                                         .problem = db_problem};

void database_for_job(struct database *b, const struct db_job *job)
{
    if (b->db != NULL)
        b->db->base.job = job;
}

const char *database_problem(const struct database *b)
{
    return b->why;
}

bool database_is_behind(const struct database *b)
{
    return b->behind;
}

static struct str folder_of(const struct database *b)
{
    struct str rest = str_of(b->key), folder;

    str_split(&rest, '/', &folder);
    return folder;
}

/* Notes why PostgreSQL failed; always false. */
static bool remote_failed(struct database *b)
{
    snprintf(b->why, sizeof b->why, "%s", remote_problem(b->place->remote));
    return false;
}

uint64_t database_tenant_bytes(struct database *b)
{
    int64_t now = thread_now_us();
    struct remote *r = b->place->remote;

    if (b->looked_us != 0 && now - b->looked_us <= 1000000)
        return b->tenant_bytes;
    if (r != NULL) {
        if (b->why[0] == '\0' && remote_begin(r, true) &&
            remote_bytes(r, folder_of(b), &b->tenant_bytes))
            b->looked_us = now;
    } else {
        /* Deleted entries make room, although the file does not shrink. */
        uint64_t all = file_folder_bytes(b->path), unused = 0;
        if (b->db != NULL && ask_row(b, SQL_UNUSED))
            unused = (uint64_t)(sqldb_get_int(&b->db->base, 0) * sqldb_get_int(&b->db->base, 1));
        b->tenant_bytes = all > unused ? all - unused : 0;
        b->looked_us = now;
    }
    return b->tenant_bytes;
}

/* ---- writing ---- */

/* @id 0: the next one. */
static bool add_entry(struct database *b, int64_t id, const struct data_entry *e)
{
    struct sqldb *s = &b->db->base;
    struct buf summary = BUF_INIT;

    data_summary(e->content, &summary);
    sqldb_blob(s, str_make(e->uuid, sizeof e->uuid));
    sqldb_int(s, e->created_at);
    sqldb_int_if(s, e->expires_at != DATA_FOREVER, e->expires_at);
    sqldb_text(s, e->extra);
    sqldb_text(s, e->content);
    sqldb_text(s, buf_str(&summary));
    sqldb_texts(s, e->marks, e->n_marks);
    sqldb_int_if(s, id != 0, id);
    bool ok = sqldb_ask(s, SQL_ADD);
    buf_done(&summary);
    return ok;
}

static bool set_origin(struct database *b, int64_t store, uint64_t session)
{
    sqldb_int(&b->db->base, store);
    sqldb_int(&b->db->base, (int64_t)session);
    return sqldb_ask(&b->db->base, SQL_SET_ORIGIN);
}

bool database_write(struct database *b, const struct data_entry *e)
{
    struct remote *r = b->place->remote;
    int64_t store, n = 0;
    char why[256];

    assert(b->writer);
    if (r == NULL)
        return add_entry(b, 0, e);
    if (!remote_begin(r, true) || !remote_add(r, str_of(b->key), e, &store, &n))
        return remote_failed(b);
    if (b->db == NULL && (!open_file(b, why) || !begin_file(b, true, why))) {
        snprintf(b->why, sizeof b->why, "%.150s", why);
        return false;
    }
    return (n > 1 || set_origin(b, store, b->session)) && add_entry(b, n, e);
}

static bool drop_entry(struct sqldb *s, int64_t id, struct str content)
{
    struct buf summary = BUF_INIT;

    data_summary(content, &summary);
    sqldb_int(s, id);
    sqldb_text(s, buf_str(&summary));
    sqldb_text(s, content);
    bool ok = sqldb_ask(s, SQL_DROP);
    buf_done(&summary);
    return ok;
}

/* Deletes entries of PostgreSQL, by their numbers. */
static bool drop_remote(struct database *b, const int64_t *ids, size_t n)
{
    struct remote *r = b->place->remote;
    int64_t store = ask_row(b, SQL_ORIGIN) ? sqldb_get_int(&b->db->base, 0) : 0;

    if (n == 0 || store == 0)
        return b->db->base.ok;
    return (remote_begin(r, true) && remote_drop(r, store, ids, n)) || remote_failed(b);
}

bool database_purge(struct database *b, int64_t now, size_t max, bool *ret_more)
{
    *ret_more = false;
    if (b->db == NULL)
        return true;
    struct sqldb *s = &b->db->base;
    struct arena arena = ARENA_INIT;
    int64_t *ids = xcalloc(max, sizeof *ids);
    struct str *contents = xcalloc(max, sizeof *contents);
    size_t n = 0;

    sqldb_int(s, now);
    sqldb_int(s, (int64_t)max);
    sqldb_ask(s, SQL_EXPIRED);
    for (; n < max && sqldb_next(s); n++) {
        ids[n] = sqldb_get_int(s, 0);
        contents[n] = arena_str(&arena, sqldb_get_str(s, 5));
    }
    bool ok = s->ok && (b->place->remote == NULL || drop_remote(b, ids, n));
    for (size_t i = 0; i < n && ok; i++)
        ok = drop_entry(s, ids[i], contents[i]);
    *ret_more = n == max;
    free(ids);
    free(contents);
    arena_done(&arena);
    return ok;
}

static bool clear_file(struct database *b)
{
    bool ok = sqlite3_exec(b->db->db,
                           "PRAGMA secure_delete=ON; DELETE FROM marks; DELETE FROM entries;"
                           " INSERT INTO words(words) VALUES('delete-all');"
                           " PRAGMA secure_delete=FAST",
                           NULL, NULL, NULL) == SQLITE_OK;

    b->looked_us = 0;
    return ok || sqldb_failed(b->db, "cannot clear it");
}

bool database_clear(struct database *b)
{
    struct remote *r = b->place->remote;

    if (r != NULL && !(remote_begin(r, true) && remote_clear(r, str_of(b->key))))
        return remote_failed(b);
    return b->db == NULL || clear_file(b);
}

bool database_names(struct database *b, database_name_cb *cb, void *ctx)
{
    struct remote *r = b->place->remote;

    return (remote_begin(r, true) && remote_names(r, folder_of(b), cb, ctx)) || remote_failed(b);
}

/* ---- bringing a file up to date ---- */

static bool on_missed(void *ctx, int64_t n, const struct data_entry *found)
{
    struct arena arena = ARENA_INIT;
    struct data_entry *e = arena_alloc(&arena, sizeof *e);

    *e = *found;
    data_entry_marks(e, &arena);
    bool ok = add_entry(ctx, n, e);
    arena_done(&arena);
    return ok;
}

/* Reads what the file lacks, page by page, each in a transaction.  False: b->why, or the file's. */
static bool catch_up(struct database *b, int64_t store, uint64_t session)
{
    struct sqldb *s = &b->db->base;
    int64_t before = -1, last = ask_row(b, SQL_LAST) ? sqldb_get_int(s, 0) : 0;

    while (last > before) {
        before = last;
        if (!remote_since(b->place->remote, store, before, on_missed, b, &last))
            return s->ok ? remote_failed(b) : false;
        if (last > before && (!sqldb_commit(s) || !sqldb_begin(s, true)))
            return false;
    }
    return s->ok && set_origin(b, store, session);
}

/* *@ret: the file is of this store, and PostgreSQL has its newest entry.  If not, PostgreSQL was
 * restored from a backup, or another node deleted that entry: the file is built again. */
static bool file_fits(struct database *b, int64_t store, bool *ret)
{
    struct sqldb *s = &b->db->base;

    *ret = ask_row(b, SQL_ORIGIN) && sqldb_get_int(s, 0) == store;
    if (!*ret || !ask_row(b, SQL_LAST))
        return s->ok;
    return remote_has(b->place->remote, store, sqldb_get_int(s, 0), sqldb_get_str(s, 1), ret) ||
           remote_failed(b);
}

static bool sync_file(struct database *b, char *ret_why)
{
    struct remote *r = b->place->remote;
    uint64_t session = session_of(b);
    int64_t store = 0;
    bool ok =
        (remote_begin(r, false) && remote_find(r, str_of(b->key), &store)) || remote_failed(b);

    if (ok && (store != 0 || b->db != NULL || access(b->path, F_OK) == 0)) {
        ok = open_file(b, b->why) && sqldb_begin(&b->db->base, true);
        if (ok) {
            b->in_it = true;
            bool fits = false;
            ok = file_fits(b, store, &fits) && (fits || clear_file(b)) &&
                 catch_up(b, store, session) && sqldb_commit(&b->db->base);
        }
    }
    if (!ok)
        snprintf(ret_why, 256, "%s", db_problem(b));
    else
        b->in_it = false;
    if (!ok || remote_commit(r) != SQLDB_DONE)
        db_rollback(b);
    if (ok)
        b->session = session;
    return ok;
}

/* ---- reading ---- */

static bool is_expired(const struct sqldb *s, int64_t now)
{
    return sqldb_get_str(s, 3).p != NULL && sqldb_get_int(s, 3) <= now;
}

/* The row of ENTRY_COLUMNS. */
static bool tell(const struct sqldb *s, const double *score, data_found_cb *cb, void *ctx)
{
    struct str uuid = sqldb_get_str(s, 1);
    struct data_found f = {.uuid = (const uint8_t *)uuid.p,
                           .created_at = sqldb_get_int(s, 2),
                           .extra = sqldb_get_str(s, 4),
                           .content = sqldb_get_str(s, 5),
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
    sqldb_blob(&b->db->base, str_make(uuid, DATA_UUID_BYTES));
    if (ask_row(b, SQL_GET) && !is_expired(&b->db->base, now))
        tell(&b->db->base, NULL, cb, ctx);
    return b->db->base.ok ? DATA_OK : failed(b);
}

/* Reads the entry @id.  *@ret_told: it exists and has not expired.  False: failed. */
static bool tell_by_id(struct database *b, int64_t id, const double *score, int64_t now,
                       data_found_cb *cb, void *ctx, bool *ret_told, bool *ret_enough)
{
    sqldb_int(&b->db->base, id);
    *ret_told = ask_row(b, SQL_BY_ID) && !is_expired(&b->db->base, now);
    if (*ret_told)
        *ret_enough = !tell(&b->db->base, score, cb, ctx);
    return b->db->base.ok;
}

static enum data_end newest(struct database *b, uint64_t limit, int64_t now, data_found_cb *cb,
                            void *ctx)
{
    struct sqldb *s = &b->db->base;

    sqldb_int(s, now);
    sqldb_int(s, (int64_t)limit);
    sqldb_ask(s, SQL_NEWEST);
    while (sqldb_next(s) && tell(s, NULL, cb, ctx))
        ;
    return s->ok ? DATA_OK : failed(b);
}

/* The newest entry below @before that has the mark (absent: any entry); 0: none. */
static bool newest_below(struct database *b, struct str mark, int64_t before, int64_t *ret_id)
{
    if (mark.p != NULL)
        sqldb_text(&b->db->base, mark);
    sqldb_int(&b->db->base, before);
    *ret_id =
        ask_row(b, mark.p != NULL ? SQL_MARKED : SQL_BELOW) ? sqldb_get_int(&b->db->base, 0) : 0;
    return b->db->base.ok;
}

/* *@ret: the entry passes the filters from @first on.  False: failed. */
static bool passes(struct database *b, const struct data_ask *a, size_t first, int64_t id,
                   bool *ret)
{
    *ret = true;
    for (size_t i = first; i < a->n_filters && *ret; i++) {
        sqldb_int(&b->db->base, id);
        sqldb_texts(&b->db->base, a->filters[i].marks, a->filters[i].n);
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
        sqldb_failed(b->db, "cannot prepare");
    at = 3;
    for (const struct data_filter *f = a->filters; f < a->filters + a->n_filters && q != NULL; f++)
        for (size_t i = 0; i < f->n; i++)
            sqldb_bind_str(q, at++, f->marks[i]);
    buf_done(&sql);
    return q;
}

static enum data_end find(struct database *b, const struct data_ask *a, uint64_t expired,
                          int64_t now, data_found_cb *cb, void *ctx)
{
    sqlite3_stmt *q = a->n_filters > 0 ? prepare_filtered(b, a) : sqldb_statement(b->db, SQL_FIND);
    uint64_t limit = a->limit + expired, n = 0;
    bool told_it, enough = false, ok = true;
    int rc = SQLITE_OK;

    if (q == NULL)
        return failed(b);
    sqldb_bind_str(q, 1, a->match);
    sqlite3_bind_int64(q, 2, (int64_t)limit);
    while (ok && !enough && n < a->limit && (rc = sqlite3_step(q)) == SQLITE_ROW) {
        double score = sqlite3_column_double(q, 1);
        ok = tell_by_id(b, sqlite3_column_int64(q, 0), &score, now, cb, ctx, &told_it, &enough);
        n += told_it;
    }
    enum data_end end = DATA_OK;
    if (ok && rc == SQLITE_ERROR) { /* FTS5 says so for bad syntax too */
        snprintf(b->why, sizeof b->why, "%s", sqlite3_errmsg(b->db->db));
        end = DATA_BAD_SYNTAX;
    } else if (!ok || (rc != SQLITE_ROW && rc != SQLITE_DONE)) {
        end = failed(b);
    }
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
    sqldb_int(&b->db->base, now);
    if (ask_row(b, SQL_EXPIRED_COUNT))
        *ret_expired = (uint64_t)sqldb_get_int(&b->db->base, 0);
    if (!b->db->base.ok)
        return failed(b);
    if (a->kind != FTS_BLANK)
        return find(b, a, *ret_expired, now, cb, ctx);
    return a->n_filters > 0 ? newest_filtered(b, a, now, cb, ctx)
                            : newest(b, a->limit, now, cb, ctx);
}

bool database_each(struct database *b, database_entry_cb *cb, void *ctx)
{
    struct sqldb *s = &b->db->base;
    struct data_entry e;

    sqldb_ask(s, SQL_EACH);
    while (sqldb_next(s)) {
        struct str uuid = sqldb_get_str(s, 1);
        if (uuid.n != sizeof e.uuid)
            continue;
        memcpy(e.uuid, uuid.p, sizeof e.uuid);
        e.created_at = sqldb_get_int(s, 2);
        e.expires_at = sqldb_get_str(s, 3).p != NULL ? sqldb_get_int(s, 3) : DATA_FOREVER;
        e.extra = sqldb_get_str(s, 4);
        e.content = sqldb_get_str(s, 5);
        if (!cb(ctx, sqldb_get_int(s, 0), &e))
            return false;
    }
    return s->ok;
}
