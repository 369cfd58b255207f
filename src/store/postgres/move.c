/* move.c - a PostgreSQL as one end of a move.  (store/move_side.h has the contract.)
 *
 * As a target it carries a mark in `meta` from the first transaction to the last: what the source
 * is, and how much of each table is there.  A server does not start on tables with that mark. */
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/mem.h"
#include "store/move_side.h"
#include "store/postgres/impl.h"

#define MOVE_ANSWER_MS 60000 /* large tables are counted and sorted */

struct pg_side {
    struct move_side base;
    struct store_postgres st; /* its @loader and @url only */
    char mark[64];            /* of the source */
    uint64_t done[N_MOVE_TABLES];
};

static struct pg_side *side_of(struct move_side *s)
{
    return container_of(s, struct pg_side, base);
}

static bool failed(struct pg_side *s, const char *doing)
{
    return bh_why(s->base.why, "PostgreSQL, %s: %.160s", doing, s->st.loader.problem);
}

static bool exec(struct pg_side *s, const char *sql, const char *doing)
{
    line_begin(&s->st.loader, MOVE_ANSWER_MS);
    return line_text(&s->st.loader, sql, NULL) == LINE_OK || failed(s, doing);
}

static bool ask(struct pg_side *s, const char *sql, char *ret, size_t size)
{
    line_begin(&s->st.loader, MOVE_ANSWER_MS);
    return line_word(&s->st.loader, sql, ret, size) || failed(s, "asking");
}

/* ---- reading ---- */

static const char *const all_of[N_MOVE_TABLES] = {
    [MOVE_RECORDS] = "SELECT ns, key, value FROM kv ORDER BY ns, key",
    [MOVE_ROWS] =
        "SELECT id, box, kind, flags, at_ms, attempts, parked, frame FROM mail ORDER BY id",
    [MOVE_SEEN] = "SELECT keys, at_ms FROM seen ORDER BY at_ms, keys",
};

static struct move_item item_of(enum store_table t, const PGresult *r)
{
    struct move_item item = {0};

    for (int i = 0; move_columns[t][i].type != MOVE_END; i++) {
        void *at = (char *)&item + move_columns[t][i].at;
        if (move_columns[t][i].type == MOVE_I64)
            *(int64_t *)at = column_int(r, 0, i);
        else if (move_columns[t][i].type == MOVE_I32)
            *(uint32_t *)at = (uint32_t)column_int(r, 0, i);
        else
            *(struct str *)at = column_bytes(r, 0, i);
    }
    return item;
}

static bool side_read(struct move_side *base, enum store_table t, move_item_cb *cb, void *ctx)
{
    struct pg_side *s = side_of(base);
    struct pg_line *l = &s->st.loader;
    enum line_end e;
    PGresult *r;
    bool go_on = true;

    line_begin(l, MOVE_ANSWER_MS);
    line_ask_sql(l, all_of[t], NULL);
    if (l->pg != NULL)
        PQsetSingleRowMode(l->pg);
    while ((e = line_row(l, &r)) == LINE_OK && r != NULL) {
        if (go_on) {
            struct move_item item = item_of(t, r);
            go_on = cb(ctx, &item);
        }
        line_begin(l, MOVE_ANSWER_MS); /* so long as it goes on */
        PQclear(r);
    }
    return e == LINE_OK ? go_on : failed(s, "reading");
}

static bool side_count(struct move_side *base, enum store_table t, uint64_t *ret_n)
{
    char sql[256], word[64];

    snprintf(sql, sizeof sql, "SELECT count(*) FROM (%s) q", all_of[t]);
    if (!ask(side_of(base), sql, word, sizeof word))
        return false;
    *ret_n = strtoull(word, NULL, 10);
    return true;
}

static bool side_identity(struct move_side *base, struct move_identity *ret)
{
    struct pg_side *s = side_of(base);

    memcpy(ret->dedup_key, &s->st.worker.base.dedup_key, sizeof ret->dedup_key);
    ret->boot = s->st.worker.base.boot;
    return true;
}

/* ---- the mark ---- */

static bool read_mark(struct pg_side *s, char *ret_of, uint64_t ret_done[N_MOVE_TABLES])
{
    char word[256];
    unsigned long long n[N_MOVE_TABLES] = {0};

    if (!ask(s, "SELECT value FROM meta WHERE name = 'moving'", word, sizeof word))
        return false;
    ret_of[0] = '\0';
    if (word[0] != '\0' && sscanf(word, "%63s %llu %llu %llu", ret_of, &n[0], &n[1], &n[2]) != 4)
        ret_of[0] = '\0';
    for (int t = 0; t < N_MOVE_TABLES; t++)
        ret_done[t] = n[t];
    return true;
}

static bool write_mark(struct pg_side *s)
{
    char sql[400];

    snprintf(sql, sizeof sql,
             "INSERT INTO meta VALUES ('moving', '%s %llu %llu %llu') ON CONFLICT (name) DO UPDATE "
             "SET value = excluded.value",
             s->mark, (unsigned long long)s->done[0], (unsigned long long)s->done[1],
             (unsigned long long)s->done[2]);
    return exec(s, sql, "noting how far it is");
}

static bool is_empty(struct pg_side *s)
{
    char word[8];

    if (!ask(s,
             "SELECT EXISTS (SELECT FROM kv WHERE ns <> 'seal' OR key <> 'salt') OR EXISTS (SELECT "
             "FROM mail) OR EXISTS (SELECT FROM seen)",
             word, sizeof word))
        return false;
    if (word[0] == 'f')
        return true;
    return bh_why(
        s->base.why,
        "the tables in PostgreSQL are in use already: move into an empty database, or empty "
        "this one (DROP SCHEMA bellhop CASCADE)");
}

static bool side_begin(struct move_side *base, const struct move_identity *from,
                       uint64_t ret_done[N_MOVE_TABLES])
{
    struct pg_side *s = side_of(base);
    char there[64];
    struct buf mark = BUF_INIT;

    hex_add(&mark, from->dedup_key, sizeof from->dedup_key);
    snprintf(s->mark, sizeof s->mark, "%.32s-%llu", buf_z(&mark), (unsigned long long)from->boot);
    buf_done(&mark);
    if (!read_mark(s, there, s->done))
        return false;
    memcpy(ret_done, s->done, sizeof s->done);
    if (strcmp(there, s->mark) == 0)
        return true;
    if (there[0] != '\0')
        return bh_why(
            s->base.why,
            "another move into this PostgreSQL was begun, or the server ran since it was: "
            "empty it (DROP SCHEMA bellhop CASCADE) and begin again");
    memset(s->done, 0, sizeof s->done);
    return is_empty(s) && exec(s, "BEGIN", "beginning") && write_mark(s) &&
           exec(s, "DELETE FROM kv; COMMIT", "beginning"); /* the source has a salt of its own */
}

/* ---- writing ---- */

static const char *const into[N_MOVE_TABLES] = {
    [MOVE_RECORDS] = "INSERT INTO kv SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[])",
    [MOVE_ROWS] =
        "INSERT INTO mail (id, box, kind, flags, at_ms, attempts, parked, frame) SELECT * FROM "
        "unnest($1::bigint[], $2::int[], $3::int[], $4::int[], $5::bigint[], $6::int[], "
        "$7::bytea[], $8::bytea[])",
    [MOVE_SEEN] = "INSERT INTO seen (keys, at_ms) SELECT * FROM unnest($1::bytea[], $2::bigint[])",
};

static void put_column(struct params *p, const struct move_column *c, const struct move_item *item)
{
    const void *at = (const char *)item + c->at;

    if (c->type == MOVE_I64)
        array_i64(p, *(const int64_t *)at);
    else if (c->type == MOVE_I32)
        array_i32(p, *(const int32_t *)at);
    else
        array_opt(p, *(const struct str *)at);
}

static bool insert(struct pg_side *s, enum store_table t, const struct move_item *items, size_t n)
{
    static const enum param_type types[] = {[MOVE_I64] = PARAM_I64,
                                            [MOVE_I32] = PARAM_I32,
                                            [MOVE_TEXT] = PARAM_BYTES,
                                            [MOVE_BYTES] = PARAM_BYTES};
    struct params *p = &s->st.params;
    PGresult *r = NULL;

    params_reset(p);
    for (const struct move_column *c = move_columns[t]; c->type != MOVE_END; c++) {
        array_begin(p, types[c->type]);
        for (size_t i = 0; i < n; i++)
            put_column(p, c, &items[i]);
        array_end(p);
    }
    line_begin(&s->st.loader, MOVE_ANSWER_MS);
    line_ask_sql(&s->st.loader, into[t], p);
    bool ok = line_answer(&s->st.loader, &r) == LINE_OK;
    PQclear(r);
    return ok || failed(s, "writing");
}

static bool side_write(struct move_side *base, enum store_table t, const struct move_item *items,
                       size_t n, uint64_t done)
{
    struct pg_side *s = side_of(base);

    s->done[t] = done;
    return exec(s, "BEGIN", "writing") && insert(s, t, items, n) && write_mark(s) &&
           exec(s, "COMMIT", "writing");
}

static bool side_finish(struct move_side *base, const struct move_identity *from)
{
    struct pg_side *s = side_of(base);
    char sql[512];

    snprintf(sql, sizeof sql,
             "BEGIN; UPDATE meta SET value = '%.32s' WHERE name = 'dedup_key'; SELECT "
             "setval('boot', greatest(nextval('boot'), %llu)); DELETE FROM meta WHERE name = "
             "'moving'; COMMIT",
             s->mark, (unsigned long long)from->boot);
    return exec(s, sql, "finishing");
}

/* ---- opening and closing ---- */

static void side_close(struct move_side *base)
{
    struct pg_side *s = side_of(base);

    line_close(&s->st.loader);
    params_done(&s->st.params);
    secret_wipe(s->st.url, strlen(s->st.url));
    free(s->st.url);
    free(s);
}

static const struct move_side_ops side_ops = {.identity = side_identity,
                                              .count = side_count,
                                              .read = side_read,
                                              .begin = side_begin,
                                              .write = side_write,
                                              .finish = side_finish,
                                              .close = side_close};

static bool nobody_uses(struct pg_side *s)
{
    char word[8];

    if (!ask(s, "SELECT EXISTS (SELECT FROM lease WHERE owner <> '' AND until > clock_timestamp())",
             word, sizeof word))
        return false;
    if (word[0] != 't')
        return true;
    return bh_why(
        s->base.why,
        "a server uses this PostgreSQL: stop all nodes first (one that was killed counts until "
        "its lease has run out)");
}

struct move_side *move_side_postgres(const char *url, char *ret_why)
{
    struct pg_side *s = xcalloc(1, sizeof *s);

    s->base.ops = &side_ops;
    s->st.url = xstrdup(url);
    s->st.moving = true;
    if (!pq_late_load(ret_why)) {
        ;
    } else if (!line_open(&s->st.loader, url, LINE_PLAIN)) {
        snprintf(ret_why, 256, "PostgreSQL cannot be reached: %.180s", s->st.loader.problem);
    } else if (pg_schema_prepare(&s->st, ret_why)) {
        if (exec(s,
                 "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; SET "
                 "idle_session_timeout = 0",
                 "preparing") &&
            nobody_uses(s))
            return &s->base;
        snprintf(ret_why, 256, "%s", s->base.why);
    }
    side_close(&s->base);
    return NULL;
}
