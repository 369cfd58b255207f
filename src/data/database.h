/* database.h - the database of one store: entries, their tags, their words.  On a thread of the
 * lanes. */
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

/* Bytes on disk of all stores of this one's tenant; looked at once a second. */
uint64_t database_tenant_bytes(struct database *b);
bool database_write(struct database *b, const struct data_entry *e);
/* Forget everything, and overwrite where it was. */
bool database_clear(struct database *b);
/* Forget up to @max entries that have expired by @now.  *@ret_more: there are others. */
bool database_purge(struct database *b, int64_t now, size_t max, bool *ret_more);

/* False: enough. */
typedef bool data_found_cb(void *ctx, const struct data_found *f);
enum data_end {
    DATA_OK,
    DATA_FAILED,     /* the connection did */
    DATA_BAD_SYNTAX, /* database_problem() says what FTS5 makes of it */
};
/* At most one call of @cb. */
enum data_end database_get(struct database *b, const uint8_t uuid[DATA_UUID_BYTES], int64_t now,
                           data_found_cb *cb, void *ctx);
/* *@ret_expired: how many were passed over that database_purge() would forget. */
enum data_end database_query(struct database *b, const struct data_ask *a, int64_t now,
                             data_found_cb *cb, void *ctx, uint64_t *ret_expired);
