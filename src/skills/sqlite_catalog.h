/* sqlite_catalog.h - the tables and statements of catalog.h in SQLite, for sqlite_backend.c and
 * sqlite_index.c.  Private to this folder. */
#pragma once
#include "skills/catalog.h"
#include "store/sqlite/sqldb.h"

/* updated_at is not in the index of the names: it changes with every write, and each write would
 * dirty another page. */
#define CATALOG_SQL \
    "CREATE TABLE stores(id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, ns TEXT NOT NULL," \
    " sum BLOB NOT NULL, n INTEGER NOT NULL, UNIQUE(tenant, ns));" \
    "CREATE TABLE skills(id INTEGER PRIMARY KEY, store INTEGER NOT NULL, name TEXT NOT NULL," \
    " status INTEGER NOT NULL, type TEXT NOT NULL, author TEXT, updated_at INTEGER NOT NULL," \
    " created_at INTEGER NOT NULL, status_changed_at INTEGER NOT NULL," \
    " content_hash TEXT NOT NULL, description TEXT, said_type TEXT, bag TEXT, meta TEXT NOT NULL," \
    " body INTEGER NOT NULL DEFAULT 0);" \
    "CREATE UNIQUE INDEX skills_scan ON skills(store, name, status, type, author);" \
    "CREATE TABLE tags(store INTEGER NOT NULL, tag TEXT NOT NULL, skill INTEGER NOT NULL," \
    " PRIMARY KEY(store, tag, skill)) WITHOUT ROWID;" \
    "CREATE INDEX tags_skill ON tags(skill);" \
    "CREATE TABLE sizes(tenant TEXT PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID;"

/* Each a part of a statement: the store's token, and bytes more or fewer of a tenant. */
#define CATALOG_STORE_SET(id, sum, n) "UPDATE stores SET sum = " sum ", n = " n " WHERE id = " id
#define CATALOG_GROW(tenant, bytes) \
    "INSERT INTO sizes VALUES(" tenant ", max(" bytes ", 0)) ON CONFLICT(tenant) DO UPDATE SET" \
    " bytes = max(bytes + " bytes ", 0)"
#define CATALOG_DROP \
    "DELETE FROM tags WHERE skill = ?1; DELETE FROM skills WHERE id = ?1;" CATALOG_STORE_SET("?2", \
                                                                                             "?3", \
                                                                                             "?4")

#define CATALOG_ROW "name, meta, content_hash, status, created_at, updated_at, status_changed_at"
#define CATALOG_SET_TAIL \
    " updated_at = ?6, created_at = ?7, status_changed_at = ?8, content_hash = ?9," \
    " description = ?10, said_type = ?11, bag = ?12, meta = ?13 WHERE store = ?1 AND name = ?2;" \
    "DELETE FROM tags WHERE skill = (SELECT id FROM skills WHERE store = ?1 AND name = " \
    "?2);" CATALOG_TAGS
#define CATALOG_TAGS \
    "INSERT OR IGNORE INTO tags SELECT ?1, w.value, s.id FROM json_each(?14) w, skills s WHERE" \
    " s.store = ?1 AND s.name = ?2;" \
    "SELECT id FROM skills WHERE store = ?1 AND name = ?2"
#define CATALOG_FILTERS \
    " FROM skills INDEXED BY skills_scan WHERE store = ?1 AND name > ?2 AND" \
    " (?3 IS NULL OR (1 << status) & ?3) AND (?4 IS NULL OR type = ?4) AND" \
    " (?5 IS NULL OR author = ?5) AND (?6 IS NULL OR updated_at >= ?6) AND NOT EXISTS(SELECT 1" \
    " FROM json_each(?7) w WHERE NOT EXISTS(SELECT 1 FROM tags t WHERE t.store = ?1 AND t.tag =" \
    " w.value AND t.skill = skills.id)) ORDER BY name LIMIT ?8"

/* All but CAT_DROP; @source: an expression for the body of the skill s. */
#define CATALOG_STATEMENTS(source) \
    [CAT_STORE] = "SELECT id, sum, n FROM stores WHERE tenant = ?1 AND ns = ?2", \
    [CAT_STORE_NEW] = "INSERT INTO stores(tenant, ns, sum, n) VALUES(?1, ?2, ?3, 0) RETURNING id", \
    [CAT_GET] = "SELECT s.id, s.body, " CATALOG_ROW ", author, bag, description, said_type," \
                " CASE WHEN ?4 THEN " source " END, type, t.id, t.sum, t.n FROM stores t JOIN" \
                " skills s ON s.store = t.id WHERE t.tenant = ?1 AND t.ns = ?2 AND s.name = ?3", \
    [CAT_NEW] = "INSERT INTO skills(store, name, status, type, author, updated_at, created_at," \
                " status_changed_at, content_hash, description, said_type, bag, meta)" \
                " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13);" CATALOG_TAGS, \
    [CAT_SET] = "UPDATE skills SET status = ?3, type = ?4, author = ?5," CATALOG_SET_TAIL, \
    [CAT_SET_REST] = "UPDATE skills SET" CATALOG_SET_TAIL, \
    [CAT_SIZE] = "SELECT bytes FROM sizes WHERE tenant = ?1", \
    [CAT_SIZES] = "SELECT tenant, bytes FROM sizes", \
    [CAT_NAMESPACES] = "SELECT ns FROM stores WHERE tenant = ?1", \
    [CAT_LIST] = "SELECT " CATALOG_ROW CATALOG_FILTERS " OFFSET ?9", \
    [CAT_NAMES] = "SELECT name, id" CATALOG_FILTERS, \
    [CAT_PICK] = \
        "SELECT " CATALOG_ROW " FROM skills WHERE id IN (SELECT value FROM json_each(?1))" \
        " ORDER BY name"
