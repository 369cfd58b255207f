/* statements.c - all SQL but the tables: prepared once per line. */
#include "store/postgres/impl.h"

#define ROW "id, box, kind, flags, at_ms, attempts, parked, octet_length(frame)"

/* Rows in the order of @n until the bytes before them exceed the bound: one more than fits comes
 * too, so that whoever reads knows that there is one. */
#define BOUNDED(from, bound) \
    "SELECT * FROM (SELECT *, coalesce(sum(bytes) OVER (ORDER BY n ROWS BETWEEN UNBOUNDED " \
    "PRECEDING AND 1 PRECEDING), 0) AS before FROM (" from ") q) p WHERE before <= " bound \
    " ORDER BY n"

static const struct {
    const char *name, *sql;
} table[N_STATEMENTS] = {
    [PG_BEGIN] = {"begin", "BEGIN ISOLATION LEVEL READ COMMITTED"},
    [PG_COMMIT] = {"commit", "COMMIT"},
    [PG_ROLLBACK] = {"rollback", "ROLLBACK"},
    [PG_FATE] = {"fate", PG_FATE_MARK("$1::bigint", "$2::bigint")},
    /* The share lock makes another node wait for the lease until this transaction has ended. */
    [PG_GUARD] = {"guard",
                  "SELECT 1 FROM lease WHERE name = $1 AND epoch = $2::bigint AND owner <> "
                  "'' AND until > clock_timestamp() FOR SHARE"},
    /* A retry finds its row, and changes nothing. */
    [PG_APPEND] = {"append", "INSERT INTO mail (id, box, kind, flags, at_ms, frame) SELECT * FROM "
                             "unnest($1::bigint[], $2::int[], $3::int[], $4::int[], $5::bigint[], "
                             "$6::bytea[]) ON CONFLICT (id) DO NOTHING"},
    [PG_SEEN] = {"seen", "INSERT INTO seen (at_ms, keys) VALUES ($1, $2)"},
    [PG_ACK] = {"ack", "DELETE FROM mail WHERE id = ANY($1::bigint[])"},
    [PG_MARK] = {"mark", "UPDATE mail SET attempts = $2, parked = $3, "
                         "frame = coalesce($4, frame) WHERE id = $1"},
    /* Each record once: it cannot be put twice in one statement. */
    [PG_KV_SET] = {"kv_set",
                   "WITH gone AS (DELETE FROM kv USING unnest($4::bytea[], $5::bytea[]) AS d(ns, "
                   "key) WHERE kv.ns = d.ns AND kv.key = d.key), put AS (INSERT INTO kv SELECT * "
                   "FROM unnest($1::bytea[], $2::bytea[], $3::bytea[]) AS p(ns, key, value) ORDER "
                   "BY ns, key ON CONFLICT (ns, key) DO UPDATE SET value = excluded.value) SELECT "
                   "-1"},
    [PG_KV_TRY] = {"kv_try", "SELECT kv_try_1($1::int[], $2::bytea[], $3::bytea[], $4::bytea[])"},
    [PG_ERASE] =
        {"erase",
         "WITH picked AS (SELECT key FROM kv WHERE ns = $1 AND key >= $2 AND ($3::bytea IS NULL OR "
         "key < $3) ORDER BY key LIMIT $4::bigint + 1), gone AS (DELETE FROM kv WHERE ns = $1 AND "
         "key = "
         "ANY(ARRAY(SELECT key FROM picked ORDER BY key LIMIT $4)) RETURNING 1) "
         "SELECT (SELECT count(*) FROM gone), (SELECT count(*) > $4 FROM picked)"},
    [PG_LEASE] = {"lease", "SELECT * FROM lease_1($1, $2, $3, $4, $5)"},
    [PG_FORGET] = {"forget",
                   "WITH gone AS (DELETE FROM seen WHERE ctid = ANY(ARRAY(SELECT ctid FROM seen "
                   "WHERE at_ms < $1 LIMIT $2)) RETURNING 1) SELECT count(*) FROM gone"},
    [PG_SIZE] = {"size", "SELECT pg_database_size(current_database())"},

    [PG_FETCH] = {"fetch", BOUNDED("SELECT " ROW " AS bytes, frame, w.n FROM unnest($1::bigint[]) "
                                   "WITH ORDINALITY AS w(id, n) JOIN mail USING (id)",
                                   "$2")},
    [PG_LIST] = {"list", BOUNDED("SELECT " ROW " AS whole, CASE WHEN $4 THEN frame END AS frame, "
                                 "id AS n, CASE WHEN $4 THEN octet_length(frame) ELSE 0 END AS "
                                 "bytes FROM mail WHERE box = $1 AND id > $2 ORDER BY id LIMIT $3",
                                 "$5")},
    [PG_SCAN_UP] = {"scan_up",
                    BOUNDED("SELECT key, CASE WHEN $5 THEN value END AS value, key AS n, "
                            "octet_length(key) + CASE WHEN $5 THEN octet_length(value) ELSE 0 END "
                            "AS bytes FROM kv WHERE ns = $1 AND key >= $2 AND ($3::bytea IS NULL "
                            "OR key < $3) ORDER BY key LIMIT $4",
                            "$6")},
    [PG_SCAN_DOWN] =
        {"scan_down",
         "SELECT * FROM (SELECT *, coalesce(sum(bytes) OVER (ORDER BY n DESC ROWS BETWEEN "
         "UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before FROM (SELECT key, CASE WHEN $5 THEN "
         "value END AS value, key AS n, octet_length(key) + CASE WHEN $5 THEN octet_length(value) "
         "ELSE 0 END AS bytes FROM kv WHERE ns = $1 AND key >= $2 AND ($3::bytea IS NULL OR key < "
         "$3) ORDER BY key DESC LIMIT $4) q) p WHERE before <= $6 ORDER BY n DESC"},
    [PG_LOAD_ROWS] = {"load_rows", "SELECT " ROW ", CASE WHEN flags & 2 <> 0 THEN frame END"
                                   " FROM mail ORDER BY id"},
    [PG_LOAD_RECORDS] = {"load_records", "SELECT key, value FROM kv WHERE ns = $1 AND key >= $2"
                                         " AND ($3 OR key < $4) ORDER BY key"},
    [PG_LOAD_KEYS] = {"load_keys", "SELECT at_ms, keys FROM seen WHERE at_ms >= $1"},
};

const char *pg_statement_name(enum pg_statement s)
{
    return table[s].name;
}

static bool read_answers(struct pg_line *l, int n)
{
    bool ok = true;

    for (int i = 0; i < n; i++) {
        PGresult *r;
        enum line_end e = line_answer(l, &r);
        if (r != NULL)
            PQclear(r);
        ok &= e == LINE_OK;
        if (e == LINE_LOST)
            return false;
    }
    return line_done(l) == LINE_OK && ok;
}

/* All at once, as a pipeline, whatever the line is for. */
bool pg_statements_prepare(struct pg_line *l, enum line_use use)
{
    bool writer = use == LINE_WRITES;
    int from = writer ? 0 : PG_FETCH, to = writer ? PG_FETCH : N_STATEMENTS;

    if (PQenterPipelineMode(l->pg) != 1)
        return false;
    for (int s = from; s < to; s++)
        if (!PQsendPrepare(l->pg, table[s].name, table[s].sql, 0, NULL))
            return false;
    line_send(l);
    if (!read_answers(l, to - from))
        return false;
    return writer || PQexitPipelineMode(l->pg) == 1;
}
