/* sqlite_catalog.h - the list of skills in SQLite: names, metadata, tags, and the change token.
 *
 * The sqlite backend keeps its histories in the same database.  The filesystem backend uses the
 * catalog as an index that can be rebuilt from the files. */
#pragma once
#include "skills/backend.h"
#include "store/sqlite/side.h"

#define CATALOG_SQL \
    "CREATE TABLE stores(id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, ns TEXT NOT NULL," \
    " sum BLOB NOT NULL, n INTEGER NOT NULL, UNIQUE(tenant, ns));" \
    "CREATE TABLE skills(id INTEGER PRIMARY KEY, store INTEGER NOT NULL, name TEXT NOT NULL," \
    " status INTEGER NOT NULL, type TEXT NOT NULL, author TEXT, updated_at INTEGER NOT NULL," \
    " created_at INTEGER NOT NULL, status_changed_at INTEGER NOT NULL," \
    " content_hash TEXT NOT NULL, description TEXT, said_type TEXT, bag TEXT, meta TEXT NOT " \
    "NULL);" \
    "CREATE UNIQUE INDEX skills_scan ON skills(store, name, status, type, author, updated_at);" \
    "CREATE TABLE tags(store INTEGER NOT NULL, tag TEXT NOT NULL, skill INTEGER NOT NULL," \
    " PRIMARY KEY(store, tag, skill)) WITHOUT ROWID;" \
    "CREATE INDEX tags_skill ON tags(skill);"
/* Bytes per tenant, which count against limits.skill_bytes. */
#define CATALOG_SIZES_SQL \
    "CREATE TABLE sizes(tenant TEXT PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID;"

/* Drops updated_at from the index: it changes with every write.  Rewriting a skill then dirties one
 * page of the list, not two. */
#define CATALOG_LEAN_SQL \
    "DROP INDEX skills_scan;" \
    "CREATE UNIQUE INDEX skills_scan ON skills(store, name, status, type, author);"

#define CATALOG_STATEMENTS \
    [CAT_STORE] = "SELECT id, sum, n FROM stores WHERE tenant = ? AND ns = ?", \
    [CAT_STORE_NEW] = "INSERT INTO stores(tenant, ns, sum, n) VALUES(?, ?, zeroblob(32), 0)", \
    [CAT_STORE_SET] = "UPDATE stores SET sum = ?2, n = ?3 WHERE id = ?1", \
    [CAT_GET] = "SELECT id, name, meta, content_hash, status, created_at, updated_at," \
                " status_changed_at, author, bag, description, said_type, type FROM skills" \
                " WHERE store = ? AND name = ?", \
    [CAT_NEW] = "INSERT INTO skills(store, name, status, type, author, updated_at, created_at," \
                " status_changed_at, content_hash, description, said_type, bag, meta)" \
                " VALUES(?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)", \
    [CAT_SET] = "UPDATE skills SET status = ?4, type = ?5, author = ?6, updated_at = ?7," \
                " created_at = ?8, status_changed_at = ?9, content_hash = ?10," \
                " description = ?11, said_type = ?12, bag = ?13, meta = ?14 WHERE id = ?1", \
    [CAT_SET_REST] = "UPDATE skills SET updated_at = ?7, created_at = ?8," \
                     " status_changed_at = ?9, content_hash = ?10, description = ?11," \
                     " said_type = ?12, bag = ?13, meta = ?14 WHERE id = ?1", \
    [CAT_DROP] = "DELETE FROM skills WHERE id = ?", \
    [CAT_TAG_ADD] = "INSERT OR IGNORE INTO tags(store, tag, skill) VALUES(?, ?, ?)", \
    [CAT_TAG_DROP] = "DELETE FROM tags WHERE skill = ?", \
    [CAT_SIZE] = "SELECT bytes FROM sizes WHERE tenant = ?", \
    [CAT_SIZE_GROW] = "INSERT INTO sizes VALUES(?1, max(?2, 0)) ON CONFLICT(tenant)" \
                      " DO UPDATE SET bytes = max(bytes + ?2, 0)", \
    [CAT_SIZES] = "SELECT tenant, bytes FROM sizes", \
    [CAT_NAMESPACES] = "SELECT ns FROM stores WHERE tenant = ?"

enum {
    CAT_STORE,
    CAT_STORE_NEW,
    CAT_STORE_SET,
    CAT_GET,
    CAT_NEW,
    CAT_SET,
    CAT_SET_REST, /* updates only columns without an index */
    CAT_DROP,
    CAT_TAG_ADD,
    CAT_TAG_DROP,
    CAT_SIZE,
    CAT_SIZE_GROW,
    CAT_SIZES,
    CAT_NAMESPACES,
    N_CAT_STATEMENTS
};

struct catalog_store {
    int64_t id;
    struct skill_sum sum;
    uint64_t n;
};

struct catalog_entry { /* borrowed from the arena */
    int64_t id;
    struct catalog_store store; /* the store that has the skill */
    struct skill_row row;
    struct skill_head as_head; /* without its source */
    struct str listed_type;    /* the type that queries filter by */
};

/* Registers the SQL functions of the queries. */
bool catalog_prepare(struct side_db *db);
enum skill_found catalog_get(struct side_db *db, const struct skill_where *at, struct str name,
                             struct arena *arena, struct catalog_entry *ret_e);
/* Inserts or replaces a skill, and updates tags and token.  @ret_id: the row of the skill;
 * @ret_same: the skill existed with the same body. */
bool catalog_put(struct side_db *db, const struct skill_where *at, const struct skill_next *n,
                 int64_t *ret_id, bool *ret_same);
bool catalog_drop(struct side_db *db, const struct skill_where *at, const struct catalog_entry *e);
/* Bytes of all skills of a tenant, in all namespaces; catalog_grow() adds @grows to it. */
bool catalog_size(struct side_db *db, struct str tenant, uint64_t *ret_bytes);
bool catalog_grow(struct side_db *db, struct str tenant, int64_t grows);
bool catalog_namespaces(struct side_db *db, struct str tenant, skill_ns_cb *cb, void *ctx);
bool catalog_sizes(struct side_db *db, skill_size_cb *cb, void *ctx); /* of every tenant */
enum skill_found catalog_list(struct side_db *db, const struct skill_where *at,
                              const struct skill_query *q, skill_row_cb *cb, void *ctx);
enum skill_found catalog_token(struct side_db *db, const struct skill_where *at,
                               char ret_token[SKILL_TOKEN_BYTES]);
