/* migrate.c - a PostgreSQL as one end of a migration.  (store/migrate.h has the contract.) */
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/mem.h"
#include "store/migrate.h"
#include "store/postgres/impl.h"
#include "store/postgres/sqldb.h"

#define ROWS "DECLARE rows NO SCROLL CURSOR FOR "

static const char *const statements[N_MIGRATE_STATEMENTS] = {
    /* records */
    ROWS "SELECT ns, key, value FROM kv ORDER BY ns, key",
    "INSERT INTO kv SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[])",
    "SELECT count(*) FROM kv",
    /* messages */
    ROWS "SELECT id, box, kind, flags, at_ms, attempts, parked, frame FROM mail ORDER BY id",
    "INSERT INTO mail (id, box, kind, flags, at_ms, attempts, parked, frame) SELECT * FROM "
    "unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], "
    "$7::bytea[], $8::bytea[])",
    "SELECT count(*) FROM mail",
    /* deduplication keys */
    ROWS "SELECT keys, at_ms FROM seen",
    "INSERT INTO seen (keys, at_ms) SELECT * FROM unnest($1::bytea[], $2::bigint[])",
    "SELECT count(*) FROM seen",
    TRANSFER_POSTGRES_REST,
    [MIGRATE_IDENTITY] = "SELECT decode(value, 'hex'), (SELECT last_value FROM boot) FROM meta "
                         "WHERE name = 'dedup_key'",
    [MIGRATE_FINISH] = "WITH k AS (UPDATE meta SET value = encode($2, 'hex') WHERE name = "
                       "'dedup_key'), m AS (DELETE FROM meta WHERE name = 'moving') SELECT "
                       "setval('boot', greatest(nextval('boot'), $1::bigint))",
    [MIGRATE_CLEAR] = "DELETE FROM kv", /* the source has a salt of its own */
    [MIGRATE_IS_USED] = "SELECT 1 WHERE EXISTS (SELECT FROM kv WHERE ns <> 'seal' OR key <> "
                        "'salt') OR EXISTS (SELECT FROM mail) OR EXISTS (SELECT FROM seen)",
    [MIGRATE_MARK] = "SELECT convert_to(value, 'UTF8') FROM meta WHERE name = 'moving'",
    [MIGRATE_MARK_SET] = "INSERT INTO meta VALUES ('moving', convert_from($1, 'UTF8')) ON CONFLICT "
                         "(name) DO UPDATE SET value = excluded.value",
    [MIGRATE_LEASED] =
        "SELECT 1 FROM lease WHERE owner <> '' AND until > clock_timestamp() LIMIT 1",
};

static const struct pg_sqldb_schema schema = {.statements = statements,
                                              .n_statements = N_MIGRATE_STATEMENTS,
                                              .lock = 7094702833};

/* Makes the tables, as a store does that is opened. */
static bool prepare(const char *url, char *ret_why)
{
    struct store_postgres st = {.moving = true};

    if (!pq_late_load(ret_why))
        return false;
    bool ok = line_open(&st.loader, url, LINE_PLAIN) ||
              bh_why(ret_why, "PostgreSQL cannot be reached: %.180s", st.loader.problem);
    ok = ok && pg_schema_prepare(&st, ret_why);
    line_close(&st.loader);
    return ok;
}

struct sqldb *migrate_open_server(const char *url, char *ret_why)
{
    if (!prepare(url, ret_why))
        return NULL;
    struct sqldb *s = pg_sqldb_new(url, &schema);
    const unsigned patience = N_MIGRATED * TRANSFER_STATEMENTS + TRANSFER_PATIENCE;
    bool ok = sqldb_begin(s, false) && sqldb_ask(s, patience) && sqldb_ask(s, MIGRATE_LEASED);
    bool used = ok && sqldb_next(s);
    if (ok && sqldb_commit(s) && !used)
        return s;
    if (used)
        snprintf(ret_why, 256,
                 "a server uses this PostgreSQL: stop all nodes first (one that was killed counts "
                 "until its lease has run out)");
    else
        snprintf(ret_why, 256, "PostgreSQL: %.160s", s->why);
    sqldb_close(s);
    return NULL;
}
