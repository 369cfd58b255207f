/* sqlite_backend.c - skills in one SQLite database: tables, statements, connections.
 *
 * A skill refers to its newest version, and each version to the previous one.  So versions lie in
 * order of arrival, and adding a version changes no index. */
#include <stdio.h>
#include "base/mem.h"
#include "skills/migrate.h"
#include "skills/sql_backend.h"
#include "skills/sqlite_catalog.h"

static const char *const migrations[] = {
    CATALOG_SQL
    "ALTER TABLE skills ADD COLUMN latest INTEGER;"
    "CREATE TABLE versions(id INTEGER PRIMARY KEY, skill INTEGER NOT NULL, version TEXT NOT NULL,"
    " content_hash TEXT NOT NULL, status INTEGER NOT NULL, previous INTEGER,"
    " changed_at INTEGER NOT NULL, changed_by TEXT, body INTEGER, source TEXT, before INTEGER);",
};

/* All versions of the skill with this id. */
#define CHAIN(id) \
    "WITH RECURSIVE chain(id) AS (SELECT latest FROM skills WHERE id = " id " UNION ALL" \
    " SELECT v.before FROM chain c JOIN versions v ON v.id = c.id WHERE v.before IS NOT NULL) "
#define OF_CHAIN " FROM chain c CROSS JOIN versions v ON v.id = c.id"
#define BODY_OF(v) "(SELECT b.source FROM versions b WHERE b.id = ifnull(" v ".body, " v ".id))"

static const char *const statements[N_SQL_STATEMENTS] = {
    CATALOG_STATEMENTS("(SELECT v.source FROM versions v WHERE v.id = s.body)"),
    [CAT_DROP] = "UPDATE sizes SET bytes = max(bytes - (" CHAIN(
        "?1") "SELECT sum(256 + ifnull(length(CAST(v.source AS BLOB)), 0))" OF_CHAIN
              "), 0) WHERE tenant = ?5;" CHAIN(
                  "?1") "DELETE FROM versions WHERE id IN (SELECT id FROM chain);" CATALOG_DROP,
    [SQL_VERSION_NEW] = "INSERT INTO versions(skill, version, content_hash, status, previous,"
                        " changed_at, changed_by, body, source, before)"
                        " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9,"
                        " (SELECT latest FROM skills WHERE id = ?1));"
                        "UPDATE skills SET latest = last_insert_rowid(),"
                        " body = ifnull(?8, last_insert_rowid()) WHERE id = ?1;" CATALOG_STORE_SET(
                            "?10", "?11", "?12") ";" CATALOG_GROW("?13", "?14"),
    [SQL_OLD] = CHAIN("(SELECT s.id FROM stores t JOIN skills s ON s.store = t.id WHERE t.tenant ="
                      " ?1 AND t.ns = ?2 AND s.name = ?3)") "SELECT v.content_hash, " BODY_OF("v")
        OF_CHAIN " WHERE v.version = ?4 ORDER BY v.id DESC LIMIT 1",
    [SQL_VERSIONS] = CHAIN("?1") "SELECT v.id, v.content_hash, v.status, v.previous, v.changed_at,"
                                 " v.changed_by" OF_CHAIN " WHERE v.id > ?2 ORDER BY v.id",
    [SQL_BODIES] =
        "SELECT s.name, (SELECT b.source FROM versions b WHERE b.id = s.body) FROM stores"
        " t JOIN skills s ON s.store = t.id WHERE t.tenant = ?1 AND t.ns = ?2 AND s.name"
        " > ?3 ORDER BY s.name LIMIT 1024",
};

static const struct sqldb_schema schema = {
    .application_id = 0x62736b6c, /* "bskl" */
    .migrations = migrations,
    .n_migrations = ARRAY_LEN(migrations),
    .statements = statements,
    .n_statements = N_SQL_STATEMENTS,
    .cache_kib = 8192,
};

/* Opened once here, so that an unusable file is reported at start-up. */
void *skill_sqlite_new(const struct skill_backend_config *cfg, char *ret_why)
{
    struct sqldb *s = skill_sqlite_connect((void *)(uintptr_t)cfg->path, STR(""), true, ret_why);

    if (s == NULL)
        return NULL;
    bool told = cfg->on_size == NULL || catalog_sizes(s, cfg->on_size, cfg->on_size_ctx);
    if (!told)
        snprintf(ret_why, 256, "%s", s->why);
    sqldb_close(s);
    return told ? xstrdup(cfg->path) : NULL;
}

void *skill_sqlite_connect(void *ctx, struct str key, bool writer, char *ret_why)
{
    struct sqldb_sqlite *db =
        sqldb_sqlite_open(ctx, &schema, writer ? SQLDB_WRITE : SQLDB_READ, ret_why);

    return db != NULL ? &db->base : NULL;
}

/* ---- migrate.h ---- */

static const char *const migrate_statements[N_SKILLS_STATEMENTS] = {
    "SELECT id, tenant, ns, sum, n FROM stores",
    "INSERT INTO stores(id, tenant, ns, sum, n) VALUES(?1, ?2, ?3, ?4, ?5)",
    "SELECT count(*) FROM stores",
    "SELECT id, store, name, status, type, author, updated_at, created_at, status_changed_at,"
    " content_hash, description, said_type, bag, meta, body, latest FROM skills",
    "INSERT INTO skills(id, store, name, status, type, author, updated_at, created_at,"
    " status_changed_at, content_hash, description, said_type, bag, meta, body, latest)"
    " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
    "SELECT count(*) FROM skills",
    "SELECT store, tag, skill FROM tags",
    "INSERT INTO tags(store, tag, skill) VALUES(?1, ?2, ?3)",
    "SELECT count(*) FROM tags",
    "SELECT id, skill, version, content_hash, status, previous, changed_at, changed_by, body,"
    " source, before FROM versions",
    "INSERT INTO versions(id, skill, version, content_hash, status, previous, changed_at,"
    " changed_by, body, source, before) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    "SELECT count(*) FROM versions",
    "SELECT tenant, bytes FROM sizes",
    "INSERT INTO sizes(tenant, bytes) VALUES(?1, ?2)",
    "SELECT count(*) FROM sizes",
    TRANSFER_SQLITE_REST,
    [SKILLS_FINISH] = "SELECT 1",
};

struct sqldb *skills_migrate_file(const char *path, char *ret_why)
{
    static struct sqldb_schema migrated;
    struct sqldb_sqlite *db;

    migrated = schema;
    migrated.statements = migrate_statements;
    migrated.n_statements = N_SKILLS_STATEMENTS;
    db = sqldb_sqlite_open(path, &migrated, SQLDB_WRITE, ret_why);
    return db != NULL ? &db->base : NULL;
}
