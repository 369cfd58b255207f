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

#define LINE_OPEN_MS 3000     /* to reach the server and be let in */
#define LINE_RETRY_MS 500     /* after a line could not be had: no other try before */
#define COMMIT_LOOKUP_MS 5000 /* to find out whether a commit whose answer was lost happened */
#define BATCH_TRIES 8         /* of a transaction that collided with another node's */
#define LOOK_ROWS 4096        /* one read looks at no more */
#define FORGET_ROWS 1024      /* deduplication records dropped per transaction */
#define PG_SCHEMA_LOCK "7094702830" /* an advisory lock: whoever makes or changes tables */
#define SIZE_LOOK_MS 60000          /* between two looks at the size of the database */

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

/* ---- line.c: one connection, and waiting on it no longer than agreed ---- */

enum line_end {
    LINE_OK,
    LINE_AGAIN,   /* collided with another transaction: the same once more may work */
    LINE_FULL,    /* the server has no room */
    LINE_FAILED,  /* the server said no */
    LINE_FENCED,  /* the guard of the store does not hold any more */
    LINE_LOST,    /* the connection is gone, or deaf: closed by us */
    LINE_UNKNOWN, /* of a commit: lost, and nobody can say whether it happened */
};

struct pg_line {
    PGconn *pg;          /* owned; NULL: none */
    int64_t deadline_us; /* of the round under way */
    int64_t retry_us;    /* not before, after a failure to open */
    char problem[160];   /* of the last failure, for people */
};

enum line_use { LINE_READS, LINE_WRITES /* in pipeline mode */, LINE_PLAIN /* no statements */ };
bool line_open(struct pg_line *l, const char *url, enum line_use use); /* false: see problem */
void line_close(struct pg_line *l);
/* Called between rounds.  False: the server sent something, which is its notice that it closes. */
bool line_is_quiet(const struct pg_line *l);
void line_begin(struct pg_line *l, int64_t ms); /* a round of questions and answers begins */
struct params;
/* All at once, whatever the line is for.  Leaves the line in pipeline mode. */
bool line_prepare(struct pg_line *l, const char *const *statements, unsigned from, unsigned to);
/* Queue a question, a statement that was prepared; failures are told by the answers. */
void line_ask(struct pg_line *l, unsigned statement, struct params *p);
/* The same with a text instead of a statement; its parameters say their types themselves. */
void line_ask_sql(struct pg_line *l, const char *sql, struct params *p);
void line_send(struct pg_line *l); /* pipeline: what was asked goes out; answers follow in order */
/* The next answer, owned by the caller (PQclear), with LINE_OK; else NULL. */
enum line_end line_answer(struct pg_line *l, PGresult **ret);
enum line_end line_done(struct pg_line *l); /* pipeline: after the last answer of a line_send() */
/* The worse end of a round: the first that is not LINE_OK, but LINE_LOST above all. */
static inline void line_fold(enum line_end *into, enum line_end e)
{
    if (e == LINE_LOST || *into == LINE_OK)
        *into = e;
}
/* No pipeline: rows one at a time after one line_ask(); *@ret NULL: that was the last. */
enum line_end line_row(struct pg_line *l, PGresult **ret);
/* No pipeline: several commands as text; the last answer, as text, where @ret is not NULL. */
enum line_end line_text(struct pg_line *l, const char *sql, PGresult **ret);
/* The same for one word that @sql answers with; no row is an empty one.  False: it failed. */
bool line_word(struct pg_line *l, const char *sql, char *ret, size_t size);

/* ---- fate.c: a commit whose answer was lost ----
 *
 * Every writing transaction leaves its number in the row of whoever writes, so that it can be told
 * later whether it happened.  The server's own number tells only when it has ended: a server that
 * crashed gives the numbers of transactions which it had not written down to others. */

#define PG_FATE_TABLE \
    "CREATE TABLE IF NOT EXISTS fate (writer bigint PRIMARY KEY, n bigint NOT NULL, at " \
    "timestamptz NOT NULL) WITH (fillfactor = 50);"
/* The first question of a transaction: its answer is the server's number. */
#define PG_FATE_MARK(writer, n) \
    "INSERT INTO fate VALUES (" writer ", " n ", clock_timestamp()) ON CONFLICT (writer) DO " \
    "UPDATE SET n = excluded.n, at = excluded.at RETURNING pg_current_xact_id()::text"

struct pg_mark {
    int64_t writer, n; /* 0: nothing was written yet */
    char xact[32];     /* the server's number; empty: not known yet */
};
enum pg_fate { FATE_UNKNOWN, FATE_OPEN /* never told */, FATE_DONE, FATE_UNDONE };
void pg_mark_next(struct pg_mark *m); /* for the next transaction */
void pg_mark_read(struct pg_mark *m, const PGresult *r);
/* Asks for @ms, but once at least. */
enum pg_fate pg_find_fate(const char *url, const struct pg_mark *m, int64_t ms);

/* ---- line.c: what goes with a question, in the server's binary form ---- */

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

struct kv_last { /* write.c: of several changes of a record the last */
    const struct store_kv *item;
    size_t at; /* its place in the run */
};

struct store_postgres {
    struct store_worker worker;
    struct log log;
    char *url;         /* owned; secret */
    int64_t answer_ms; /* for a round of answers */

    struct pg_line main; /* used under db_lock */
    pthread_mutex_t db_lock;
    struct pg_line reader;
    struct params reader_params;
    struct pg_line loader; /* used under db_lock, like the next one */
    struct params params;
    bool moving;  /* not a server: tables that are being filled are welcome (migrate.c) */
    bool looking; /* not a server: nothing is made or changed */
    bool empty;   /* @looking found no tables */

    /* of the write thread */
    struct pg_mark mark;     /* of the newest transaction */
    bool in_doubt;           /* nobody knows yet whether that one happened */
    struct store_op **asked; /* owned; by statement: whose answer it is; NULL: nobody's own */
    size_t n_asked, cap_asked;
    struct kv_last *kvs; /* owned */
    size_t cap_kvs;
    struct buf keys;         /* deduplication keys of the transaction */
    int64_t look_us;         /* when we look at the size again */
    char batch_problem[160]; /* why something in this batch failed; empty: all well */
    int64_t told_bytes;      /* of the database; atomic */
};

static inline struct store_postgres *postgres_of(struct store *st)
{
    return container_of(st, struct store_postgres, worker.base);
}

/* schema.c: statements */
extern const char *const pg_statements[N_STATEMENTS];

/* schema.c: tables, functions, the numbers of this start */
bool pg_schema_prepare(struct store_postgres *st, char *ret_why);

/* batch.c: transactions, leases, and what the write thread does between them */
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
