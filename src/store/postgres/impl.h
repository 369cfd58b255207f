/* impl.h - what the files of the PostgreSQL store share; nobody outside this folder includes it.
 *
 * Who touches what:
 *      the loop thread    submit, shrink, stats, forget_keys, the done() calls, open and close
 *      the write thread   @main, once open() returned
 *      the read thread    @reader
 *      loaders            @loader, on the loop thread, holding @db_lock, which the write thread
 *                         holds while it works on a batch
 */
#pragma once
#include <pthread.h>
#include "base/buf.h"
#include "store/postgres/postgres.h"
#include "store/postgres/pq_late.h"
#include "store/result.h"
#include "store/worker.h"

#define LINE_OPEN_MS 3000     /* to connect and authenticate */
#define LINE_RETRY_MS 500     /* after a connection failed: until the next try */
#define COMMIT_LOOKUP_MS 5000 /* to find out whether a commit whose answer was lost happened */
#define BATCH_TRIES 8         /* of a transaction that conflicted with another one */
#define LOOK_ROWS 4096        /* rows of one read, at most */
#define FORGET_ROWS 1024      /* deduplication records dropped per transaction */
#define PG_SCHEMA_LOCK "7094702830" /* an advisory lock, held while tables change */
#define SIZE_LOOK_MS 60000          /* between two queries for the database's size */

/* Prepared on every line.  Their text is in schema.c. */
enum pg_statement {
    PG_BEGIN,
    PG_COMMIT,
    PG_ROLLBACK,
    PG_FATE,
    PG_GUARD,
    PG_APPEND,
    PG_SEEN,
    PG_ACK,
    PG_MARK,
    PG_KV_SET,
    PG_KV_TRY,
    PG_ERASE,
    PG_LEASE,
    PG_FORGET,
    PG_SIZE,
    PG_FETCH,
    PG_SCAN_UP,
    PG_SCAN_DOWN,
    PG_LOAD_ROWS,
    PG_LOAD_RECORDS,
    PG_LOAD_KEYS,
    N_STATEMENTS
};

/* ---- line.c: one connection, on which every wait has a deadline ---- */

enum line_end {
    LINE_OK,
    LINE_AGAIN,   /* conflicted with another transaction: a retry may work */
    LINE_FULL,    /* the server's disk is full */
    LINE_FAILED,  /* the server refused the statement */
    LINE_FENCED,  /* the lease of store_guard() is not held any more */
    LINE_LOST,    /* the connection is lost or silent; this side has closed it */
    LINE_UNKNOWN, /* of a commit: its answer was lost, and its outcome is not known */
};

struct pg_line {
    PGconn *pg;          /* owned; NULL: none */
    int64_t deadline_us; /* of the round under way */
    int64_t retry_us;    /* after a failure: when line_open() may try again */
    char problem[160];   /* of the last failure, for people */
};

enum line_use { LINE_READS, LINE_WRITES /* in pipeline mode */, LINE_PLAIN /* no statements */ };
bool line_open(struct pg_line *l, const char *url, enum line_use use); /* false: see problem */
void line_close(struct pg_line *l);
/* Called between rounds.  False: the server sent something, so it is closing the connection. */
bool line_is_quiet(const struct pg_line *l);
void line_begin(struct pg_line *l, int64_t ms); /* a round of statements and answers begins */
struct params;
/* Prepares the statements in one round, and leaves the line in pipeline mode. */
bool line_prepare(struct pg_line *l, const char *const *statements, unsigned from, unsigned to);
/* Queues a prepared statement.  The answers report failures. */
void line_ask(struct pg_line *l, unsigned statement, struct params *p);
/* Queues SQL text instead of a prepared statement; its parameters carry their types. */
void line_ask_sql(struct pg_line *l, const char *sql, struct params *p);
void line_send(
    struct pg_line *l); /* pipeline: sends the queued statements; answers come in order */
/* Reads the next answer.  LINE_OK: *@ret is owned by the caller (PQclear); else it is NULL. */
enum line_end line_answer(struct pg_line *l, PGresult **ret);
enum line_end line_done(struct pg_line *l); /* pipeline: after the last answer of a line_send() */
/* Folds two ends of a round into one: LINE_LOST wins, else the first that is not LINE_OK. */
static inline void line_fold(enum line_end *into, enum line_end e)
{
    if (e == LINE_LOST || *into == LINE_OK)
        *into = e;
}
/* No pipeline: the next row after one line_ask(); *@ret NULL: there is no other row. */
enum line_end line_row(struct pg_line *l, PGresult **ret);
/* No pipeline: runs several commands as text.  *@ret gets the last answer, unless @ret is NULL. */
enum line_end line_text(struct pg_line *l, const char *sql, PGresult **ret);
/* Runs @sql, which answers with one word; no row: an empty word.  False: it failed. */
bool line_word(struct pg_line *l, const char *sql, char *ret, size_t size);

/* ---- fate.c: a commit whose answer was lost ----
 *
 * Every writing transaction writes its number into this writer's row of the table `fate`, so that
 * fate.c can look up later whether the transaction committed.  The server's transaction id tells
 * only whether the transaction has ended: after a crash the server may give the id of an unwritten
 * transaction to another one. */

#define PG_FATE_TABLE \
    "CREATE TABLE IF NOT EXISTS fate (writer bigint PRIMARY KEY, n bigint NOT NULL, at " \
    "timestamptz NOT NULL) WITH (fillfactor = 50);"
/* The first statement of a transaction; it answers with the server's transaction id. */
#define PG_FATE_MARK(writer, n) \
    "INSERT INTO fate VALUES (" writer ", " n ", clock_timestamp()) ON CONFLICT (writer) DO " \
    "UPDATE SET n = excluded.n, at = excluded.at RETURNING pg_current_xact_id()::text"

struct pg_mark {
    int64_t writer, n; /* 0: nothing was written yet */
    char xact[32];     /* the server's transaction id; empty: not known yet */
};
enum pg_fate { FATE_UNKNOWN, FATE_OPEN /* never told */, FATE_DONE, FATE_UNDONE };
void pg_mark_next(struct pg_mark *m); /* for the next transaction */
void pg_mark_read(struct pg_mark *m, const PGresult *r);
/* Looks the transaction up until its fate is known, for @ms, but at least once. */
enum pg_fate pg_find_fate(const char *url, const struct pg_mark *m, int64_t ms);

/* ---- line.c: the parameters of a statement, in the server's binary form ---- */

#define MAX_PARAMS 20
struct params {
    struct buf bytes;
    size_t at[MAX_PARAMS]; /* where each begins */
    int length[MAX_PARAMS];
    bool null[MAX_PARAMS];
    int n;
};
void params_reset(struct params *p);
void params_done(struct params *p);
void param_i32(struct params *p, int32_t v);
void param_i64(struct params *p, int64_t v);
void param_bool(struct params *p, bool v);
void param_bytes(struct params *p, struct str s); /* absent becomes empty */
void param_opt(struct params *p, struct str s);   /* absent becomes NULL */
/* An array of one dimension: begin, each item, end. */
enum param_type {
    PARAM_BYTES = 17,
    PARAM_I64 = 20,
    PARAM_I32 = 23,
};
void array_begin(struct params *p, enum param_type type);
void array_i32(struct params *p, int32_t v);
void array_i64(struct params *p, int64_t v);
void array_bytes(struct params *p, struct str s);
void array_opt(struct params *p, struct str s); /* absent becomes NULL */
void array_end(struct params *p);

/* A column of an answer. */
int64_t column_int(const PGresult *r, int row, int column);      /* of any width; NULL is 0 */
struct str column_bytes(const PGresult *r, int row, int column); /* borrowed; NULL is absent */

/* ---- the store ---- */

struct kv_last { /* write.c: the last of several changes of one record */
    const struct store_kv *item;
    size_t at; /* its place in the run */
};

struct store_postgres {
    struct store_worker worker;
    struct log log;
    char *url;         /* owned; secret */
    int64_t answer_ms; /* timeout of a round */

    struct pg_line main; /* used under db_lock */
    pthread_mutex_t db_lock;
    struct pg_line reader;
    struct params reader_params;
    struct pg_line loader; /* used under db_lock, like the next one */
    struct params params;
    bool moving;  /* migrate.c, not a server: accepts tables that a migration is filling */
    bool looking; /* store_postgres_look(), not a server: creates and changes nothing */
    bool empty;   /* @looking found no tables */

    /* of the write thread */
    struct pg_mark mark;     /* of the newest transaction */
    bool in_doubt;           /* it is not known yet whether that transaction committed */
    struct store_op **asked; /* owned; by statement: the op that gets the answer; NULL: none */
    size_t n_asked, cap_asked;
    struct kv_last *kvs; /* owned */
    size_t cap_kvs;
    struct buf keys;         /* deduplication keys of the transaction */
    int64_t look_us;         /* when the size is queried again */
    char batch_problem[160]; /* why an op of this batch failed; empty: none did */
    int64_t told_bytes;      /* the database's size for store_stats; atomic */
};

static inline struct store_postgres *postgres_of(struct store *st)
{
    return container_of(st, struct store_postgres, worker.base);
}

/* schema.c: statements */
extern const char *const pg_statements[N_STATEMENTS];

/* schema.c: creates or migrates the tables and functions, and takes a boot number */
bool pg_schema_prepare(struct store_postgres *st, char *ret_why);

/* batch.c: transactions and leases, and the write thread's work between them */
void pg_batch_run(struct store *base, struct store_op *first, struct store_stats *counts);
bool pg_batch_forget(struct store *base, int64_t before_ms);
void pg_batch_maintain(struct store *base, bool quiet);
int64_t pg_batch_maintain_due_us(struct store *base);
/* One request on a line of LINE_WRITES.  LINE_OK: the answer is in @l. */
enum line_end pg_lease_ask(struct pg_line *line, struct params *p, int64_t answer_ms,
                           struct store_lease *l);

/* write.c: the ops of one transaction, from @first up to @end, which is not part of it */
void pg_write_ask(struct store_postgres *st, struct store_op *first, struct store_op *end);
enum line_end pg_write_read(struct store_postgres *st);

/* read.c */
void pg_read_run(struct store *base, struct store_op *op);
enum bh_err pg_load_rows(struct store *base, store_row_cb *cb, void *ctx);
enum bh_err pg_load_records(struct store *base, const char *ns, struct str prefix,
                            store_record_cb *cb, void *ctx);
enum bh_err pg_load_keys(struct store *base, int64_t since_ms, store_key_cb *cb, void *ctx);
