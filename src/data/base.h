/* base.h - the database of one store: entries, their tags, their words.  On a thread of the
 * lanes. */
#pragma once
#include "data/ask.h"
#include "data/entry.h"
#include "store/lanes.h"

struct data_base; /* a connection */

extern const struct lanes_ops
    data_base_ops; /* ctx: the directory, a C string; key: data_base_key() */
/* "TENANT/@NS", safe as a path below the directory. */
void data_base_key(struct str tenant, struct str ns, struct buf *out);

void data_base_for_job(struct data_base *b, const struct lane_job *job);
const char *data_base_problem(const struct data_base *b);

/* Bytes on disk of all stores of this one's tenant; looked at once a second. */
uint64_t data_base_tenant_bytes(struct data_base *b);
bool data_base_write(struct data_base *b, const struct data_entry *e);
/* Forget everything, and overwrite where it was. */
bool data_base_clear(struct data_base *b);
/* Forget up to @max entries that have expired by @now.  *@ret_more: there are others. */
bool data_base_purge(struct data_base *b, int64_t now, size_t max, bool *ret_more);

/* False: enough. */
typedef bool data_found_cb(void *ctx, const struct data_found *f);
enum data_end {
    DATA_OK,
    DATA_FAILED,     /* the connection did */
    DATA_BAD_SYNTAX, /* data_base_problem() says what FTS5 makes of it */
};
/* At most one call of @cb. */
enum data_end data_base_get(struct data_base *b, const uint8_t uuid[DATA_UUID_BYTES], int64_t now,
                            data_found_cb *cb, void *ctx);
/* *@ret_expired: how many were passed over that data_base_purge() would forget. */
enum data_end data_base_query(struct data_base *b, const struct data_ask *a, int64_t now,
                              data_found_cb *cb, void *ctx, uint64_t *ret_expired);
