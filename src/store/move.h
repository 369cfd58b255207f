/* move.h - everything a store keeps, moved from one kind to another: SQLite to PostgreSQL and back.
 *
 *      source: locked --read in a fixed order--> batches --one transaction each--> target
 *              '------------- counted and hashed, row by row, on both sides -------------'
 *
 * Records, mailbox rows with their ids, deduplication keys and the key they are made with; leases
 * are left behind.  A target counts as a store
 * only when both sides were compared and found equal: until then no server starts on it.  A move
 * into PostgreSQL that was interrupted goes on where it stopped, as long as the source is the
 * same.
 *
 * All of it blocks: for commands, not for the loop. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

enum store_table { MOVE_RECORDS, MOVE_ROWS, MOVE_SEEN, N_MOVE_TABLES };
const char *store_table_name(enum store_table t); /* "records", "messages", ... */

struct store_moved {
    uint64_t n[N_MOVE_TABLES];
    uint64_t resumed; /* of all these, there from an earlier try */
};

/* Runs now and then; false: stop, to be gone on with later. */
typedef bool store_move_cb(void *ctx, uint64_t done, uint64_t all);

/* From the database file @db into the PostgreSQL at @url.  @ret_why: 256 bytes, for people. */
enum bh_err store_move_in(const char *db, const char *url, store_move_cb *each, void *ctx,
                          struct store_moved *ret, char *ret_why) BH_MUST_USE;
/* From the PostgreSQL at @url into the file @db, which must not exist. */
enum bh_err store_move_out(const char *url, const char *db, store_move_cb *each, void *ctx,
                           struct store_moved *ret, char *ret_why) BH_MUST_USE;
