/* move.h - copies a whole store into another kind of store: SQLite to PostgreSQL and back.
 *
 *      source: locked --read in a fixed order--> batches --one transaction each--> target
 *              '------------- counted and hashed, row by row, on both sides -------------'
 *
 * A move copies records, mailbox rows with their ids, deduplication keys and their hash key.  It
 * does not copy leases.  The target becomes a usable store only after both sides compared equal;
 * until then no server starts on it.  An interrupted move into PostgreSQL resumes where it stopped,
 * as long as the source is the same.
 *
 * `bellhop store` calls this.  All calls block, so the loop never does. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

enum store_table { MOVE_RECORDS, MOVE_ROWS, MOVE_SEEN, N_MOVE_TABLES };
const char *store_table_name(enum store_table t); /* "records", "messages", ... */

struct store_moved {
    uint64_t n[N_MOVE_TABLES];
    uint64_t resumed; /* how many of these an earlier try had copied */
};

/* Progress.  Return false to stop; a later move resumes. */
typedef bool store_move_cb(void *ctx, uint64_t done, uint64_t all);

/* From the database file @db into the PostgreSQL at @url.  @ret_why: 256 bytes, for people. */
enum bh_err store_move_in(const char *db, const char *url, store_move_cb *each, void *ctx,
                          struct store_moved *ret, char *ret_why) BH_MUST_USE;
/* From the PostgreSQL at @url into the file @db, which must not exist. */
enum bh_err store_move_out(const char *url, const char *db, store_move_cb *each, void *ctx,
                           struct store_moved *ret, char *ret_why) BH_MUST_USE;
