/* sqlite_index.c - the catalog with a stamp per skill.  (sqlite_index.h has the contract.) */
#include "skills/sqlite_index.h"
#include <stdio.h>
#include "skills/sqlite_catalog.h"

enum { SQL_STAMP = N_CAT_STATEMENTS, SQL_STAMP_SET, SQL_STAMP_DROP, N_STATEMENTS };

static const char *const migrations[] = {
    CATALOG_SQL "CREATE TABLE stamps(skill INTEGER PRIMARY KEY, mtime_ns INTEGER NOT NULL, ino "
                "INTEGER NOT NULL,"
                " size INTEGER NOT NULL, history_size INTEGER NOT NULL, seen_ns INTEGER NOT NULL);",
    CATALOG_SIZES_SQL "INSERT INTO sizes SELECT t.tenant, sum(x.size + x.history_size)"
                      " FROM stores t JOIN skills s ON s.store = t.id JOIN stamps x ON x.skill = "
                      "s.id GROUP BY t.tenant;",
    CATALOG_LEAN_SQL,
};

static const char *const statements[N_STATEMENTS] = {
    CATALOG_STATEMENTS,
    [SQL_STAMP] = "SELECT mtime_ns, ino, size, history_size, seen_ns FROM stamps WHERE skill = ?",
    [SQL_STAMP_SET] = "INSERT OR REPLACE INTO stamps VALUES(?, ?, ?, ?, ?, ?)",
    [SQL_STAMP_DROP] = "DELETE FROM stamps WHERE skill = ?",
};

static const struct side_schema schema = {
    .application_id = 0x6273696e, /* "bsin" */
    .migrations = migrations,
    .n_migrations = sizeof migrations / sizeof migrations[0],
    .statements = statements,
    .n_statements = N_STATEMENTS,
    .cache_kib = 8192,
    .derived = true,
};

/* A struct skill_index is a struct side_db; nobody outside needs to know SQLite for that. */
static struct side_db *db_of(const struct skill_index *x)
{
    return (struct side_db *)(uintptr_t)x;
}

struct skill_index *skill_index_open(const char *path, bool writer, char *ret_why)
{
    struct side_db *db = side_open(path, &schema, writer ? SIDE_WRITE : SIDE_READ, ret_why);

    if (db != NULL && !catalog_prepare(db)) {
        snprintf(ret_why, 256, "%s", db->why);
        side_close(db);
        return NULL;
    }
    return (struct skill_index *)(void *)db;
}

void skill_index_close(struct skill_index *x)
{
    side_close(db_of(x));
}

bool skill_index_begin(struct skill_index *x, bool write)
{
    return side_begin(db_of(x), write ? SIDE_WRITE : SIDE_READ);
}

bool skill_index_commit(struct skill_index *x)
{
    return side_commit(db_of(x));
}

void skill_index_rollback(struct skill_index *x)
{
    side_rollback(db_of(x));
}

void skill_index_for_job(struct skill_index *x, const struct lane_job *job)
{
    db_of(x)->job = job;
}

const char *skill_index_problem(const struct skill_index *x)
{
    return db_of(x)->why;
}

static enum skill_found stamp_get(struct side_db *db, int64_t id, struct skill_stamp *ret)
{
    sqlite3_stmt *q = side_sql(db, SQL_STAMP);
    bool ok = q != NULL;

    *ret = (struct skill_stamp){0};
    if (!ok)
        return SKILL_FAILED;
    sqlite3_bind_int64(q, 1, id);
    if (side_step(db, q, &ok)) {
        *ret = (struct skill_stamp){.mtime_ns = sqlite3_column_int64(q, 0),
                                    .ino = sqlite3_column_int64(q, 1),
                                    .size = sqlite3_column_int64(q, 2),
                                    .history_size = sqlite3_column_int64(q, 3),
                                    .seen_ns = sqlite3_column_int64(q, 4)};
        sqlite3_reset(q);
    }
    return ok ? SKILL_FOUND : SKILL_FAILED;
}

static bool stamp_set(struct side_db *db, struct str tenant, int64_t id,
                      const struct skill_stamp *s)
{
    struct skill_stamp old;
    sqlite3_stmt *q;

    if (stamp_get(db, id, &old) == SKILL_FAILED ||
        !catalog_grow(db, tenant, s->size + s->history_size - old.size - old.history_size))
        return false;
    q = side_sql(db, SQL_STAMP_SET);
    if (q == NULL)
        return false;
    sqlite3_bind_int64(q, 1, id);
    sqlite3_bind_int64(q, 2, s->mtime_ns);
    sqlite3_bind_int64(q, 3, s->ino);
    sqlite3_bind_int64(q, 4, s->size);
    sqlite3_bind_int64(q, 5, s->history_size);
    sqlite3_bind_int64(q, 6, s->seen_ns);
    return side_run(db, q);
}

enum skill_found skill_index_get(struct skill_index *x, const struct skill_where *at,
                                 struct str name, struct arena *arena, struct skill_row *ret_row,
                                 struct skill_stamp *ret_stamp)
{
    struct catalog_entry e;
    enum skill_found found = catalog_get(db_of(x), at, name, arena, &e);

    if (found != SKILL_FOUND)
        return found;
    *ret_row = e.row;
    return ret_stamp != NULL ? stamp_get(db_of(x), e.id, ret_stamp) : SKILL_FOUND;
}

bool skill_index_put(struct skill_index *x, const struct skill_where *at,
                     const struct skill_next *n, const struct skill_stamp *stamp)
{
    int64_t id;
    bool same;

    return catalog_put(db_of(x), at, n, &id, &same) && stamp_set(db_of(x), at->tenant, id, stamp);
}

bool skill_index_restamp(struct skill_index *x, const struct skill_where *at, struct str name,
                         const struct skill_stamp *stamp)
{
    struct catalog_entry e;
    struct arena arena = ARENA_INIT;
    bool ok = catalog_get(db_of(x), at, name, &arena, &e) == SKILL_FOUND &&
              stamp_set(db_of(x), at->tenant, e.id, stamp);

    arena_done(&arena);
    return ok;
}

bool skill_index_drop(struct skill_index *x, const struct skill_where *at, struct str name)
{
    struct catalog_entry e;
    struct arena arena = ARENA_INIT;
    sqlite3_stmt *q = side_sql(db_of(x), SQL_STAMP_DROP);
    enum skill_found found = catalog_get(db_of(x), at, name, &arena, &e);
    bool ok = q != NULL && found != SKILL_FAILED;
    struct skill_stamp old;

    if (ok && found == SKILL_FOUND) {
        ok = stamp_get(db_of(x), e.id, &old) == SKILL_FOUND;
        sqlite3_bind_int64(q, 1, e.id);
        ok = ok && side_run(db_of(x), q) && catalog_drop(db_of(x), at, &e) &&
             catalog_grow(db_of(x), at->tenant, -(old.size + old.history_size));
    }
    arena_done(&arena);
    return ok;
}

bool skill_index_size(struct skill_index *x, struct str tenant, uint64_t *ret_bytes)
{
    return catalog_size(db_of(x), tenant, ret_bytes);
}

bool skill_index_namespaces(struct skill_index *x, struct str tenant, skill_ns_cb *cb, void *ctx)
{
    return catalog_namespaces(db_of(x), tenant, cb, ctx);
}

bool skill_index_sizes(struct skill_index *x, skill_size_cb *cb, void *ctx)
{
    return catalog_sizes(db_of(x), cb, ctx);
}

enum skill_found skill_index_list(struct skill_index *x, const struct skill_where *at,
                                  const struct skill_query *q, skill_row_cb *cb, void *ctx)
{
    return catalog_list(db_of(x), at, q, cb, ctx);
}

enum skill_found skill_index_token(struct skill_index *x, const struct skill_where *at,
                                   char ret_token[SKILL_TOKEN_BYTES])
{
    return catalog_token(db_of(x), at, ret_token);
}
