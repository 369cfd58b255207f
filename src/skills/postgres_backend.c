/* postgres_backend.c - skills in a PostgreSQL that several nodes share: tables, statements,
 * connections.
 *
 *      skill_store    tenant, namespace: the sum and the number of its skills
 *      skill          one row per name: metadata, the newest version
 *      skill_version  one row per write, oldest first
 *      skill_size     bytes per tenant, for limits.skill_bytes
 *
 * A writer holds one lock until its commit, across all nodes, so body, history and token change
 * together.  Reads use a snapshot and never wait for the lock. */
#include <stdio.h>
#include "base/mem.h"
#include "skills/migrate.h"
#include "skills/sql_backend.h"
#include "store/postgres/sqldb.h"

#define SKILLS_LOCK 7094702831
#define BODY_BYTES "4194304" /* of bodies in one result, about */

static const char *const migrations[] = {
    "CREATE TABLE skill_store (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tenant bytea "
    "NOT NULL, ns bytea NOT NULL, sum bytea NOT NULL, n bigint NOT NULL, UNIQUE (tenant, ns)) WITH "
    "(fillfactor = 50);"
    "CREATE TABLE skill (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, store bigint NOT "
    "NULL, name bytea NOT NULL, status int NOT NULL, type bytea NOT NULL, author bytea, updated_at "
    "bigint NOT NULL, created_at bigint NOT NULL, status_changed_at bigint NOT NULL, content_hash "
    "bytea NOT NULL, description bytea, said_type bytea, bag bytea, meta bytea NOT NULL, tags "
    "bytea[] NOT NULL, bytes_at bigint NOT NULL, UNIQUE (store, name)) WITH (fillfactor = 70);"
    "CREATE TABLE skill_version (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, skill bigint "
    "NOT NULL, version bytea NOT NULL, content_hash bytea NOT NULL, status int NOT NULL, previous "
    "int, changed_at bigint NOT NULL, changed_by bytea, body bigint, source bytea);"
    "CREATE INDEX skill_version_of ON skill_version (skill, id);"
    "CREATE TABLE skill_size (tenant bytea PRIMARY KEY, bytes bigint NOT NULL) WITH (fillfactor = "
    "50);",
};

#define OF_STORE "skill_store t JOIN skill s ON s.store = t.id WHERE t.tenant = $1 AND t.ns = $2"
#define META "name, meta, content_hash, status, created_at, updated_at, status_changed_at"
#define FILTERS \
    " store = $1 AND name > $2 AND ($3::bigint IS NULL OR (1 << status) & $3::bigint::int <> 0) " \
    "AND ($4::bytea IS NULL OR type = $4) AND ($5::bytea IS NULL OR author = $5) AND ($6::bigint " \
    "IS NULL OR updated_at >= $6) AND ($7::bytea[] = '{}' OR tags @> $7) ORDER BY name LIMIT $8"

#define SET \
    "UPDATE skill SET status = $3::bigint, type = $4, author = $5, updated_at = $6, created_at = " \
    "$7, status_changed_at = $8, content_hash = $9, description = $10, said_type = $11, bag = " \
    "$12, meta = $13, tags = $14 WHERE store = $1 AND name = $2 RETURNING id"

static const char *const statements[N_SQL_STATEMENTS] = {
    [CAT_STORE] = "SELECT id, sum, n FROM skill_store WHERE tenant = $1 AND ns = $2",
    [CAT_STORE_NEW] = "INSERT INTO skill_store (tenant, ns, sum, n) VALUES ($1, $2, $3, 0) "
                      "RETURNING id",
    [CAT_GET] = "SELECT s.id, s.bytes_at, " META ", author, bag, description, said_type, CASE "
                "WHEN $4::bigint <> 0 THEN (SELECT source FROM skill_version v WHERE v.id = "
                "s.bytes_at) END, type, t.id, t.sum, t.n FROM " OF_STORE " AND s.name = $3",
    [SQL_OLD] = "SELECT v.content_hash, (SELECT source FROM skill_version b WHERE b.id = "
                "coalesce(v.body, v.id)) FROM skill_version v WHERE v.skill = (SELECT s.id "
                "FROM " OF_STORE " AND s.name = $3) AND v.version = $4 ORDER BY v.id DESC "
                "LIMIT 1",
    [SQL_VERSIONS] = "SELECT id, content_hash, status, previous, changed_at, changed_by FROM "
                     "skill_version WHERE skill = $1 AND id > $2 ORDER BY id LIMIT 256",
    [CAT_NEW] =
        "INSERT INTO skill (store, name, status, type, author, updated_at, created_at, "
        "status_changed_at, content_hash, description, said_type, bag, meta, tags, bytes_at) "
        "VALUES ($1, $2, $3::bigint, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, 0) RETURNING "
        "id",
    [CAT_SET] = SET,
    [CAT_SET_REST] = SET,
    [SQL_VERSION_NEW] =
        "WITH v AS (INSERT INTO skill_version (skill, version, content_hash, status, previous, "
        "changed_at, changed_by, body, source) VALUES ($1, $2, $3, $4::bigint, $5::bigint, $6, $7, "
        "$8, $9) RETURNING id), s AS (UPDATE skill SET bytes_at = coalesce($8, (SELECT id FROM v)) "
        "WHERE id = $1), t AS (UPDATE skill_store SET sum = $11, n = $12 WHERE id = $10) INSERT "
        "INTO skill_size AS z VALUES ($13, $14::bigint) ON CONFLICT (tenant) DO UPDATE SET bytes = "
        "z.bytes + excluded.bytes",
    [CAT_DROP] =
        "WITH gone AS (DELETE FROM skill_version WHERE skill = $1 RETURNING 256 + "
        "coalesce(octet_length(source), 0) AS bytes), s AS (DELETE FROM skill WHERE id = $1), t AS "
        "(UPDATE skill_store SET sum = $3, n = $4 WHERE id = $2) UPDATE skill_size SET bytes = "
        "greatest(bytes - (SELECT coalesce(sum(bytes), 0) FROM gone), 0) WHERE tenant = $5",
    [CAT_SIZE] = "SELECT bytes FROM skill_size WHERE tenant = $1",
    [CAT_SIZES] = "SELECT tenant, bytes FROM skill_size",
    [CAT_NAMESPACES] = "SELECT ns FROM skill_store WHERE tenant = $1 ORDER BY ns",
    [CAT_LIST] = "SELECT " META " FROM skill WHERE" FILTERS " OFFSET $9",
    [CAT_NAMES] = "SELECT name, id FROM skill WHERE" FILTERS,
    [CAT_PICK] = "SELECT " META " FROM skill WHERE id = ANY($1::bigint[]) ORDER BY name",
    [SQL_BODIES] =
        "SELECT name, source FROM (SELECT s.name, v.source, sum(octet_length(v.source)) OVER "
        "(ORDER BY s.name) - octet_length(v.source) AS before FROM (SELECT s.name, s.bytes_at "
        "FROM " OF_STORE
        " AND s.name > $3 ORDER BY s.name LIMIT 1024) s JOIN skill_version v ON v.id = "
        "s.bytes_at) q WHERE before < " BODY_BYTES " ORDER BY name",
};

static const struct pg_sqldb_schema schema = {
    .name = "skills",
    .migrations = migrations,
    .n_migrations = ARRAY_LEN(migrations),
    .oldest = 1,
    .statements = statements,
    .n_statements = N_SQL_STATEMENTS,
    .lock = SKILLS_LOCK,
};

void *skill_postgres_new(const struct skill_backend_config *cfg, char *ret_why)
{
    if (!pg_sqldb_prepare(cfg->url, &schema, ret_why))
        return NULL;
    struct sqldb *s = pg_sqldb_new(cfg->url, &schema);
    bool told = cfg->on_size == NULL ||
                (sqldb_begin(s, false) && catalog_sizes(s, cfg->on_size, cfg->on_size_ctx));
    if (!told)
        snprintf(ret_why, 256, "PostgreSQL, looking at the skills: %.160s", s->why);
    sqldb_close(s);
    return told ? xstrdup(cfg->url) : NULL;
}

void *skill_postgres_connect(void *ctx, struct str key, bool writer, char *ret_why)
{
    return pg_sqldb_new(ctx, &schema);
}

/* ---- migrate.h ---- */

#define ROWS "DECLARE rows NO SCROLL CURSOR FOR "
#define NO_NULL(column) "nullif(" column ", -9223372036854775808)" /* TRANSFER_NULL */
#define LAST_OF(table) \
    "setval(pg_get_serial_sequence('" table "', 'id'), (SELECT greatest(max(id), 1) FROM " table \
    "))"

static const char *const migrate_statements[N_SKILLS_STATEMENTS] = {
    ROWS "SELECT id, tenant, ns, sum, n FROM skill_store",
    "INSERT INTO skill_store (id, tenant, ns, sum, n) OVERRIDING SYSTEM VALUE SELECT * FROM "
    "unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bigint[])",
    "SELECT count(*) FROM skill_store",
    ROWS "SELECT id, store, name, status, type, author, updated_at, created_at, status_changed_at, "
         "content_hash, description, said_type, bag, meta, bytes_at, (SELECT max(id) FROM "
         "skill_version WHERE skill = skill.id) FROM skill",
    "INSERT INTO skill (id, store, name, status, type, author, updated_at, created_at, "
    "status_changed_at, content_hash, description, said_type, bag, meta, bytes_at, tags) "
    "OVERRIDING SYSTEM VALUE SELECT a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, '{}' FROM "
    "unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bytea[], $6::bytea[], "
    "$7::bigint[], $8::bigint[], $9::bigint[], $10::bytea[], $11::bytea[], $12::bytea[], "
    "$13::bytea[], $14::bytea[], $15::bigint[], $16::bigint[]) AS u(a, b, c, d, e, f, g, h, i, j, "
    "k, l, m, n, o, p)",
    "SELECT count(*) FROM skill",
    ROWS "SELECT DISTINCT store, unnest(tags), id FROM skill",
    "UPDATE skill SET tags = tags || t.more FROM (SELECT skill, array_agg(tag) AS more FROM "
    "unnest($1::bigint[], $2::bytea[], $3::bigint[]) AS u(store, tag, skill) GROUP BY skill) t "
    "WHERE skill.id = t.skill",
    "SELECT count(*) FROM (SELECT DISTINCT id, unnest(tags) FROM skill) t",
    ROWS "SELECT id, skill, version, content_hash, status, previous, changed_at, changed_by, body, "
         "source, (SELECT max(id) FROM skill_version b WHERE b.skill = v.skill AND b.id < v.id) "
         "FROM skill_version v",
    "INSERT INTO skill_version (id, skill, version, content_hash, status, previous, changed_at, "
    "changed_by, body, source) OVERRIDING SYSTEM VALUE SELECT a, b, c, d, e, " NO_NULL(
        "f") ", g, h, " NO_NULL("i") ", j FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], "
                                     "$4::bytea[], $5::bigint[], $6::bigint[], $7::bigint[], "
                                     "$8::bytea[], $9::bigint[], $10::bytea[], $11::bigint[]) AS "
                                     "u(a, b, c, d, e, f, g, h, i, j, k)",
    "SELECT count(*) FROM skill_version",
    ROWS "SELECT tenant, bytes FROM skill_size",
    "INSERT INTO skill_size SELECT * FROM unnest($1::bytea[], $2::bigint[])",
    "SELECT count(*) FROM skill_size",
    TRANSFER_POSTGRES_REST,
    [SKILLS_FINISH] =
        "SELECT " LAST_OF("skill_store") ", " LAST_OF("skill") ", " LAST_OF("skill_version"),
};

struct sqldb *skills_migrate_server(const char *url, char *ret_why)
{
    static const struct pg_sqldb_schema migrated = {.statements = migrate_statements,
                                                    .n_statements = N_SKILLS_STATEMENTS,
                                                    .lock = SKILLS_LOCK};

    return pg_sqldb_prepare(url, &schema, ret_why) ? pg_sqldb_new(url, &migrated) : NULL;
}
