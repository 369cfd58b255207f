/* receipt.h - what a wake or a request was answered, kept for a day: a repeat gets the first answer
 * again.  (Those of deliveries are in delivered.h.)
 *
 * A record per (tenant, agent, word, id) in the namespace "receipt".  Its key begins with the hour,
 * so that old ones go without being looked at. */
#pragma once
#include "base/hash.h"
#include "store/store.h"

#define RECEIPT_NS "receipt"

struct dispatch;
struct receipt_read; /* one look under way: a cancel handle */

struct receipt_name { /* borrowed */
    struct str tenant, agent;
    struct str word; /* "augment", "template", "wake", "request" */
    struct str id;   /* the dispatch_id, or the caller's Idempotency-Key */
};

/* Different names have different ones. */
struct hash128 receipt_hash(const struct dispatch *d, const struct receipt_name *name);

/* @at_ms: when it was taken, by the wall clock.  @done says when it is on disk. */
struct store_put *receipt_write(struct dispatch *d, const struct receipt_name *name, int64_t at_ms,
                                struct str json, store_put_cb *done, void *ctx) BH_MUST_USE;
/* @json is absent when there is none. */
typedef void receipt_cb(void *ctx, struct str json);
struct receipt_read *receipt_find(struct dispatch *d, const struct receipt_name *name,
                                  receipt_cb *done, void *ctx) BH_MUST_USE;
void receipt_cancel(struct receipt_read **r); /* @done does not run; sets it to NULL */

/* A kept answer with one more sentence in its "warnings", appended to @out. */
struct json_parser;
struct buf;
void receipt_add_warning(struct json_parser *parser, struct str json, struct str warning,
                         struct buf *out);

void receipts_expire(struct dispatch *d); /* every now and then */
