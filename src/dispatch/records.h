/* records.h - scans and bulk deletes of store records that free themselves when they end.
 *
 * receipts.c, replies.c and schedule.c use it. */
#pragma once
#include "store/store.h"

/* @s is valid during the callback; its records are valid when @err is BH_OK. */
typedef void record_scan_cb(void *ctx, enum bh_err err, const struct store_scan *s);

/* Reads up to @limit records of @ns whose key starts with @prefix, after the key @after (absent:
 * from the first).  @reverse: in descending order. */
struct record_scan *records_scan(struct store *st, const char *ns, struct str prefix,
                                 struct str after, size_t limit, bool reverse, record_scan_cb *done,
                                 void *ctx) BH_MUST_USE;
void records_cancel(struct record_scan **s); /* @done does not run; sets it to NULL */

/* Deletes all records whose key starts with @prefix and is below @end (absent: no bound).  There is
 * no callback.  A crash may leave some records, which the next call deletes. */
void records_clear(struct store *st, const char *ns, struct str prefix, struct str end);

/* The number that the first @chars hex digits of a key spell. */
uint64_t records_number(struct str key, size_t chars);
