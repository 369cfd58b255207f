/* remote.c - tables and statements of the data store in PostgreSQL.  (remote.h has the contract.)
 *
 * One transaction writes at a time, on all nodes (the lock of the schema), so numbers are committed
 * in their order, and whoever read up to a number has missed none below it. */
#include "data/remote.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"
#include "store/postgres/sqldb.h"

enum {
    SQL_FENCE,  /* epoch -> a row, unless a later node serves */
    SQL_SIZES,  /* -> folder, bytes */
    SQL_FIND,   /* folder, name -> id */
    SQL_HAS,    /* store, n, uuid -> a row */
    SQL_SINCE,  /* store, n -> n, uuid, created_at, expires_at, extra, content */
    SQL_ADD,    /* epoch, folder, name, bytes, and the columns of an entry -> store, n */
    SQL_DROP,   /* epoch, store, numbers */
    SQL_CLEAR,  /* epoch, folder, name */
    SQL_BYTES,  /* folder -> bytes */
    SQL_NAMES,  /* folder -> name */
    SQL_STORES, /* -> id, key */
    N_STATEMENTS
};

#define ENTRY_BYTES 256      /* of a row and its indexes, about, beside its texts */
#define PAGE_BYTES "4194304" /* of entries in one result, about */

static const char *const migrations[] = {
    "CREATE TABLE data_fence (epoch bigint NOT NULL); INSERT INTO data_fence VALUES (0);"
    "CREATE TABLE data_store (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, folder bytea NOT "
    "NULL, name bytea NOT NULL, last bigint NOT NULL, bytes bigint NOT NULL, UNIQUE (folder, "
    "name)) WITH (fillfactor = 50);"
    "CREATE TABLE data_entry (store bigint NOT NULL, n bigint NOT NULL, uuid bytea NOT NULL, "
    "created_at bigint NOT NULL, expires_at bigint, extra bytea NOT NULL, content bytea NOT NULL, "
    "PRIMARY KEY (store, n));",
};

#define SERVES "(SELECT epoch FROM data_fence) = $1::bigint"

static const char *const statements[N_STATEMENTS] = {
    [SQL_FENCE] = "UPDATE data_fence SET epoch = $1 WHERE epoch <= $1 RETURNING epoch",
    [SQL_SIZES] = "SELECT folder, sum(bytes)::bigint FROM data_store GROUP BY folder",
    [SQL_FIND] = "SELECT id FROM data_store WHERE folder = $1 AND name = $2",
    [SQL_HAS] = "SELECT 1 FROM data_entry WHERE store = $1 AND n = $2 AND uuid = $3",
    [SQL_SINCE] = "SELECT n, uuid, created_at, expires_at, extra, content FROM (SELECT *, "
                  "sum(octet_length(content)) OVER (ORDER BY n) - octet_length(content) AS before "
                  "FROM (SELECT * FROM data_entry WHERE store = $1 AND n > $2 ORDER BY n LIMIT "
                  "512) e) q WHERE before < " PAGE_BYTES " ORDER BY n",
    [SQL_ADD] =
        "WITH s AS (INSERT INTO data_store AS t (folder, name, last, bytes) SELECT $2::bytea, "
        "$3::bytea, 1, $4::bigint WHERE " SERVES
        " ON CONFLICT (folder, name) DO UPDATE SET last = t.last + 1, bytes = t.bytes + "
        "excluded.bytes RETURNING id, last) INSERT INTO data_entry (store, n, uuid, created_at, "
        "expires_at, extra, content) SELECT id, last, $5::bytea, $6::bigint, $7::bigint, "
        "$8::bytea, $9::bytea FROM s RETURNING store, n",
    [SQL_DROP] = "WITH gone AS (DELETE FROM data_entry WHERE store = $2 AND n = "
                 "ANY($3::bigint[]) AND " SERVES
                 " RETURNING 256 + octet_length(content) + octet_length(extra) AS bytes) UPDATE "
                 "data_store SET bytes = greatest(bytes - (SELECT coalesce(sum(bytes), 0) FROM "
                 "gone), 0) WHERE id = $2 AND " SERVES " RETURNING id",
    [SQL_CLEAR] = "WITH s AS (DELETE FROM data_store WHERE folder = $2 AND name = $3 AND " SERVES
                  " RETURNING id), e AS (DELETE FROM data_entry WHERE store IN (SELECT id FROM "
                  "s)) SELECT 1 WHERE " SERVES,
    [SQL_BYTES] = "SELECT coalesce(sum(bytes), 0)::bigint FROM data_store WHERE folder = $1",
    [SQL_NAMES] = "SELECT name FROM data_store WHERE folder = $1 ORDER BY name",
    [SQL_STORES] = "SELECT id, folder || '/'::bytea || name FROM data_store ORDER BY id",
};

static const struct pg_sqldb_schema schema = {
    .name = "data",
    .migrations = migrations,
    .n_migrations = ARRAY_LEN(migrations),
    .oldest = 1,
    .statements = statements,
    .n_statements = N_STATEMENTS,
    .lock = 7094702832,
};

struct remote {
    struct sqldb *s; /* owned */
    int64_t epoch;
    bool begun;
};

/* ---- opening ---- */

static bool raise_fence(struct sqldb *s, uint64_t epoch, char *ret_why)
{
    bool asked = sqldb_begin(s, true);

    sqldb_int(s, (int64_t)epoch);
    asked = asked && sqldb_ask(s, SQL_FENCE);
    bool ours = asked && sqldb_next(s);
    if (ours && sqldb_commit(s))
        return true;
    snprintf(ret_why, 256, "PostgreSQL, opening the data store: %.160s",
             asked && !ours ? "another node serves by now" : s->why);
    if (!ours && asked)
        sqldb_rollback(s);
    return false;
}

bool remote_open(const char *url, char *ret_why)
{
    return pg_sqldb_prepare(url, &schema, ret_why);
}

bool remote_prepare(const char *url, uint64_t epoch, remote_size_cb *cb, void *ctx, char *ret_why)
{
    if (!pg_sqldb_prepare(url, &schema, ret_why))
        return false;
    struct sqldb *s = pg_sqldb_new(url, &schema);
    bool ok = raise_fence(s, epoch, ret_why);
    if (ok) {
        ok = sqldb_begin(s, false) && sqldb_ask(s, SQL_SIZES);
        while (ok && sqldb_next(s))
            cb(ctx, sqldb_get_str(s, 0), (uint64_t)sqldb_get_int(s, 1));
        if (!ok)
            snprintf(ret_why, 256, "PostgreSQL, looking at the data: %.160s", s->why);
    }
    sqldb_close(s);
    return ok;
}

struct remote *remote_new(const char *url, uint64_t epoch)
{
    struct remote *r = xcalloc(1, sizeof *r);

    *r = (struct remote){.s = pg_sqldb_new(url, &schema), .epoch = (int64_t)epoch};
    return r;
}

void remote_free(struct remote *r)
{
    if (r == NULL)
        return;
    sqldb_close(r->s);
    free(r);
}

const char *remote_problem(const struct remote *r)
{
    return r->s->why;
}

/* ---- transactions ---- */

bool remote_begin(struct remote *r, bool write)
{
    if (!r->begun)
        r->begun = sqldb_begin(r->s, write);
    return r->begun;
}

enum sqldb_end remote_commit(struct remote *r)
{
    if (!r->begun)
        return SQLDB_DONE;
    r->begun = false;
    return sqldb_commit(r->s) ? SQLDB_DONE : r->s->doubt ? SQLDB_UNKNOWN : SQLDB_UNDONE;
}

void remote_rollback(struct remote *r)
{
    if (r->begun)
        sqldb_rollback(r->s);
    r->begun = false;
}

/* ---- entries ---- */

static void key_args(struct remote *r, struct str key)
{
    struct str rest = key, folder;

    str_split(&rest, '/', &folder);
    sqldb_text(r->s, folder);
    sqldb_text(r->s, rest);
}

/* A statement that answers with one row, as long as this node serves. */
static bool ask_serving(struct remote *r, unsigned statement)
{
    if (!sqldb_ask(r->s, statement))
        return false;
    if (sqldb_next(r->s))
        return true;
    snprintf(r->s->why, sizeof r->s->why, "another node serves by now");
    return false;
}

bool remote_find(struct remote *r, struct str key, int64_t *ret_id)
{
    key_args(r, key);
    if (!sqldb_ask(r->s, SQL_FIND))
        return false;
    *ret_id = sqldb_next(r->s) ? sqldb_get_int(r->s, 0) : 0;
    return true;
}

bool remote_has(struct remote *r, int64_t store, int64_t n, struct str uuid, bool *ret)
{
    sqldb_int(r->s, store);
    sqldb_int(r->s, n);
    sqldb_blob(r->s, uuid);
    if (!sqldb_ask(r->s, SQL_HAS))
        return false;
    *ret = sqldb_next(r->s);
    return true;
}

bool remote_since(struct remote *r, int64_t store, int64_t n, remote_entry_cb *cb, void *ctx,
                  int64_t *ret_last)
{
    struct sqldb *s = r->s;
    bool ok;

    *ret_last = n;
    sqldb_int(s, store);
    sqldb_int(s, n);
    ok = sqldb_ask(s, SQL_SINCE);
    while (ok && sqldb_next(s)) {
        struct data_entry e;
        struct str uuid = sqldb_get_str(s, 1);
        e.expires_at = sqldb_get_str(s, 3).p != NULL ? sqldb_get_int(s, 3) : DATA_FOREVER;
        e.created_at = sqldb_get_int(s, 2);
        e.extra = sqldb_get_str(s, 4);
        e.content = sqldb_get_str(s, 5);
        memcpy(e.uuid, uuid.p, uuid.n < sizeof e.uuid ? uuid.n : sizeof e.uuid);
        *ret_last = sqldb_get_int(s, 0);
        ok = cb(ctx, *ret_last, &e);
    }
    return ok;
}

bool remote_add(struct remote *r, struct str key, const struct data_entry *e, int64_t *ret_store,
                int64_t *ret_n)
{
    struct sqldb *s = r->s;

    sqldb_int(s, r->epoch);
    key_args(r, key);
    sqldb_int(s, (int64_t)(ENTRY_BYTES + e->content.n + e->extra.n));
    sqldb_blob(s, str_make(e->uuid, sizeof e->uuid));
    sqldb_int(s, e->created_at);
    sqldb_int_if(s, e->expires_at != DATA_FOREVER, e->expires_at);
    sqldb_blob(s, e->extra.n > 0 ? e->extra : STR(""));
    sqldb_blob(s, e->content.n > 0 ? e->content : STR(""));
    if (!ask_serving(r, SQL_ADD))
        return false;
    *ret_store = sqldb_get_int(s, 0);
    *ret_n = sqldb_get_int(s, 1);
    return true;
}

bool remote_drop(struct remote *r, int64_t store, const int64_t *numbers, size_t n)
{
    sqldb_int(r->s, r->epoch);
    sqldb_int(r->s, store);
    sqldb_ints(r->s, numbers, n);
    return ask_serving(r, SQL_DROP);
}

bool remote_clear(struct remote *r, struct str key)
{
    sqldb_int(r->s, r->epoch);
    key_args(r, key);
    return ask_serving(r, SQL_CLEAR);
}

bool remote_bytes(struct remote *r, struct str folder, uint64_t *ret_bytes)
{
    sqldb_text(r->s, folder);
    if (!sqldb_ask(r->s, SQL_BYTES) || !sqldb_next(r->s))
        return false;
    *ret_bytes = (uint64_t)sqldb_get_int(r->s, 0);
    return true;
}

bool remote_names(struct remote *r, struct str folder, remote_name_cb *cb, void *ctx)
{
    sqldb_text(r->s, folder);
    if (!sqldb_ask(r->s, SQL_NAMES))
        return false;
    while (sqldb_next(r->s) && cb(ctx, sqldb_get_str(r->s, 0)))
        ;
    return true;
}

bool remote_stores(struct remote *r, remote_store_cb *cb, void *ctx)
{
    if (!sqldb_ask(r->s, SQL_STORES))
        return false;
    while (sqldb_next(r->s) && cb(ctx, sqldb_get_int(r->s, 0), sqldb_get_str(r->s, 1)))
        ;
    return true;
}
