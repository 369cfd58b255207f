/* schema.c - tables and functions of the shared store, and the boot number of this start.
 *
 * Several nodes may start at once, of this version and of the previous one.  The first node creates
 * the missing tables and functions, under a lock.  A change of the schema is a new entry at the end
 * of migrations[].  Released entries never change, and a changed function gets a new name, so that
 * nodes of the previous version continue.  The row `oldest` of the table meta has the oldest schema
 * version whose programs may use the tables. */
#include "store/postgres/impl.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "base/crypto.h"

#define SCHEMA_MS 60000 /* to create the tables; other nodes wait for the lock meanwhile */
#define CLOCK_OFF_S 30
#define SCHEMA_OLDEST 1 /* the oldest version whose programs can use these tables */

/* 1: the first. */
static const char first[] =
    /* meta: facts about the whole; text is ASCII */
    "CREATE TABLE meta (name text PRIMARY KEY, value text NOT NULL);"
    "CREATE SEQUENCE boot;"
    "INSERT INTO meta VALUES ('dedup_key', replace(gen_random_uuid()::text, '-', ''));"
    "INSERT INTO meta VALUES ('cluster', replace(gen_random_uuid()::text, '-', ''));"
    /* id: boot << 40 | n; frames are rarely worth compressing.  No index on box: a start reads all
     * rows in the order of their ids, and everything later names ids. */
    "CREATE TABLE mail (id bigint PRIMARY KEY, box int NOT NULL, kind int NOT NULL, flags int NOT "
    "NULL, at_ms bigint NOT NULL, attempts int NOT NULL DEFAULT 0, parked bytea, frame bytea NOT "
    "NULL) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.05);"
    "ALTER TABLE mail ALTER COLUMN frame SET STORAGE EXTERNAL;"
    "CREATE TABLE seen (at_ms bigint NOT NULL, keys bytea NOT NULL);"
    "CREATE INDEX seen_at ON seen (at_ms);" PG_FATE_TABLE
    "CREATE TABLE kv (ns bytea NOT NULL, key bytea NOT NULL, value bytea NOT NULL, PRIMARY KEY "
    "(ns, key));"
    /* of the passphrase that the master key is made from (seal.h) */
    "INSERT INTO kv VALUES ('seal', 'salt', uuid_send(gen_random_uuid()));"
    "CREATE TABLE lease (name bytea PRIMARY KEY, owner bytea NOT NULL DEFAULT '', epoch bigint NOT "
    "NULL DEFAULT 0, until timestamptz NOT NULL DEFAULT '-infinity') WITH (fillfactor = 50);"

    /* Verbs as in enum store_kv_verb.  Returns -1, or the index of the first item that was refused;
     * the items before it were applied, and kv_try_1 rolls them back. */
    "CREATE FUNCTION kv_1(verbs int[], nss bytea[], keys bytea[], vals bytea[]) RETURNS int "
    "LANGUAGE plpgsql SET search_path = bellhop AS $f$ BEGIN "
    "FOR i IN 1 .. coalesce(array_length(verbs, 1), 0) LOOP "
    "  IF verbs[i] = 0 THEN "
    "    INSERT INTO kv VALUES (nss[i], keys[i], vals[i]) ON CONFLICT (ns, key) DO UPDATE SET "
    "value = excluded.value; "
    "  ELSIF verbs[i] = 1 THEN "
    "    INSERT INTO kv VALUES (nss[i], keys[i], vals[i]) ON CONFLICT (ns, key) DO NOTHING; "
    "    IF NOT FOUND THEN RETURN i - 1; END IF; "
    "  ELSE "
    "    DELETE FROM kv WHERE ns = nss[i] AND key = keys[i]; "
    "    IF verbs[i] = 3 AND NOT FOUND THEN RETURN i - 1; END IF; "
    "  END IF; "
    "END LOOP; RETURN -1; END $f$;"
    "CREATE FUNCTION kv_try_1(verbs int[], nss bytea[], keys bytea[], vals bytea[]) RETURNS int "
    "LANGUAGE plpgsql SET search_path = bellhop AS $f$ DECLARE culprit int; BEGIN "
    "  BEGIN "
    "    culprit := kv_1(verbs, nss, keys, vals); "
    "    IF culprit >= 0 THEN RAISE EXCEPTION USING ERRCODE = 'BH001'; END IF; "
    "  EXCEPTION WHEN SQLSTATE 'BH001' THEN NULL; END; "
    "RETURN culprit; END $f$;"

    /* Verbs as in enum store_lease_verb; ends: 0 done, 1 another owner has it, 2 it is not ours.
     * The row is locked first, and its lock outlives the answer. */
    "CREATE FUNCTION lease_1(verb int, nm bytea, own bytea, ttl_ms bigint, mine bigint, OUT ending "
    "int, OUT new_epoch bigint, OUT left_ms bigint, OUT holder bytea) LANGUAGE plpgsql SET "
    "search_path = bellhop AS $f$ "
    "DECLARE l lease; held bool; fresh timestamptz; BEGIN "
    "  ending := 0; new_epoch := mine; left_ms := 0; holder := ''; "
    "  IF verb = 0 THEN INSERT INTO lease (name) VALUES (nm) ON CONFLICT DO NOTHING; END IF; "
    "  SELECT * INTO l FROM lease WHERE name = nm FOR UPDATE; "
    "  held := l.name IS NOT NULL AND l.owner <> '' AND l.until > clock_timestamp(); "
    "  fresh := clock_timestamp() + ttl_ms * interval '1 millisecond'; "
    "  IF verb = 0 THEN "
    "    IF held AND l.owner <> own THEN "
    "      ending := 1; holder := l.owner; "
    "      left_ms := (extract(epoch FROM l.until - clock_timestamp()) * 1000)::bigint; "
    "      RETURN; "
    "    END IF; "
    "    UPDATE lease SET owner = own, epoch = l.epoch + 1, until = fresh WHERE name = nm "
    "RETURNING "
    "epoch INTO new_epoch; "
    "  ELSIF NOT held OR mine = 0 OR l.epoch <> mine THEN "
    "    IF verb = 1 THEN ending := 2; END IF; "
    "  ELSIF verb = 1 THEN UPDATE lease SET until = fresh WHERE name = nm; "
    "  ELSE UPDATE lease SET owner = '' WHERE name = nm; "
    "  END IF; END $f$;";

static const char *const migrations[] = {first};
#define SCHEMA_VERSION ((int)(sizeof migrations / sizeof migrations[0]))

/* ---- */

static bool failed(struct store_postgres *st, char *ret_why, const char *doing)
{
    return bh_why(ret_why, "PostgreSQL, %s: %.160s", doing, st->loader.problem);
}

static bool is_ours(struct store_postgres *st, char *ret_why, int *ret_version)
{
    char word[64], oldest[64] = "0";

    if (!line_word(&st->loader, "SELECT to_regclass('bellhop.once')::text", word, sizeof word))
        return failed(st, ret_why, "looking for our tables");
    if (word[0] != '\0')
        return bh_why(
            ret_why,
            "the tables in PostgreSQL are of a bellhop from before version 1 of its tables, "
            "which this program cannot read: drop them (DROP SCHEMA bellhop CASCADE) or use "
            "another database");
    if (!line_word(&st->loader, "SELECT to_regclass('bellhop.meta')::text", word, sizeof word))
        return failed(st, ret_why, "looking for our tables");
    *ret_version = 0;
    if (word[0] == '\0')
        return true;
    if (!line_word(&st->loader, "SELECT value FROM meta WHERE name = 'oldest'", oldest,
                   sizeof oldest) ||
        !line_word(&st->loader, "SELECT value FROM meta WHERE name = 'schema'", word, sizeof word))
        return failed(st, ret_why, "reading the version");
    *ret_version = atoi(word);
    if (atoi(oldest) <= SCHEMA_VERSION)
        return true;
    return bh_why(
        ret_why,
        "the tables in PostgreSQL are of a newer bellhop (version %d, this program knows %d): "
        "update this node",
        *ret_version, SCHEMA_VERSION);
}

/* In one transaction with the lock: a node that dies on the way leaves nothing half made. */
static bool migrate(struct store_postgres *st, char *ret_why)
{
    char note[256];
    int version = 0;

    if (line_text(&st->loader,
                  "BEGIN; SELECT pg_advisory_xact_lock(" PG_SCHEMA_LOCK "); "
                  "CREATE SCHEMA IF NOT EXISTS bellhop",
                  NULL) != LINE_OK)
        return failed(st, ret_why, "preparing the schema");
    if (!is_ours(st, ret_why, &version))
        return false;
    for (int i = version; i < SCHEMA_VERSION; i++)
        if (line_text(&st->loader, migrations[i], NULL) != LINE_OK)
            return failed(st, ret_why, "making the tables");
    snprintf(note, sizeof note,
             "INSERT INTO meta VALUES ('schema', '%d'), ('oldest', '%d') ON CONFLICT (name) DO "
             "UPDATE SET value = excluded.value",
             SCHEMA_VERSION, SCHEMA_OLDEST);
    if ((version < SCHEMA_VERSION && line_text(&st->loader, note, NULL) != LINE_OK) ||
        line_text(&st->loader, "COMMIT", NULL) != LINE_OK)
        return failed(st, ret_why, "making the tables");
    return true;
}

static bool is_finished(struct store_postgres *st, char *ret_why)
{
    char word[256];

    if (!line_word(&st->loader, "SELECT value FROM meta WHERE name = 'moving'", word, sizeof word))
        return failed(st, ret_why, "looking whether it is whole");
    if (word[0] == '\0')
        return true;
    return bh_why(
        ret_why,
        "a move into this PostgreSQL was begun and has not ended: run bellhop store migrate "
        "again");
}

/* Leases use the clock of the database only.  The expiry of tokens and the times that people read
 * use the clock of this machine. */
static void compare_clocks(struct store_postgres *st)
{
    char word[32];
    int64_t theirs, off;

    if (!line_word(&st->loader, "SELECT extract(epoch FROM clock_timestamp())::bigint", word,
                   sizeof word) ||
        !str_to_i64(str_of(word), &theirs))
        return;
    off = (int64_t)time(NULL) - theirs;
    if (off < -CLOCK_OFF_S || off > CLOCK_OFF_S)
        log_warn(&st->log,
                 "the clock of this machine is %" PRId64 " s %s that of the database: whether a "
                 "token is valid is judged by it; set it right",
                 off < 0 ? -off : off, off < 0 ? "behind" : "before");
}

bool pg_schema_prepare(struct store_postgres *st, char *ret_why)
{
    char word[128] = "";
    int version = 0;

    if (PQserverVersion(st->loader.pg) < 140000)
        return bh_why(ret_why, "PostgreSQL %d is too old: 14 or newer is needed",
                      PQserverVersion(st->loader.pg) / 10000);
    line_begin(&st->loader, SCHEMA_MS);
    if (st->looking) {
        if (!is_ours(st, ret_why, &version))
            return false;
        st->empty = version == 0;
        return !st->empty && is_finished(st, ret_why);
    }
    if (!migrate(st, ret_why))
        return false;
    if (!st->moving && !is_finished(st, ret_why))
        return false;
    if (!line_word(&st->loader, "SELECT nextval('boot')", word, sizeof word))
        return failed(st, ret_why, "counting this start");
    st->worker.base.boot = (uint64_t)strtoull(word, NULL, 10);
    if (!line_word(&st->loader, "SELECT value FROM meta WHERE name = 'dedup_key'", word,
                   sizeof word) ||
        !hex_decode(str_of(word), (uint8_t *)&st->worker.base.dedup_key,
                    sizeof st->worker.base.dedup_key))
        return failed(st, ret_why, "reading the key of deduplication");
    /* of who wrote nothing for a day, and is gone or writes it anew */
    if (line_text(&st->loader, "DELETE FROM fate WHERE at < now() - interval '1 day'", NULL) !=
        LINE_OK)
        return failed(st, ret_why, "tidying up");
    if (line_word(&st->loader, "SHOW fsync", word, sizeof word) && strcmp(word, "off") == 0)
        log_warn(&st->log, "the database server runs with fsync=off: confirmed writes may be lost "
                           "when its machine fails");
    compare_clocks(st);
    return true;
}

/* ---- every statement that runs after the start: prepared once per line ---- */

#define ROW "id, box, kind, flags, at_ms, attempts, parked, octet_length(frame)"

/* Rows in the order of @n until the bytes before them exceed the bound: one more than fits comes
 * too, so that whoever reads knows that there is one. */
#define BOUNDED(from, bound, order) \
    "SELECT * FROM (SELECT *, coalesce(sum(bytes) OVER (ORDER BY n" order \
    " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before FROM (" from \
    ") q) p WHERE before <= " bound " ORDER BY n" order
#define SCAN(order) \
    BOUNDED( \
        "SELECT key, CASE WHEN $5 THEN value END AS value, key AS n, octet_length(key) + CASE " \
        "WHEN $5 THEN octet_length(value) ELSE 0 END AS bytes FROM kv WHERE ns = $1 AND key " \
        ">= $2 AND ($3::bytea IS NULL OR key < $3) ORDER BY key" order " LIMIT $4", \
        "$6", order)

const char *const pg_statements[N_STATEMENTS] = {
    [PG_BEGIN] = "BEGIN ISOLATION LEVEL READ COMMITTED",
    [PG_COMMIT] = "COMMIT",
    [PG_ROLLBACK] = "ROLLBACK",
    [PG_FATE] = PG_FATE_MARK("$1::bigint", "$2::bigint"),
    /* The share lock makes another node wait for the lease until this transaction has ended. */
    [PG_GUARD] = "SELECT 1 FROM lease WHERE name = $1 AND epoch = $2::bigint AND owner <> "
                 "'' AND until > clock_timestamp() FOR SHARE",
    /* A retry finds its row, and changes nothing. */
    [PG_APPEND] = "INSERT INTO mail (id, box, kind, flags, at_ms, frame) SELECT * FROM "
                  "unnest($1::bigint[], $2::int[], $3::int[], $4::int[], $5::bigint[], "
                  "$6::bytea[]) ON CONFLICT (id) DO NOTHING",
    [PG_SEEN] = "INSERT INTO seen (at_ms, keys) VALUES ($1, $2)",
    [PG_ACK] = "DELETE FROM mail WHERE id = ANY($1::bigint[])",
    [PG_MARK] = "UPDATE mail SET attempts = $2, parked = $3, "
                "frame = coalesce($4, frame) WHERE id = $1",
    /* Each record once: it cannot be put twice in one statement. */
    [PG_KV_SET] = "WITH gone AS (DELETE FROM kv USING unnest($4::bytea[], $5::bytea[]) AS d(ns, "
                  "key) WHERE kv.ns = d.ns AND kv.key = d.key), put AS (INSERT INTO kv SELECT * "
                  "FROM unnest($1::bytea[], $2::bytea[], $3::bytea[]) AS p(ns, key, value) ORDER "
                  "BY ns, key ON CONFLICT (ns, key) DO UPDATE SET value = excluded.value) SELECT "
                  "-1",
    [PG_KV_TRY] = "SELECT kv_try_1($1::int[], $2::bytea[], $3::bytea[], $4::bytea[])",
    [PG_ERASE] =
        "WITH picked AS (SELECT key FROM kv WHERE ns = $1 AND key >= $2 AND ($3::bytea IS NULL OR "
        "key < $3) ORDER BY key LIMIT $4::bigint + 1), gone AS (DELETE FROM kv WHERE ns = $1 AND "
        "key = "
        "ANY(ARRAY(SELECT key FROM picked ORDER BY key LIMIT $4)) RETURNING 1) "
        "SELECT (SELECT count(*) FROM gone), (SELECT count(*) > $4 FROM picked)",
    [PG_LEASE] = "SELECT * FROM lease_1($1, $2, $3, $4, $5)",
    [PG_FORGET] = "WITH gone AS (DELETE FROM seen WHERE ctid = ANY(ARRAY(SELECT ctid FROM seen "
                  "WHERE at_ms < $1 LIMIT $2)) RETURNING 1) SELECT count(*) FROM gone",
    [PG_SIZE] = "SELECT pg_database_size(current_database())",

    [PG_FETCH] = BOUNDED("SELECT " ROW " AS bytes, frame, w.n FROM unnest($1::bigint[]) "
                         "WITH ORDINALITY AS w(id, n) JOIN mail USING (id)",
                         "$2", ""),
    [PG_SCAN_UP] = SCAN(""),
    [PG_SCAN_DOWN] = SCAN(" DESC"),
    [PG_LOAD_ROWS] = "SELECT " ROW ", CASE WHEN flags & 2 <> 0 THEN frame END"
                     " FROM mail ORDER BY id",
    [PG_LOAD_RECORDS] = "SELECT key, value FROM kv WHERE ns = $1 AND key >= $2"
                        " AND ($3 OR key < $4) ORDER BY key",
    [PG_LOAD_KEYS] = "SELECT at_ms, keys FROM seen WHERE at_ms >= $1",
};
