/* sqldb.c - design.  (sqldb.h has the contract.)
 *
 * The line is in pipeline mode.  BEGIN goes out with the first question and the end of a read with
 * the begin of the next transaction, so that a read costs one round trip:
 *
 *      begin     @owed: answers that come before that of the next question
 *      ask       everything goes out, what is owed is read first
 *      commit    of a write: waited for, and looked up when its answer is lost
 *                of a read: sent, its answer is owed */
#include "store/postgres/sqldb.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"
#include "store/postgres/impl.h"

#define SCHEMA_MS 60000

struct pg_conn {
    struct sqldb base;
    struct pg_line line;
    struct params params;
    char *url; /* owned; secret */
    const struct pg_sqldb_schema *schema;
    PGresult *answer;  /* owned; of the last question */
    unsigned owed;     /* answers of this transaction's begin that were not read yet */
    bool in_it, write; /* a transaction is under way; it writes */
    bool read_ends;    /* the end of a read was sent, and its answer not read */
    struct pg_mark mark;
    int row; /* of @answer */
};

static struct pg_conn *conn_of(const struct sqldb *s)
{
    return container_of((struct sqldb *)(uintptr_t)s, struct pg_conn, base);
}

/* ---- tables ---- */

static bool is_newer(struct pg_line *l, const struct pg_sqldb_schema *s, int *ret_version,
                     char *ret_why)
{
    char sql[160], version[32], oldest[32];

    snprintf(sql, sizeof sql, "SELECT version FROM part WHERE name = '%s'", s->name);
    if (!line_word(l, sql, version, sizeof version))
        return false;
    snprintf(sql, sizeof sql, "SELECT oldest FROM part WHERE name = '%s'", s->name);
    if (!line_word(l, sql, oldest, sizeof oldest))
        return false;
    *ret_version = atoi(version);
    if (atoi(oldest) > s->n_migrations)
        snprintf(ret_why, 256,
                 "the %s in PostgreSQL are of a newer bellhop (version %d, this program knows %d): "
                 "update this node",
                 s->name, *ret_version, s->n_migrations);
    return atoi(oldest) <= s->n_migrations;
}

static bool migrate(struct pg_line *l, const struct pg_sqldb_schema *s, char *ret_why)
{
    char sql[256];
    int version = 0;

    if (line_text(l,
                  "BEGIN; SELECT pg_advisory_xact_lock(" PG_SCHEMA_LOCK "); "
                  "CREATE SCHEMA IF NOT EXISTS bellhop; " PG_FATE_TABLE
                  "CREATE TABLE IF NOT EXISTS part (name text PRIMARY KEY, version int NOT NULL, "
                  "oldest int NOT NULL)",
                  NULL) != LINE_OK ||
        !is_newer(l, s, &version, ret_why))
        return false;
    for (int i = version; i < s->n_migrations; i++)
        if (line_text(l, s->migrations[i], NULL) != LINE_OK)
            return false;
    snprintf(sql, sizeof sql,
             "INSERT INTO part VALUES ('%s', %d, %d) ON CONFLICT (name) DO UPDATE SET version = "
             "excluded.version, oldest = excluded.oldest",
             s->name, s->n_migrations, s->oldest);
    return (version >= s->n_migrations || line_text(l, sql, NULL) == LINE_OK) &&
           line_text(l, "COMMIT", NULL) == LINE_OK;
}

bool pg_sqldb_prepare(const char *url, const struct pg_sqldb_schema *schema, char *ret_why)
{
    struct pg_line l = {0};

    ret_why[0] = '\0';
    if (!pq_late_load(ret_why))
        return false;
    bool ok = line_open(&l, url, LINE_PLAIN);
    if (ok) {
        line_begin(&l, SCHEMA_MS);
        ok = migrate(&l, schema, ret_why);
    }
    if (!ok && ret_why[0] == '\0')
        snprintf(ret_why, 256, "PostgreSQL, making the tables of %s: %.160s", schema->name,
                 l.problem);
    line_close(&l);
    return ok;
}

/* ---- the line ---- */

static void forget_answer(struct pg_conn *d)
{
    if (d->answer != NULL) /* else libpq is perhaps not loaded */
        PQclear(d->answer);
    d->answer = NULL;
}

static void conn_close(struct sqldb *s)
{
    struct pg_conn *d = conn_of(s);

    forget_answer(d);
    line_close(&d->line);
    params_done(&d->params);
    free(d->url);
    free(d);
}

static bool failed(struct pg_conn *d)
{
    snprintf(d->base.why, sizeof d->base.why, "%.150s",
             d->line.problem[0] != '\0' ? d->line.problem : "the database server was lost");
    return false;
}

/* An answer without rows that matter, or that of the mark. */
static bool read_plain(struct pg_conn *d, struct pg_mark *mark)
{
    PGresult *r = NULL;
    enum line_end e = line_answer(&d->line, &r);

    if (e == LINE_OK && mark != NULL)
        pg_mark_read(mark, r);
    PQclear(r);
    return e == LINE_OK;
}

static bool connected(struct pg_conn *d)
{
    if (d->line.pg != NULL)
        return true;
    d->read_ends = false;
    if (!line_open(&d->line, d->url, LINE_PLAIN))
        return failed(d);
    line_begin(&d->line, LINE_OPEN_MS);
    if (line_prepare(&d->line, d->schema->statements, 0, d->schema->n_statements))
        return true;
    failed(d);
    line_close(&d->line);
    return false;
}

/* ---- transactions ---- */

/* The answer to the end of the read before. */
static bool settle_read(struct pg_conn *d)
{
    if (!d->read_ends)
        return true;
    d->read_ends = false;
    line_begin(&d->line, PG_SQLDB_ANSWER_MS);
    if (read_plain(d, NULL) && line_done(&d->line) == LINE_OK)
        return true;
    failed(d);
    line_close(&d->line);
    return false;
}

static bool conn_begin(struct sqldb *s, bool write)
{
    struct pg_conn *d = conn_of(s);
    char lock[64], mark[320];

    assert(!d->in_it);
    forget_answer(d);
    if (d->line.pg != NULL && settle_read(d) && !line_is_quiet(&d->line))
        line_close(&d->line); /* lost meanwhile: a new line will do */
    if (!connected(d))
        return false;
    d->in_it = true;
    d->write = write;
    if (write) {
        snprintf(lock, sizeof lock, "SELECT pg_advisory_xact_lock(%lld)",
                 (long long)d->schema->lock);
        line_ask_sql(&d->line, "BEGIN ISOLATION LEVEL READ COMMITTED", NULL);
        line_ask_sql(&d->line, lock, NULL);
        pg_mark_next(&d->mark);
        snprintf(mark, sizeof mark, PG_FATE_MARK("%" PRId64, "%" PRId64), d->mark.writer,
                 d->mark.n);
        line_ask_sql(&d->line, mark, NULL);
    } else {
        line_ask_sql(&d->line, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", NULL);
    }
    d->owed = write ? 3 : 1;
    return true;
}

/* The answers of BEGIN; the last one of a write is its mark's. */
static bool read_owed(struct pg_conn *d)
{
    bool ok = true;

    for (; d->owed > 0; d->owed--)
        ok &= read_plain(d, d->write && d->owed == 1 ? &d->mark : NULL);
    return ok;
}

static void add_arg(struct params *p, const struct sqldb_arg *a)
{
    switch (a->type) {
    case SQLDB_NULL:
        param_opt(p, STR_NULL);
        return;
    case SQLDB_INT:
        param_i64(p, a->i);
        return;
    case SQLDB_TEXT:
    case SQLDB_BLOB:
        param_bytes(p, a->s);
        return;
    case SQLDB_TEXTS:
        array_begin(p, PARAM_BYTES);
        for (size_t i = 0; i < a->n; i++)
            array_opt(p, ((const struct str *)a->list)[i]);
        array_end(p);
        return;
    case SQLDB_INTS:
        array_begin(p, PARAM_I64);
        for (size_t i = 0; i < a->n; i++)
            array_i64(p, ((const int64_t *)a->list)[i]);
        array_end(p);
    }
}

static bool conn_ask(struct sqldb *s, unsigned statement)
{
    struct pg_conn *d = conn_of(s);
    PGresult *r = NULL;

    assert(statement < d->schema->n_statements);
    params_reset(&d->params);
    for (unsigned i = 0; i < s->n_args; i++)
        add_arg(&d->params, &s->args[i]);
    line_begin(&d->line, PG_SQLDB_ANSWER_MS);
    line_ask(&d->line, statement, &d->params);
    line_send(&d->line);
    forget_answer(d); /* parameters may have been taken from it */
    bool ok = read_owed(d);
    ok = d->line.pg != NULL && line_answer(&d->line, &r) == LINE_OK && ok;
    ok = d->line.pg != NULL && line_done(&d->line) == LINE_OK && ok;
    if (!ok && r != NULL)
        PQclear(r);
    if (!ok)
        return failed(d);
    d->answer = r;
    d->row = -1;
    return true;
}

static bool conn_next(struct sqldb *s)
{
    struct pg_conn *d = conn_of(s);

    return ++d->row < PQntuples(d->answer);
}

static int64_t conn_get_int(const struct sqldb *s, int column)
{
    return column_int(conn_of(s)->answer, conn_of(s)->row, column);
}

static struct str conn_get_str(const struct sqldb *s, int column)
{
    return column_bytes(conn_of(s)->answer, conn_of(s)->row, column);
}

static bool end_with(struct pg_conn *d, const char *sql)
{
    line_begin(&d->line, PG_SQLDB_ANSWER_MS);
    line_ask_sql(&d->line, sql, NULL);
    line_send(&d->line);
    bool ok = read_owed(d) && read_plain(d, NULL);

    return d->line.pg != NULL && line_done(&d->line) == LINE_OK && ok;
}

static enum sqldb_end conn_commit(struct sqldb *s)
{
    struct pg_conn *d = conn_of(s);
    bool nothing_asked = d->owed > 0;

    d->in_it = false;
    if (!d->write && !nothing_asked) {
        line_begin(&d->line, PG_SQLDB_ANSWER_MS);
        line_ask_sql(&d->line, "COMMIT", NULL);
        line_send(&d->line);
        d->read_ends = d->line.pg != NULL;
        return SQLDB_DONE;
    }
    if (end_with(d, "COMMIT"))
        return SQLDB_DONE;
    failed(d);
    if (d->line.pg != NULL || nothing_asked || d->mark.xact[0] == '\0')
        return SQLDB_UNDONE;
    switch (pg_find_fate(d->url, &d->mark, COMMIT_LOOKUP_MS)) {
    case FATE_DONE:
        return SQLDB_DONE;
    case FATE_UNDONE:
        return SQLDB_UNDONE;
    default:
        return SQLDB_UNKNOWN;
    }
}

static void conn_rollback(struct sqldb *s)
{
    struct pg_conn *d = conn_of(s);

    d->in_it = false;
    if (d->line.pg != NULL && !end_with(d, "ROLLBACK"))
        line_close(&d->line); /* the server rolls back by itself */
    d->owed = 0;
}

struct sqldb *pg_sqldb_new(const char *url, const struct pg_sqldb_schema *schema)
{
    static const struct sqldb_ops ops = {.begin = conn_begin,
                                         .commit = conn_commit,
                                         .rollback = conn_rollback,
                                         .ask = conn_ask,
                                         .next = conn_next,
                                         .get_int = conn_get_int,
                                         .get_str = conn_get_str,
                                         .close = conn_close};
    struct pg_conn *d = xcalloc(1, sizeof *d);

    d->base.ops = &ops;
    d->url = xstrdup(url);
    d->schema = schema;
    return &d->base;
}
