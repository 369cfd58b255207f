/* transfer.h - copies tables from one database to another and compares them: SQLite to PostgreSQL
 * and back.  For store/migrate.c and skills/migrate.c, which say what the tables are.
 *
 *      source --row by row--> batches --TRANSFER_WRITE--> target
 *             '----- every row read again and hashed, on both sides -----'
 *
 * Both ends are connections of sqldb.h, in a transaction that the caller began.  The statements of
 * such a connection begin with TRANSFER_STATEMENTS for each table, then has those of enum
 * transfer_rest, then those of the caller.  Blocks: not for the loop. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "store/sqldb.h"

struct transfer_table {
    const char *name;    /* for people: "records" */
    const char *columns; /* i: integer, n: integer or NULL, t: text or NULL, b: bytes */
};

enum {
    /* SQLite: a list of ids that are passed over -> the columns of each row, in a fixed order.
     * PostgreSQL: declares the cursor `rows` for them. */
    TRANSFER_READ,
    TRANSFER_WRITE, /* SQLite: the columns of a row.  PostgreSQL: a list for each column */
    TRANSFER_COUNT, /* -> how many rows */
    TRANSFER_STATEMENTS
};
enum transfer_rest { TRANSFER_FETCH, TRANSFER_CLOSE, TRANSFER_PATIENCE, TRANSFER_REST };
#define TRANSFER_POSTGRES_REST \
    "FETCH 64 FROM rows", "CLOSE rows", \
        "SELECT set_config('statement_timeout', '0', false), " \
        "set_config('idle_in_transaction_session_timeout', '0', false)"
#define TRANSFER_SQLITE_REST "SELECT 1", "SELECT 1", "SELECT 1" /* the file needs none of these */
#define TRANSFER_NULL INT64_MIN /* NULL in a list of integers, as a column n has it */

struct transfer_end {
    struct sqldb *s;       /* owned by the caller */
    bool server;           /* PostgreSQL */
    const int64_t *hidden; /* the ids that a file passes over */
    size_t n_hidden;
};

/* Progress.  Return false to stop. */
typedef bool transfer_cb(void *ctx, uint64_t done, uint64_t all);

struct transfer {
    struct transfer_end from, to;
    const struct transfer_table *tables;
    size_t n_tables; /* 8 at most */
    transfer_cb *each;
    void *ctx;
    /* After every batch: @done rows of the table are written.  NULL: nothing to do. */
    bool (*wrote)(struct transfer *t, size_t table, uint64_t done);
    uint64_t n[8]; /* result: the rows of each table */
    uint64_t done, all;
    bool stopped;
    char *why; /* 256 bytes */
};

/* Counts the rows of the source into n[]; call it first. */
bool transfer_count(struct transfer *t);
/* Copies a table, but for its first @skip rows. */
bool transfer_copy(struct transfer *t, size_t table, uint64_t skip);
/* False: the tables differ (@why), or it failed. */
bool transfer_compare(struct transfer *t);
/* Notes in @why what went wrong on one end, if nothing is there yet; always false. */
bool transfer_failed(struct transfer *t, const struct transfer_end *e);
