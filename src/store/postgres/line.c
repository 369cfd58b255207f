/* line.c - one connection to the server, on which every wait has a deadline.
 *
 *      none --line_open--> open --line_ask, line_send, line_answer ... line_done--> open
 *        ^                   |
 *        '-- deaf, cut off --'   every wait ends at the deadline of its round
 *
 * libpq waits for ever on a connection whose peer is silently gone.  So libpq never waits here:
 * this file waits with poll() on libpq's socket. */
#include "store/postgres/impl.h"
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>

static void note(struct pg_line *l, const char *text)
{
    size_t n = strcspn(text, "\n"); /* the first line says it; hints follow */
    snprintf(l->problem, sizeof l->problem, "%.*s", (int)(n < 150 ? n : 150), text);
}

void line_close(struct pg_line *l)
{
    if (l->pg != NULL)
        PQfinish(l->pg);
    l->pg = NULL;
}

static enum line_end lost(struct pg_line *l, const char *why)
{
    note(l, why);
    line_close(l);
    return LINE_LOST;
}

void line_begin(struct pg_line *l, int64_t ms)
{
    l->deadline_us = thread_now_us() + ms * 1000;
}

/* False: the deadline came first. */
static bool wait_for(struct pg_line *l, short events)
{
    struct pollfd p = {.fd = PQsocket(l->pg), .events = events};
    int n;

    do {
        int64_t left = l->deadline_us - thread_now_us();
        if (left <= 0)
            return false;
        n = poll(&p, 1, (int)(left / 1000) + 1);
    } while (n == 0 || (n < 0 && errno == EINTR));
    return n > 0;
}

/* ---- opening ---- */

/* What the server says beside its answers would go to standard error. */
static void ignore(void *ctx, const char *notice)
{
}

static bool connect_to(struct pg_line *l, const char *url)
{
    PostgresPollingStatusType next = PGRES_POLLING_WRITING;

    l->pg = PQconnectStart(url);
    if (l->pg == NULL || PQstatus(l->pg) == CONNECTION_BAD)
        return false;
    PQsetNoticeProcessor(l->pg, ignore, NULL);
    while (next != PGRES_POLLING_OK && next != PGRES_POLLING_FAILED) {
        if (!wait_for(l, next == PGRES_POLLING_READING ? POLLIN : POLLOUT)) {
            note(l, "the database server does not answer");
            return false;
        }
        next = PQconnectPoll(l->pg);
    }
    return next == PGRES_POLLING_OK;
}

/* What every session needs.  A node that stops while it holds locks must not hold up the others:
 * the server ends its transaction. */
static const char session[] = "SET synchronous_commit=on;"
                              "SET client_min_messages=warning;"
                              "SET lock_timeout='5s';"
                              "SET statement_timeout='9s';"
                              "SET idle_in_transaction_session_timeout='2s';"
                              "SET bytea_output=hex;"
                              "SET jit=off;"
                              "SET search_path=bellhop";

/* Writes find rows by their keys, however few rows there were when the statements were planned.
 * Each statement is planned once, not per batch. */
static const char writing[] = "SET plan_cache_mode=force_generic_plan;"
                              "SET enable_seqscan=off;"
                              "SET enable_hashjoin=off;"
                              "SET enable_mergejoin=off";

static bool settle(struct pg_line *l, enum line_use use)
{
    if (PQsetnonblocking(l->pg, 1) != 0 || line_text(l, session, NULL) != LINE_OK)
        return false;
    if (use == LINE_WRITES)
        return line_text(l, writing, NULL) == LINE_OK &&
               line_prepare(l, pg_statements, 0, PG_FETCH);
    return use == LINE_PLAIN || (line_prepare(l, pg_statements, PG_FETCH, N_STATEMENTS) &&
                                 PQexitPipelineMode(l->pg) == 1);
}

bool line_open(struct pg_line *l, const char *url, enum line_use use)
{
    if (l->pg != NULL)
        return true;
    if (thread_now_us() < l->retry_us)
        return false;
    l->problem[0] = '\0';
    line_begin(l, LINE_OPEN_MS);
    if (connect_to(l, url) && settle(l, use))
        return true;
    if (l->problem[0] == '\0')
        note(l, l->pg != NULL ? PQerrorMessage(l->pg) : "out of memory");
    line_close(l);
    l->retry_us = thread_now_us() + LINE_RETRY_MS * 1000;
    return false;
}

bool line_is_quiet(const struct pg_line *l)
{
    struct pollfd p = {.fd = PQsocket(l->pg), .events = POLLIN};

    return poll(&p, 1, 0) == 0;
}

/* ---- asking ---- */

/* @name of a prepared statement, or else @sql. */
static void ask(struct pg_line *l, const char *name, const char *sql, struct params *p)
{
    static const struct params none;
    const char *values[MAX_PARAMS] = {NULL};
    int formats[MAX_PARAMS] = {0};

    if (l->pg == NULL)
        return;
    if (p == NULL)
        p = (struct params *)(uintptr_t)&none; /* only read */
    for (int i = 0; i < p->n; i++) {
        values[i] = p->null[i] ? NULL : buf_str(&p->bytes).p + p->at[i];
        formats[i] = 1;
    }
    bool ok =
        !buf_failed(&p->bytes) &&
        (name != NULL ? PQsendQueryPrepared(l->pg, name, p->n, values, p->length, formats, 1)
                      : PQsendQueryParams(l->pg, sql, p->n, NULL, values, p->length, formats, 1));
    if (!ok)
        lost(l, PQerrorMessage(l->pg));
}

static const char *name_of(unsigned statement, char room[16])
{
    snprintf(room, 16, "q%u", statement);
    return room;
}

void line_ask(struct pg_line *l, unsigned statement, struct params *p)
{
    char name[16];

    ask(l, name_of(statement, name), NULL, p);
}

bool line_prepare(struct pg_line *l, const char *const *statements, unsigned from, unsigned to)
{
    bool ok = PQenterPipelineMode(l->pg) == 1;
    char name[16];

    for (unsigned i = from; ok && i < to; i++)
        ok = PQsendPrepare(l->pg, name_of(i, name), statements[i], 0, NULL) == 1;
    if (!ok)
        return false;
    line_send(l);
    for (unsigned i = from; i < to && l->pg != NULL; i++) {
        PGresult *r;
        ok &= line_answer(l, &r) == LINE_OK;
        PQclear(r);
    }
    return l->pg != NULL && line_done(l) == LINE_OK && ok;
}

void line_ask_sql(struct pg_line *l, const char *sql, struct params *p)
{
    ask(l, NULL, sql, p);
}

/* While we write, the server writes too: whoever does not read stops both. */
static bool flush(struct pg_line *l)
{
    int rc;

    while ((rc = PQflush(l->pg)) == 1)
        if (!wait_for(l, POLLIN | POLLOUT) || !PQconsumeInput(l->pg))
            return false;
    return rc == 0;
}

void line_send(struct pg_line *l)
{
    if (l->pg != NULL && (!PQpipelineSync(l->pg) || !flush(l)))
        lost(l, "the line to the database server broke");
}

/* ---- answers ---- */

/* The next result of the library, waited for; false: lost. */
static bool next_result(struct pg_line *l, PGresult **ret)
{
    *ret = NULL;
    if (l->pg == NULL)
        return false;
    if (!flush(l)) {
        lost(l, "the line to the database server broke");
        return false;
    }
    while (PQisBusy(l->pg)) {
        if (!wait_for(l, POLLIN)) {
            lost(l, "the database server does not answer");
            return false;
        }
        if (!PQconsumeInput(l->pg)) {
            lost(l, PQerrorMessage(l->pg));
            return false;
        }
    }
    *ret = PQgetResult(l->pg);
    return true;
}

/* By its class: https://www.postgresql.org/docs/15/errcodes-appendix.html */
static enum line_end judge(struct pg_line *l, const PGresult *r)
{
    const char *code = PQresultErrorField(r, PG_DIAG_SQLSTATE);
    const char *text = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);

    if (code == NULL) {
        note(l, PQerrorMessage(l->pg));
        return PQstatus(l->pg) == CONNECTION_OK ? LINE_FAILED : LINE_LOST;
    }
    note(l, text != NULL ? text : code);
    /* deadlock or serialization, lock timeout, another transaction inserted the key first */
    if (strncmp(code, "40", 2) == 0 || strcmp(code, "55P03") == 0 || strcmp(code, "23505") == 0)
        return LINE_AGAIN;
    if (strncmp(code, "53", 2) == 0)
        return LINE_FULL;
    /* terminated, shutting down, idle in transaction for too long, read-only after a failover */
    if (strncmp(code, "57P", 3) == 0 || strncmp(code, "08", 2) == 0 || strcmp(code, "25P03") == 0 ||
        strcmp(code, "25006") == 0)
        return LINE_LOST;
    return LINE_FAILED;
}

static enum line_end take(struct pg_line *l, PGresult *r, PGresult **ret)
{
    ExecStatusType status = PQresultStatus(r);
    enum line_end end = LINE_OK;

    if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK || status == PGRES_SINGLE_TUPLE) {
        *ret = r;
        return LINE_OK;
    }
    if (status == PGRES_PIPELINE_ABORTED)
        end = LINE_FAILED; /* the one before it said why */
    else
        end = judge(l, r);
    PQclear(r);
    if (end == LINE_LOST)
        line_close(l);
    return end;
}

enum line_end line_answer(struct pg_line *l, PGresult **ret)
{
    PGresult *r, *end;

    *ret = NULL;
    if (!next_result(l, &r) || r == NULL)
        return l->pg == NULL ? LINE_LOST : lost(l, "the database server left out an answer");
    enum line_end e = take(l, r, ret);
    if (e == LINE_LOST)
        return e;
    if (!next_result(l, &end)) { /* every answer ends with none */
        if (*ret != NULL)
            PQclear(*ret);
        *ret = NULL;
        return LINE_LOST;
    }
    PQclear(end);
    return e;
}

enum line_end line_done(struct pg_line *l)
{
    PGresult *r;

    if (!next_result(l, &r))
        return LINE_LOST;
    bool is_sync = r != NULL && PQresultStatus(r) == PGRES_PIPELINE_SYNC;
    PQclear(r);
    return is_sync ? LINE_OK : lost(l, "the answers of the database server are out of step");
}

enum line_end line_row(struct pg_line *l, PGresult **ret)
{
    PGresult *r;

    *ret = NULL;
    if (!next_result(l, &r))
        return LINE_LOST;
    if (r == NULL)
        return LINE_OK;
    enum line_end e = take(l, r, ret);
    if (e != LINE_OK || PQntuples(*ret) > 0)
        return e;
    PQclear(*ret); /* the empty one that ends the rows */
    *ret = NULL;
    return next_result(l, &r) ? LINE_OK : LINE_LOST;
}

enum line_end line_text(struct pg_line *l, const char *sql, PGresult **ret)
{
    PGresult *r, *last = NULL;
    enum line_end e = LINE_OK;

    if (l->pg == NULL || !PQsendQuery(l->pg, sql))
        return lost(l, l->pg != NULL ? PQerrorMessage(l->pg) : "no line");
    do {
        if (!next_result(l, &r))
            e = LINE_LOST;
        else if (r != NULL && e == LINE_OK) {
            PQclear(last);
            last = NULL;
            e = take(l, r, &last);
        } else if (r != NULL) {
            PQclear(r);
        }
    } while (r != NULL && e != LINE_LOST);
    if (ret != NULL && e == LINE_OK)
        *ret = last;
    else if (last != NULL)
        PQclear(last);
    return e;
}

bool line_word(struct pg_line *l, const char *sql, char *ret, size_t size)
{
    PGresult *r = NULL;
    bool ok = line_text(l, sql, &r) == LINE_OK;

    ret[0] = '\0';
    if (ok && r != NULL && PQntuples(r) > 0)
        snprintf(ret, size, "%s", PQgetvalue(r, 0, 0));
    PQclear(r);
    return ok;
}

/* ---- parameters and columns in the binary form of the server ---- */
/* Numbers go most significant byte first; an array is its dimensions, its type, and each item
 * behind its length. */

void params_reset(struct params *p)
{
    buf_reset(&p->bytes);
    p->n = 0;
}

void params_done(struct params *p)
{
    buf_done(&p->bytes);
}

static void param_begin(struct params *p)
{
    p->at[p->n] = p->bytes.n;
    p->null[p->n] = false;
}

static void param_end(struct params *p)
{
    p->length[p->n] = (int)(p->bytes.n - p->at[p->n]);
    p->n++;
}

static void add_i32(struct params *p, int32_t v)
{
    uint32_t be = htobe32((uint32_t)v);
    buf_add(&p->bytes, &be, sizeof be);
}

static void add_i64(struct params *p, int64_t v)
{
    uint64_t be = htobe64((uint64_t)v);
    buf_add(&p->bytes, &be, sizeof be);
}

void param_i32(struct params *p, int32_t v)
{
    param_begin(p);
    add_i32(p, v);
    param_end(p);
}

void param_i64(struct params *p, int64_t v)
{
    param_begin(p);
    add_i64(p, v);
    param_end(p);
}

void param_bool(struct params *p, bool v)
{
    param_begin(p);
    buf_add_c(&p->bytes, v ? 1 : 0);
    param_end(p);
}

void param_bytes(struct params *p, struct str s)
{
    param_begin(p);
    buf_add_str(&p->bytes, s);
    param_end(p);
}

void param_opt(struct params *p, struct str s)
{
    param_begin(p);
    p->null[p->n] = s.p == NULL;
    buf_add_str(&p->bytes, s);
    param_end(p);
}

/* ---- arrays ---- */

enum { AT_HAS_NULL = 4, AT_COUNT = 12, HEAD = 20 };

void array_begin(struct params *p, enum param_type type)
{
    param_begin(p);
    add_i32(p, 1); /* dimension */
    add_i32(p, 0); /* no NULL so far */
    add_i32(p, (int32_t)type);
    add_i32(p, 0); /* items so far */
    add_i32(p, 1); /* the first is number 1 */
}

static void put_at(struct params *p, size_t at, uint32_t v)
{
    uint32_t be = htobe32(v);
    if (!buf_failed(&p->bytes))
        memcpy(p->bytes.p + p->at[p->n] + at, &be, sizeof be);
}

static void count(struct params *p)
{
    uint32_t be;

    if (buf_failed(&p->bytes))
        return;
    memcpy(&be, p->bytes.p + p->at[p->n] + AT_COUNT, sizeof be);
    put_at(p, AT_COUNT, be32toh(be) + 1);
}

void array_i32(struct params *p, int32_t v)
{
    add_i32(p, sizeof v);
    add_i32(p, v);
    count(p);
}

void array_i64(struct params *p, int64_t v)
{
    add_i32(p, sizeof v);
    add_i64(p, v);
    count(p);
}

void array_bytes(struct params *p, struct str s)
{
    add_i32(p, (int32_t)s.n);
    buf_add_str(&p->bytes, s);
    count(p);
}

void array_opt(struct params *p, struct str s)
{
    if (s.p != NULL) {
        array_bytes(p, s);
        return;
    }
    add_i32(p, -1);
    put_at(p, AT_HAS_NULL, 1);
    count(p);
}

void array_end(struct params *p)
{
    param_end(p);
}

/* ---- answers ---- */

struct str column_bytes(const PGresult *r, int row, int column)
{
    if (PQgetisnull(r, row, column))
        return STR_NULL;
    return str_make(PQgetvalue(r, row, column), (size_t)PQgetlength(r, row, column));
}

int64_t column_int(const PGresult *r, int row, int column)
{
    struct str s = column_bytes(r, row, column);
    int64_t v = s.n > 0 ? (int8_t)*s.p : 0; /* keeps the sign */

    for (size_t i = 1; i < s.n; i++)
        v = (int64_t)((uint64_t)v << 8 | (uint8_t)s.p[i]);
    return v;
}
