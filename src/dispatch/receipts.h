/* receipts.h - what calls were answered, kept for a day: a repeat gets the first answer again.
 *
 *      wakes, requests       one record each, key <hour><hash of tenant, agent, word, id>
 *      deliveries            one record for all of a turn, key <time><number>
 *
 *      this turn's deliveries --> rows and keys (relay)     one group commit, then all are answered
 *                             '-> their receipts, one record
 *
 * Keys begin with the time, so records are written one behind the other and old ones go without
 * being read.  A repeated delivery knows when the first one came (relay_deliver()); its receipt is
 * there.  A receipt without its delivery is harmless: nobody looks for it unless the delivery is
 * known. */
#pragma once
#include "base/hash.h"
#include "base/list.h"
#include "store/store.h"

struct buf;
struct delivered;       /* the receipts of deliveries */
struct delivered_batch; /* the receipts of a turn */
struct delivered_look;  /* a cancel handle */
struct dispatch;
struct json_parser;
struct receipt_read; /* one look under way: a cancel handle */
struct receipt_room; /* how many bytes a tenant has */

struct receipt_name { /* borrowed */
    struct str tenant, agent;
    struct str word; /* "augment", "template", "wake", "request" */
    struct str id;   /* the dispatch_id, or the caller's Idempotency-Key */
};

/* ---- wakes and requests ---- */
/* @at_ms: when it was taken, by the wall clock.  @done says when it is on disk. */
struct store_put *receipt_write(struct dispatch *d, const struct receipt_name *name, int64_t at_ms,
                                struct str json, store_put_cb *done, void *ctx) BH_MUST_USE;
/* @json is absent when there is none. */
typedef void receipt_cb(void *ctx, struct str json);
struct receipt_read *receipt_find(struct dispatch *d, const struct receipt_name *name,
                                  receipt_cb *done, void *ctx) BH_MUST_USE;
void receipt_cancel(struct receipt_read **r); /* @done does not run; sets it to NULL */

/* A kept answer with one more sentence in its "warnings", appended to @out. */
void receipt_add_warning(struct json_parser *parser, struct str json, struct str warning,
                         struct buf *out);

void receipts_expire(struct dispatch *d); /* every now and then */

/* ---- deliveries ---- */
struct delivered_entry { /* embedded by whoever waits; zeroed at first */
    struct list link;
    store_put_cb *done;
    void *ctx;
};

struct delivered *delivered_new(struct dispatch *d);
void delivered_free(struct delivered *t); /* everybody has cancelled; NULL is fine */

/* Keep @json; @done says when it is on disk. */
void delivered_keep(struct delivered *t, const struct receipt_name *name, struct str json,
                    struct delivered_entry *e, store_put_cb *done, void *ctx);
void delivered_forget(struct delivered_entry *e); /* @done does not run; it is kept all the same */

/* @at_ms: as relay_deliver() told. */
struct delivered_look *delivered_find(struct delivered *t, const struct receipt_name *name,
                                      int64_t at_ms, receipt_cb *done, void *ctx) BH_MUST_USE;
void delivered_cancel(struct delivered_look **l); /* @done does not run; sets it to NULL */

void delivered_expire(struct delivered *t); /* every now and then */

/* ---- room ----
 *
 * How many bytes of receipts a tenant may have on disk.  Receipts from before this start are
 * counted for all tenants together: a receipt does not say whose it is. */
struct receipt_room *receipt_room_new(struct dispatch *d);
void receipt_room_free(struct receipt_room *t);   /* NULL is fine */
void receipt_room_expire(struct receipt_room *t); /* every now and then */

/* May something begin that ends with a receipt? */
bool receipt_room_has(struct receipt_room *t, struct str tenant);
void receipt_room_wrote(struct receipt_room *t, struct str tenant, size_t bytes);
