/* database.h - the SQLite database of one store: entries, marks to filter by, the full-text index.
 *
 * Called by data.c on the threads of store/jobs.h, never on the loop. */
#pragma once
#include "data/ask.h"
#include "data/entry.h"
#include "store/jobs.h"

struct database; /* a connection */
struct remote;

struct database_location {
    const char *dir; /* of the files */
    /* Several nodes share the entries, and the files are built from them; used by the one writer
     * thread.  NULL: the files are all there is. */
    struct remote *remote;
    /* A file is up to date when it says this number, which another process, or a file that could
     * not be written, changes; atomic. */
    uint64_t session;
};

extern const struct db_jobs_ops
    database_ops; /* ctx: struct database_location; key: database_key() */
/* "TENANT/@NS", safe as a path below the directory. */
void database_key(struct str tenant, struct str ns, struct buf *out);

void database_for_job(struct database *b, const struct db_job *job);
const char *database_problem(const struct database *b);

/* Of a reader: the file does not have all entries yet, and the writer must answer. */
bool database_is_behind(const struct database *b);

/* Bytes on disk of all stores of the tenant, free pages of this store excepted; cached for one
 * second. */
uint64_t database_tenant_bytes(struct database *b);
bool database_write(struct database *b, const struct data_entry *e);
/* With a remote: the names of the tenant's stores, as in database_key() behind the '/'. */
typedef bool database_name_cb(void *ctx, struct str name);
bool database_names(struct database *b, database_name_cb *cb, void *ctx);
/* Deletes everything, and overwrites the freed pages. */
bool database_clear(struct database *b);
/* Deletes up to @max entries that have expired by @now.  *@ret_more: more are left. */
bool database_purge(struct database *b, int64_t now, size_t max, bool *ret_more);

/* False: stop the iteration. */
typedef bool data_found_cb(void *ctx, const struct data_found *f);
enum data_end {
    DATA_OK,
    DATA_FAILED,     /* the connection failed */
    DATA_BAD_SYNTAX, /* database_problem() has FTS5's message */
};
/* At most one call of @cb. */
enum data_end database_get(struct database *b, const uint8_t uuid[DATA_UUID_BYTES], int64_t now,
                           data_found_cb *cb, void *ctx);
/* *@ret_expired: the number of expired entries that were skipped; database_purge() deletes them. */
enum data_end database_query(struct database *b, const struct data_ask *a, int64_t now,
                             data_found_cb *cb, void *ctx, uint64_t *ret_expired);
/* For a migration: every entry, expired or not, oldest first, without marks. */
typedef bool database_entry_cb(void *ctx, int64_t id, const struct data_entry *e);
bool database_each(struct database *b, database_entry_cb *cb, void *ctx);
