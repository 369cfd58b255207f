/* sqlite_backend.c - the backend that keeps skills in one SQLite database.
 *
 * The catalog has the metadata.  Every version is a row of the table versions.  A version with the
 * same body as its predecessor refers to the predecessor's row instead of storing the body again.
 * A skill refers to its newest version, and each version to the previous one.  So versions lie in
 * order of arrival, and adding a version changes no index. */
#include <stdlib.h>
#include <stdio.h>
#include "base/mem.h"
#include "skills/sqlite_catalog.h"

enum {
    SQL_VERSION_NEW = N_CAT_STATEMENTS,
    SQL_LATEST,
    SQL_BODY,
    SQL_LAST,
    SQL_OLD,
    SQL_VERSIONS,
    SQL_VERSIONS_DROP,
    SQL_BODIES,
    SQL_BYTES,
    N_STATEMENTS
};

static const char *const migrations[] = {
    CATALOG_SQL
    "CREATE TABLE versions(id INTEGER PRIMARY KEY, skill INTEGER NOT NULL, version TEXT NOT NULL,"
    " content_hash TEXT NOT NULL, status INTEGER NOT NULL, previous INTEGER,"
    " changed_at INTEGER NOT NULL, changed_by TEXT, body INTEGER, source TEXT);"
    "CREATE INDEX versions_skill ON versions(skill);",
    CATALOG_SIZES_SQL
    "INSERT INTO sizes SELECT t.tenant, sum(256 + ifnull(length(CAST(v.source AS BLOB)), 0))"
    " FROM stores t JOIN skills s ON s.store = t.id JOIN versions v ON v.skill = s.id"
    " GROUP BY t.tenant;",
    CATALOG_LEAN_SQL
    "ALTER TABLE skills ADD COLUMN latest INTEGER;"
    "ALTER TABLE versions ADD COLUMN before INTEGER;"
    "UPDATE versions SET before = (SELECT max(v.id) FROM versions v"
    " WHERE v.skill = versions.skill AND v.id < versions.id);"
    "UPDATE skills SET latest = (SELECT max(v.id) FROM versions v WHERE v.skill = skills.id);"
    "DROP INDEX versions_skill;",
};

/* All versions of the skill ?1. */
#define CHAIN \
    "WITH RECURSIVE chain(id) AS (SELECT latest FROM skills WHERE id = ?1 UNION ALL" \
    " SELECT v.before FROM chain c JOIN versions v ON v.id = c.id WHERE v.before IS NOT NULL) "
#define OF_CHAIN " FROM chain c CROSS JOIN versions v ON v.id = c.id"

static const char *const statements[N_STATEMENTS] = {
    CATALOG_STATEMENTS,
    [SQL_VERSION_NEW] = "INSERT INTO versions(skill, version, content_hash, status, previous,"
                        " changed_at, changed_by, body, source, before)"
                        " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9,"
                        " (SELECT latest FROM skills WHERE id = ?1))",
    [SQL_LATEST] = "UPDATE skills SET latest = ?2 WHERE id = ?1",
    [SQL_BODY] = "SELECT source FROM versions WHERE id = ?",
    [SQL_LAST] = "SELECT ifnull(v.body, v.id), v.content_hash, v.source"
                 " FROM skills s JOIN versions v ON v.id = s.latest WHERE s.id = ?1",
    [SQL_OLD] = CHAIN "SELECT ifnull(v.body, v.id), v.content_hash, v.source" OF_CHAIN
                      " WHERE v.version = ?2 ORDER BY v.id DESC LIMIT 1",
    [SQL_VERSIONS] = CHAIN "SELECT v.content_hash, v.status, v.previous, v.changed_at,"
                           " v.changed_by" OF_CHAIN " ORDER BY v.id",
    [SQL_VERSIONS_DROP] = CHAIN "DELETE FROM versions WHERE id IN (SELECT id FROM chain)",
    [SQL_BODIES] = "SELECT s.name, (SELECT b.source FROM versions b WHERE b.id ="
                   " ifnull(v.body, v.id)) FROM stores t JOIN skills s ON s.store = t.id"
                   " JOIN versions v ON v.id = s.latest"
                   " WHERE t.tenant = ? AND t.ns = ? ORDER BY s.name",
    [SQL_BYTES] = CHAIN "SELECT sum(256 + ifnull(length(CAST(v.source AS BLOB)), 0))" OF_CHAIN,
};
#define VERSION_BYTES 256 /* of a row besides its text; the statements have it too */

static const struct side_schema schema = {
    .application_id = 0x62736b6c, /* "bskl" */
    .migrations = migrations,
    .n_migrations = ARRAY_LEN(migrations),
    .statements = statements,
    .n_statements = N_STATEMENTS,
    .cache_kib = 8192,
};

struct sqlite_ctx {
    char *path; /* owned */
};

void *skill_sqlite_new(const struct skill_backend_config *cfg, char *ret_why)
{
    /* Opened once here, so that an unusable file is reported at start-up. */
    struct side_db *db = side_open(cfg->path, &schema, SIDE_WRITE, ret_why);

    if (db == NULL)
        return NULL;
    bool told = cfg->on_size == NULL || catalog_sizes(db, cfg->on_size, cfg->on_size_ctx);
    if (!told)
        snprintf(ret_why, 256, "%s", db->why);
    side_close(db);
    if (!told)
        return NULL;
    struct sqlite_ctx *c = xcalloc(1, sizeof *c);
    c->path = xstrdup(cfg->path);
    return c;
}

static void ctx_free(void *ctx)
{
    struct sqlite_ctx *c = ctx;

    free(c->path);
    free(c);
}

static void *conn_open(void *ctx, struct str key, bool writer, char *ret_why)
{
    const struct sqlite_ctx *c = ctx;
    struct side_db *db = side_open(c->path, &schema, writer ? SIDE_WRITE : SIDE_READ, ret_why);

    if (db != NULL && !catalog_prepare(db)) {
        snprintf(ret_why, 256, "%s", db->why);
        side_close(db);
        return NULL;
    }
    return db;
}

static void conn_close(void *conn)
{
    side_close(conn);
}

static bool told(const struct side_db *db, bool ok, char *ret_why)
{
    if (!ok)
        snprintf(ret_why, 256, "%s", db->why);
    return ok;
}

static bool conn_begin(void *conn, bool write, char *ret_why)
{
    return told(conn, side_begin(conn, write ? SIDE_WRITE : SIDE_READ), ret_why);
}

static bool conn_commit(void *conn, char *ret_why)
{
    return told(conn, side_commit(conn), ret_why);
}

static void conn_rollback(void *conn)
{
    side_rollback(conn);
}

static void for_job(void *conn, const struct lane_job *job)
{
    ((struct side_db *)conn)->job = job;
}

static const char *problem(void *conn)
{
    return ((struct side_db *)conn)->why;
}

static enum skill_found body_at(struct side_db *db, int64_t id, struct arena *arena,
                                struct str *ret_source)
{
    sqlite3_stmt *q = side_sql(db, SQL_BODY);
    bool ok = q != NULL;

    if (!ok)
        return SKILL_FAILED;
    sqlite3_bind_int64(q, 1, id);
    if (side_step(db, q, &ok)) {
        *ret_source = arena_str(arena, side_str(q, 0));
        sqlite3_reset(q);
    }
    return ok && ret_source->p != NULL ? SKILL_FOUND : SKILL_FAILED;
}

/* @version absent: the newest.  @ret_row: the row that has the body; @ret_source may be NULL. */
static enum skill_found version_get(struct side_db *db, int64_t skill, struct str version,
                                    struct arena *arena, int64_t *ret_row, struct str *ret_hash,
                                    struct str *ret_source)
{
    sqlite3_stmt *q = side_sql(db, version.p != NULL ? SQL_OLD : SQL_LAST);
    bool ok = q != NULL, found = false;

    if (!ok)
        return SKILL_FAILED;
    sqlite3_bind_int64(q, 1, skill);
    if (version.p != NULL)
        side_bind_str(q, 2, version);
    if (side_step(db, q, &ok)) {
        found = true;
        *ret_row = sqlite3_column_int64(q, 0);
        *ret_hash = arena_str(arena, side_str(q, 1));
        if (ret_source != NULL)
            *ret_source = arena_str(arena, side_str(q, 2));
        sqlite3_reset(q);
    }
    if (!ok || !found)
        return ok ? SKILL_MISSING : SKILL_FAILED;
    return ret_source == NULL || ret_source->p != NULL ? SKILL_FOUND
                                                       : body_at(db, *ret_row, arena, ret_source);
}

/* Every skill has a version; a skill without one means that the file is corrupt. */
static enum skill_found newest(struct side_db *db, int64_t skill, struct arena *arena,
                               struct str *ret_source)
{
    int64_t row;
    struct str hash;
    enum skill_found found = version_get(db, skill, STR_NULL, arena, &row, &hash, ret_source);

    return found == SKILL_MISSING ? SKILL_FAILED : found;
}

static enum skill_found head(void *conn, const struct skill_where *at, struct str name,
                             bool with_source, struct arena *arena, struct skill_head *ret_h)
{
    struct catalog_entry *e = arena_alloc(arena, sizeof *e);
    enum skill_found found = catalog_get(conn, at, name, arena, e);

    if (found != SKILL_FOUND)
        return found;
    *ret_h = e->as_head;
    ret_h->kept = e;
    return with_source ? newest(conn, e->id, arena, &ret_h->source) : SKILL_FOUND;
}

static bool set_latest(struct side_db *db, int64_t skill, int64_t version)
{
    sqlite3_stmt *q = side_sql(db, SQL_LATEST);

    if (q == NULL)
        return false;
    sqlite3_bind_int64(q, 1, skill);
    sqlite3_bind_int64(q, 2, version);
    return side_run(db, q);
}

/* @body 0: the new row stores the body itself. */
static bool add_version(struct side_db *db, int64_t skill, const struct skill_next *n, int64_t body)
{
    sqlite3_stmt *q = side_sql(db, SQL_VERSION_NEW);

    if (q == NULL)
        return false;
    sqlite3_bind_int64(q, 1, skill);
    side_bind_str(q, 2, str_make(n->content_hash, SKILL_VERSION_HEX));
    side_bind_str(q, 3, str_of(n->content_hash));
    sqlite3_bind_int(q, 4, n->status);
    if (n->has_previous)
        sqlite3_bind_int(q, 5, n->previous);
    sqlite3_bind_int64(q, 6, n->changed_at);
    side_bind_str(q, 7, n->changed_by.n > 0 ? buf_str(&n->changed_by) : STR_NULL);
    if (body > 0)
        sqlite3_bind_int64(q, 8, body);
    else
        side_bind_str(q, 9, buf_str(&n->source));
    return side_run(db, q) && set_latest(db, skill, sqlite3_last_insert_rowid(db->db));
}

static bool put(void *conn, const struct skill_where *at, const struct skill_next *n)
{
    struct arena arena = ARENA_INIT;
    struct str hash = STR_NULL;
    int64_t id = 0, row = 0;
    bool same = false, ok = catalog_put(conn, at, n, &id, &same);

    if (ok && same)
        ok = version_get(conn, id, STR_NULL, &arena, &row, &hash, NULL) == SKILL_FOUND;
    arena_done(&arena);
    int64_t bytes = VERSION_BYTES + (same ? 0 : (int64_t)n->source.n);
    return ok && add_version(conn, id, n, same ? row : 0) && catalog_grow(conn, at->tenant, bytes);
}

static bool skill_bytes(struct side_db *db, int64_t id, int64_t *ret_bytes)
{
    sqlite3_stmt *q = side_sql(db, SQL_BYTES);
    bool ok = q != NULL;

    if (!ok)
        return false;
    sqlite3_bind_int64(q, 1, id);
    if (side_step(db, q, &ok)) {
        *ret_bytes = sqlite3_column_int64(q, 0);
        sqlite3_reset(q);
    }
    return ok;
}

static bool size_of(void *conn, struct str tenant, uint64_t *ret_bytes)
{
    return catalog_size(conn, tenant, ret_bytes);
}

static bool namespaces(void *conn, struct str tenant, skill_ns_cb *cb, void *ctx)
{
    return catalog_namespaces(conn, tenant, cb, ctx);
}

static bool drop(void *conn, const struct skill_where *at, struct str name)
{
    struct catalog_entry e;
    struct arena arena = ARENA_INIT;
    sqlite3_stmt *q = side_sql(conn, SQL_VERSIONS_DROP);
    int64_t bytes = 0;
    bool ok = q != NULL && catalog_get(conn, at, name, &arena, &e) == SKILL_FOUND &&
              skill_bytes(conn, e.id, &bytes);

    if (ok) {
        sqlite3_bind_int64(q, 1, e.id);
        ok = side_run(conn, q) && catalog_drop(conn, at, &e) &&
             catalog_grow(conn, at->tenant, -bytes);
    }
    arena_done(&arena);
    return ok;
}

static enum skill_found load(void *conn, const struct skill_where *at, struct str name,
                             bool with_source, struct arena *arena, struct skill_row *ret_row)
{
    struct catalog_entry e;
    enum skill_found found = catalog_get(conn, at, name, arena, &e);

    if (found != SKILL_FOUND)
        return found;
    *ret_row = e.row;
    return with_source ? newest(conn, e.id, arena, &ret_row->source) : SKILL_FOUND;
}

static enum skill_found load_version(void *conn, const struct skill_where *at, struct str name,
                                     struct str version, struct arena *arena, struct str *ret_hash,
                                     struct str *ret_source)
{
    struct catalog_entry e;
    int64_t row;
    enum skill_found found = catalog_get(conn, at, name, arena, &e);

    return found != SKILL_FOUND
               ? found
               : version_get(conn, e.id, version, arena, &row, ret_hash, ret_source);
}

static enum skill_found versions(void *conn, const struct skill_where *at, struct str name,
                                 skill_version_cb *cb, void *ctx)
{
    struct catalog_entry e;
    struct arena arena = ARENA_INIT;
    enum skill_found found = catalog_get(conn, at, name, &arena, &e);
    sqlite3_stmt *q = side_sql(conn, SQL_VERSIONS);
    bool ok = q != NULL;

    arena_done(&arena);
    if (found != SKILL_FOUND || !ok)
        return ok ? found : SKILL_FAILED;
    sqlite3_bind_int64(q, 1, e.id);
    while (side_step(conn, q, &ok)) {
        struct skill_version v = {.name = name,
                                  .content_hash = side_str(q, 0),
                                  .status = (enum skill_status)sqlite3_column_int(q, 1),
                                  .has_previous = sqlite3_column_type(q, 2) != SQLITE_NULL,
                                  .previous = (enum skill_status)sqlite3_column_int(q, 2),
                                  .changed_at = sqlite3_column_int64(q, 3),
                                  .changed_by = side_str(q, 4)};
        if (!cb(ctx, &v)) {
            sqlite3_reset(q);
            break;
        }
    }
    return ok ? SKILL_FOUND : SKILL_FAILED;
}

static enum skill_found list(void *conn, const struct skill_where *at, const struct skill_query *q,
                             skill_row_cb *cb, void *ctx)
{
    return catalog_list(conn, at, q, cb, ctx);
}

static enum skill_found bodies(void *conn, const struct skill_where *at, skill_row_cb *cb,
                               void *ctx)
{
    sqlite3_stmt *q = side_sql(conn, SQL_BODIES);
    bool ok = q != NULL;

    if (!ok)
        return SKILL_FAILED;
    side_bind_str(q, 1, at->tenant);
    side_bind_str(q, 2, at->ns);
    while (side_step(conn, q, &ok)) {
        struct skill_row row = {.name = side_str(q, 0), .source = side_str(q, 1)};
        if (!cb(ctx, &row)) {
            sqlite3_reset(q);
            break;
        }
    }
    return ok ? SKILL_FOUND : SKILL_FAILED;
}

static enum skill_found token(void *conn, const struct skill_where *at,
                              char ret_token[SKILL_TOKEN_BYTES])
{
    return catalog_token(conn, at, ret_token);
}

const struct skill_backend_ops skill_sqlite_ops = {
    .kind = "sqlite",
    .lanes = {.open = conn_open,
              .close = conn_close,
              .begin = conn_begin,
              .commit = conn_commit,
              .rollback = conn_rollback,
              .problem = problem},
    .free = ctx_free,
    .for_job = for_job,
    .head = head,
    .put = put,
    .drop = drop,
    .load = load,
    .load_version = load_version,
    .versions = versions,
    .list = list,
    .bodies = bodies,
    .token = token,
    .size = size_of,
    .namespaces = namespaces,
};
