/* migrate.h - copies a whole store into another kind of store: SQLite to PostgreSQL and back.
 *
 * A migration copies records, mailbox rows with their ids, deduplication keys and their hash key.
 * It does not copy leases.  The target becomes a usable store only after both ends compared equal
 * (transfer.h); until then no server starts on it.  An interrupted migration into PostgreSQL
 * resumes where it stopped, as long as the source is the same.
 *
 * `bellhop store migrate` calls this module.  All calls block, so the loop never calls them. */
#pragma once
#include "base/err.h"
#include "store/transfer.h"

enum migrated_table { MIGRATED_RECORDS, MIGRATED_ROWS, MIGRATED_SEEN, N_MIGRATED };
extern const struct transfer_table migrate_tables[N_MIGRATED];

struct migrated {
    uint64_t n[N_MIGRATED];
    uint64_t resumed; /* how many of these an earlier try had copied */
};

/* From the database file @db into the PostgreSQL at @url.  BH_CANCELLED: @each stopped it.
 * @ret_why: 256 bytes, for people. */
enum bh_err store_migrate_in(const char *db, const char *url, transfer_cb *each, void *ctx,
                             struct migrated *ret, char *ret_why) BH_MUST_USE;
/* From the PostgreSQL at @url into the file @db, which must not exist. */
enum bh_err store_migrate_out(const char *url, const char *db, transfer_cb *each, void *ctx,
                              struct migrated *ret, char *ret_why) BH_MUST_USE;

/* ---- the two kinds of store, for migrate.c only ----
 *
 * Statements behind those of transfer.h.  A store's identity is its deduplication key, and how
 * often it was started: a later start makes it another one. */
enum {
    MIGRATE_IDENTITY = N_MIGRATED * TRANSFER_STATEMENTS + TRANSFER_REST, /* -> key, starts */
    MIGRATE_FINISH,   /* starts, key: the target is a store from now on */
    MIGRATE_CLEAR,    /* deletes what a new store has */
    MIGRATE_IS_USED,  /* -> a row, if there is anything besides that */
    MIGRATE_MARK,     /* -> the mark of a migration that was begun */
    MIGRATE_MARK_SET, /* its new text */
    MIGRATE_LEASED,   /* -> a row, while a server uses it */
    N_MIGRATE_STATEMENTS
};
/* NULL: @ret_why.  @fresh: make the file, as a target.  *@ret_lock is a descriptor to close behind
 * the connection, or -1. */
struct sqldb *migrate_open_file(const char *path, bool fresh, int *ret_lock, char *ret_why);
/* Rows that are settled but not deleted yet: *@ret_ids is owned by the caller. */
bool migrate_settled(struct sqldb *file, int64_t **ret_ids, size_t *ret_n);
struct sqldb *migrate_open_server(const char *url, char *ret_why);
