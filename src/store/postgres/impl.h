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

/* Prepared on every line.  Their text is in statements.c. */
enum pg_statement {
    PG_BEGIN,
    PG_COMMIT,
    PG_ROLLBACK,
    PG_FATE,
    PG_FENCES,
    PG_KEYS,
    PG_NUMBER,
    PG_RAISE,
    PG_APPEND,
    PG_ONCE,
    PG_SEEN,
    PG_ACK,
    PG_MARK,
    PG_KV_SET,
    PG_KV_TRY,
    PG_ERASE_RECORDS,
    PG_ERASE_ROWS,
    PG_LEASE,
    PG_FORGET_SEEN,
    PG_FORGET_ONCE,
    PG_SIZE,
    PG_FETCH,
    PG_LIST,
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
/* Between rounds: nothing came from the server.  What comes then is its farewell. */
bool line_is_quiet(const struct pg_line *l);
void line_begin(struct pg_line *l, int64_t ms); /* a round of questions and answers begins */
struct params;
/* Queue a question; failures are told by the answers. */
void line_ask(struct pg_line *l, enum pg_statement s, struct params *p);
void line_ask_named(struct pg_line *l, const char *name, struct params *p); /* of another's */
/* The same with a text instead of a statement; its parameters say their types themselves. */
void line_ask_sql(struct pg_line *l, const char *sql, struct params *p);
void line_send(struct pg_line *l); /* pipeline: what was asked goes out; answers follow in order */
/* The next answer, owned by the caller (PQclear), with LINE_OK; else NULL. */
enum line_end line_answer(struct pg_line *l, PGresult **ret);
enum line_end line_done(struct pg_line *l); /* pipeline: after the last answer of a line_send() */
/* No pipeline: rows one at a time after one line_ask(); *@ret NULL: that was the last. */
enum line_end line_row(struct pg_line *l, PGresult **ret);
/* No pipeline: several commands as text; the last answer, as text, where @ret is not NULL. */
enum line_end line_text(struct pg_line *l, const char *sql, PGresult **ret);

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

/* ---- params.c: what goes with a question, in the server's binary form ---- */

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
void param_null(struct params *p);
/* An array of one dimension: begin, each item, end. */
enum param_type {
    PARAM_BOOL = 16,
    PARAM_BYTES = 17,
    PARAM_I64 = 20,
    PARAM_I32 = 23,
    PARAM_TEXT = 25
};
void array_begin(struct params *p, enum param_type type);
void array_i32(struct params *p, int32_t v);
void array_i64(struct params *p, int64_t v);
void array_bool(struct params *p, bool v);
void array_bytes(struct params *p, struct str s);
void array_null(struct params *p);
void array_end(struct params *p);

/* A column of an answer. */
int64_t column_int(const PGresult *r, int row, int column);      /* of any width; NULL is 0 */
struct str column_bytes(const PGresult *r, int row, int column); /* borrowed; NULL is absent */

/* ---- the store ---- */

/* limbo.c: the keys of appends whose commit nobody could tell of. */
struct limbo_key {
    struct hash128 key;
    uint64_t row;
    int64_t at_ms;
};
struct pg_limbo {
    struct limbo_key *keys; /* owned; those from @n_sure on are in doubt */
    size_t n, cap, n_sure;
    struct pg_mark mark; /* of the transaction in doubt */
};

struct pg_number;
struct pg_numbers {           /* numbers.c */
    struct pg_number **pages; /* owned */
};

/* The appends of one transaction: plan.c */
struct plan {
    struct store_append **all; /* owned; in order of submission */
    struct store_append **by;  /* owned; the same, sorted by key or by mailbox */
    size_t n, cap;
    size_t n_keys, n_rows; /* asked for: keys that may come once, rows that get a number */
    bool trusting;         /* nobody else appends: keys are not looked for */
    bool new_box;          /* a mailbox was not there: it is made */
    bool numbering;        /* the database was asked for numbers */
    struct buf seen;       /* the keys that go into the record of the batch */
    int64_t seen_at_ms;    /* the newest of them */
};

struct pg_order {          /* order.c */
    struct store_op **was; /* owned; as they were submitted */
    struct store_op **now; /* owned */
    size_t n, cap;
};

struct kv_last { /* write.c: of several changes of a record the last */
    const struct store_kv *item;
    size_t at; /* its place in the run */
};

struct store_postgres {
    struct store base;
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
    bool read_ill; /* of the read thread: the last read failed */
    bool moving;   /* not a server: tables that are being filled are welcome (move.c) */

    /* of the write thread */
    struct plan plan;
    struct pg_mark mark;
    struct pg_limbo limbo;
    struct pg_numbers numbers;
    struct pg_order order;
    struct kv_last *kvs; /* owned */
    size_t cap_kvs;
    struct buf asked;        /* which runs of the transaction were asked for */
    int64_t look_us;         /* when we look at the size again */
    char batch_problem[160]; /* why something in this batch failed; empty: all well */
    int64_t told_bytes;      /* of the database; atomic */
};

static inline struct store_postgres *postgres_of(struct store *st)
{
    return container_of(st, struct store_postgres, base);
}

/* Another node cannot write while this one does. */
static inline bool pg_is_guarded(const struct store_postgres *st)
{
    return __atomic_load_n(&st->base.guard.epoch, __ATOMIC_ACQUIRE) != 0;
}

/* statements.c */
const char *pg_statement_name(enum pg_statement s);
bool pg_statements_prepare(struct pg_line *l, enum line_use use);

/* schema.c: tables, functions, the numbers of this start */
bool pg_schema_prepare(struct store_postgres *st, char *ret_why);

/* A group is the ops of one transaction: from @first up to @end, which is not part of it. */

/* order.c: ops that do not touch each other's rows change places, so that those of one kind follow
 * each other and become one question.  pg_order_begin() links them anew up to the same @end and
 * gives the new first; pg_order_end() puts them back. */
struct store_op *pg_order_begin(struct pg_order *o, struct store_op *first, struct store_op *end);
void pg_order_end(struct pg_order *o, struct store_op *end);
void pg_order_done(struct pg_order *o);

/* batch.c */
void pg_batch_run(struct store *base, struct store_op *first, struct store_stats *counts);
bool pg_batch_forget(struct store *base, int64_t before_ms);
void pg_batch_tend(struct store *base, bool quiet);
int64_t pg_batch_tend_due_us(struct store *base);

/* plan.c: what the appends of a group need before they are written */
void pg_plan_begin(struct store_postgres *st, struct store_op *first, struct store_op *end);
void pg_plan_ask(struct store_postgres *st); /* before anything is written */
/* LINE_AGAIN: keys were there already; they are noted, and the group starts anew without them. */
enum line_end pg_plan_read(struct store_postgres *st);
int pg_plan_ask_keys(struct store_postgres *st); /* after the rows; the number of answers to come */
void pg_plan_undo(struct store_postgres *st);    /* the transaction did not happen, or who knows */
void pg_plan_done(struct plan *p);

/* numbers.c.  Under the guard the numbers of a mailbox are taken in blocks, and given out from
 * memory.  What is left of a block when its process ends, or when a transaction fails, is a gap. */
size_t pg_numbers_short(struct pg_numbers *t, uint32_t box, size_t n); /* how many to ask for */
void pg_numbers_add(struct pg_numbers *t, uint32_t box, uint64_t last, size_t n); /* were given */
uint64_t pg_numbers_use(struct pg_numbers *t, uint32_t box, size_t n);            /* the first */
void pg_numbers_drop(struct pg_numbers *t, uint32_t box);
void pg_numbers_done(struct pg_numbers *t);

/* limbo.c.  Whoever holds the guard of the store is the only one that appends and knows the keys
 * that came before, as the owner of an embedded store does: they are written down, and read at the
 * next start, but not looked for.  What it cannot know is whether a transaction happened whose end
 * nobody told it; its appends are tried again, and must stay one row each. */
void pg_limbo_add(struct store_postgres *st);    /* the plan's appends: their commit is in doubt */
bool pg_limbo_settle(struct store_postgres *st); /* before the next transaction; false: not yet */
const struct limbo_key *pg_limbo_find(const struct pg_limbo *l, struct hash128 key);
void pg_limbo_forget(struct pg_limbo *l, int64_t before_ms);
void pg_limbo_done(struct pg_limbo *l);

/* write.c: a run of ops of one kind becomes one question */
struct store_op *pg_write_run_end(struct store_op *first, struct store_op *end);
bool pg_write_ask(struct store_postgres *st, struct store_op *first, struct store_op *end);
/* Does the answer to one of them say more than that it was done? */
bool pg_write_tells_more(struct store_op *first, struct store_op *end);
bool pg_write_ask_replaced(struct store_postgres *st, struct store_op *first, struct store_op *end);
enum line_end pg_write_read(struct store_postgres *st, struct store_op *first,
                            struct store_op *end);

/* owner.c: leases, and what a fence says.  False: there is nothing to ask. */
bool pg_owner_ask_fences(struct store_postgres *st, struct store_op *first, struct store_op *end);
enum line_end pg_owner_read_fences(struct store_postgres *st, struct store_op *first,
                                   struct store_op *end);
enum line_end pg_owner_run(struct store_postgres *st, struct store_lease *l);

/* read.c */
void pg_read_run(struct store *base, struct store_op *op);
enum bh_err pg_load_rows(struct store *base, store_row_cb *cb, void *ctx);
enum bh_err pg_load_records(struct store *base, const char *ns, store_record_cb *cb, void *ctx);
enum bh_err pg_load_under(struct store *base, const char *ns, struct str prefix,
                          store_record_cb *cb, void *ctx);
enum bh_err pg_load_keys(struct store *base, int64_t since_ms, store_key_cb *cb, void *ctx);
