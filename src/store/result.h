/* result.h - builds the results of reads: one array and one arena per op, so a row needs no
 * allocation of its own.  For implementations of store.h only. */
#pragma once
#include "store/store.h"

struct result {             /* one read in progress; on the reader's stack */
    struct arena *arena;    /* becomes the op's memory */
    struct store_row *rows; /* one of these two */
    struct store_record *records;
    size_t n, cap, bytes;
    size_t max_bytes, limit; /* neither is 0 */
};

struct result result_begin(size_t max_bytes, size_t limit); /* 0: the bound, no limit */
/* True when one more item of @bytes fits.  The first item always fits. */
bool result_has_room(const struct result *r, size_t bytes);
void result_add_row(struct result *r, const struct store_row *row); /* copies its texts */
void result_add_record(struct result *r, struct str key, struct str value);
void result_drop(struct result *r); /* the read failed: frees everything */

/* Appends the smallest key above all keys with @prefix to @out.  False: there is no such key. */
bool scan_prefix_end(struct buf *out, struct str prefix);

/* The keys of a scan: from @from up to below @to, or to the end of the namespace unless *@ret_ends.
 * Both are appended to. */
void scan_bounds(const struct store_scan *s, struct buf *from, struct buf *to, bool *ret_ends);

/* Deduplication keys as they are stored, one behind the other. */
void result_add_key(struct buf *out, struct hash128 key);
void result_keys(struct str keys, int64_t at_ms, store_key_cb *cb, void *ctx);

/* Moves the result into the op, which owns it from then on. */
void result_end_fetch(struct result *r, struct store_fetch *f);
void result_end_scan(struct result *r, struct store_scan *s, bool more);

/* Clears the result fields of a read: when it is submitted, and before a retry. */
void result_clear(struct store_op *op);
void result_free(struct store_op *op); /* any kind of op; twice is fine */
size_t result_bytes(const struct store_op *op);
