/* records.h - reading and clearing records of the store as objects that own themselves. */
#pragma once
#include "store/store.h"

struct record_scan; /* one read under way: a cancel handle */

/* @s is good during the callback; its records are the answer when @err is BH_OK. */
typedef void record_scan_cb(void *ctx, enum bh_err err, const struct store_scan *s);

/* Records of @ns whose key starts with @prefix, behind @after (absent: all), at most @limit; with
 * @reverse from the end. */
struct record_scan *records_scan(struct store *st, const char *ns, struct str prefix,
                                 struct str after, size_t limit, bool reverse, record_scan_cb *done,
                                 void *ctx) BH_MUST_USE;
void records_cancel(struct record_scan **s); /* @done does not run; sets it to NULL */

/* Delete what starts with @prefix and is below @end (absent: all of it), however many there are.
 * Nobody is told; what is left after a crash goes next time. */
void records_clear(struct store *st, const char *ns, struct str prefix, struct str end);
