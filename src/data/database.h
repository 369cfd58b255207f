/* database.h - the SQLite database of one store: entries, marks to filter by, the full-text index.
 *
 * Called by data.c on the threads of store/lanes.h, never on the loop. */
#pragma once
#include "data/ask.h"
#include "data/entry.h"
#include "store/lanes.h"

struct database; /* a connection */

extern const struct lanes_ops
    database_ops; /* ctx: the directory, a C string; key: database_key() */
/* "TENANT/@NS", safe as a path below the directory. */
void database_key(struct str tenant, struct str ns, struct buf *out);

void database_for_job(struct database *b, const struct lane_job *job);
const char *database_problem(const struct database *b);

/* Bytes on disk of all stores of the tenant, free pages of this store excepted; cached for one
 * second. */
uint64_t database_tenant_bytes(struct database *b);
bool database_write(struct database *b, const struct data_entry *e);
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
