/* sqlite_index.c - the catalog with a stamp per skill.  (sqlite_index.h has the contract.) */
#include "skills/sqlite_index.h"
#include "base/mem.h"
#include "skills/sqlite_catalog.h"

enum {
    SQL_STAMP = N_CAT_STATEMENTS, /* skill -> mtime_ns, ino, size, history_size, seen_ns */
    SQL_STAMP_SET, /* skill, the five of SQL_STAMP, id, sum and n of the store, tenant */
    N_STATEMENTS
};

static const char *const migrations[] = {
    CATALOG_SQL "CREATE TABLE stamps(skill INTEGER PRIMARY KEY, mtime_ns INTEGER NOT NULL, ino "
                "INTEGER NOT NULL,"
                " size INTEGER NOT NULL, history_size INTEGER NOT NULL, seen_ns INTEGER NOT NULL);",
};

#define STAMPED "ifnull((SELECT size + history_size FROM stamps WHERE skill = ?1), 0)"

static const char *const statements[N_STATEMENTS] = {
    CATALOG_STATEMENTS("NULL"),
    [CAT_DROP] =
        CATALOG_GROW("?5", "-" STAMPED) "; DELETE FROM stamps WHERE skill = ?1;" CATALOG_DROP,
    [SQL_STAMP] = "SELECT mtime_ns, ino, size, history_size, seen_ns FROM stamps WHERE skill = ?1",
    [SQL_STAMP_SET] = CATALOG_GROW(
        "?10",
        "(?4 + ?5 - " STAMPED
        ")") ";"
             "INSERT OR REPLACE INTO stamps VALUES(?1, ?2, ?3, ?4, ?5, ?6);" CATALOG_STORE_SET(
                 "?7", "?8", "?9"),
};

static const struct sqldb_schema schema = {
    .application_id = 0x6273696e, /* "bsin" */
    .migrations = migrations,
    .n_migrations = ARRAY_LEN(migrations),
    .statements = statements,
    .n_statements = N_STATEMENTS,
    .cache_kib = 8192,
    .derived = true,
};

struct sqldb *skill_index_open(const char *path, bool writer, char *ret_why)
{
    struct sqldb_sqlite *db =
        sqldb_sqlite_open(path, &schema, writer ? SQLDB_WRITE : SQLDB_READ, ret_why);

    return db != NULL ? &db->base : NULL;
}

static bool stamp_set(struct sqldb *x, struct str tenant, int64_t id, const struct skill_stamp *s,
                      const struct catalog_store *store)
{
    sqldb_int(x, id);
    sqldb_int(x, s->mtime_ns);
    sqldb_int(x, s->ino);
    sqldb_int(x, s->size);
    sqldb_int(x, s->history_size);
    sqldb_int(x, s->seen_ns);
    catalog_store_args(x, store);
    sqldb_text(x, tenant);
    return sqldb_ask(x, SQL_STAMP_SET);
}

enum skill_found skill_index_get(struct sqldb *x, const struct skill_where *at, struct str name,
                                 struct arena *arena, struct skill_row *ret_row,
                                 struct skill_stamp *ret_stamp)
{
    struct catalog_entry e;
    enum skill_found found = catalog_get(x, at, name, false, arena, &e);

    if (found != SKILL_FOUND)
        return found;
    *ret_row = e.row;
    if (ret_stamp == NULL)
        return SKILL_FOUND;
    *ret_stamp = (struct skill_stamp){0};
    sqldb_int(x, e.id);
    if (catalog_ask(x, SQL_STAMP) == SKILL_FOUND)
        *ret_stamp = (struct skill_stamp){.mtime_ns = sqldb_get_int(x, 0),
                                          .ino = sqldb_get_int(x, 1),
                                          .size = sqldb_get_int(x, 2),
                                          .history_size = sqldb_get_int(x, 3),
                                          .seen_ns = sqldb_get_int(x, 4)};
    return x->ok ? SKILL_FOUND : SKILL_FAILED;
}

bool skill_index_put(struct sqldb *x, const struct skill_where *at, const struct skill_next *n,
                     const struct skill_stamp *stamp)
{
    struct catalog_store store = {0};
    int64_t id, body;

    return catalog_put(x, at, n, &store, &id, &body) && stamp_set(x, at->tenant, id, stamp, &store);
}

bool skill_index_restamp(struct sqldb *x, const struct skill_where *at, struct str name,
                         const struct skill_stamp *stamp)
{
    struct catalog_entry e;
    struct arena arena = ARENA_INIT;
    bool ok = catalog_get(x, at, name, false, &arena, &e) == SKILL_FOUND &&
              stamp_set(x, at->tenant, e.id, stamp, &e.store);

    arena_done(&arena);
    return ok;
}
