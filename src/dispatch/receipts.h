/* receipts.h - keeps the answers of calls for a day, so that a repeated call gets the same answer.
 *
 *      wakes, requests       one record each, key <hour><hash of tenant, agent, word, id>
 *      deliveries            one record for all of a turn, key <time><number>
 *
 *      this turn's deliveries --> rows and keys (relay)     one group commit, then all are answered
 *                             '-> their receipts, one record
 *
 * Keys begin with the time, so new records are appended and expired ones are deleted as a range.
 * relay_deliver() tells when the first delivery of a repeated one came; delivered_find() starts at
 * that time.  A receipt without its delivery is harmless: receipts are searched only for deliveries
 * that the relay knows.
 *
 * call.c, deliver.c, request.c and track.c write or find receipts; dispatch.c lets them expire. */
#pragma once
#include "base/list.h"
#include "store/store.h"

struct receipts; /* of one dispatch */

struct dispatch;

struct receipt_name { /* borrowed */
    struct str tenant, agent;
    struct str word; /* "augment", "template", "wake", "request" */
    struct str id;   /* the dispatch_id, or the caller's Idempotency-Key */
};

/* Appends the name.  Each part is preceded by its length, so different names never give the same
 * bytes. */
void receipt_name_add(struct buf *out, const struct receipt_name *name);

/* ---- wakes and requests ---- */
/* @at_ms: when the call came, by the wall clock.  @done (NULL: nobody waits) runs when the
 * receipt is on disk.  @verb KV_INSERT: the first receipt with this name stays; else KV_PUT. */
struct store_put *receipt_write(struct dispatch *d, const struct receipt_name *name, int64_t at_ms,
                                struct str json, enum store_kv_verb verb, store_put_cb *done,
                                void *ctx);
struct delivered_facts;
/* @json is absent when there is no receipt.  @facts: of a delivery; else NULL. */
typedef void receipt_cb(void *ctx, struct str json, const struct delivered_facts *facts);
/* @at_ms: about when its call came; 0: within the last day. */
struct receipt_read *receipt_find(struct dispatch *d, const struct receipt_name *name,
                                  int64_t at_ms, receipt_cb *done, void *ctx) BH_MUST_USE;
void receipt_cancel(struct receipt_read **r); /* @done does not run; sets it to NULL */

/* Appends to @out a stored answer with @warning added to its "warnings".  @arrived: if the answer
 * says "delivery_skipped", that and the reasons for it are left out. */
void receipt_add_warning(struct json_parser *parser, struct str json, struct str warning,
                         bool arrived, struct buf *out);

/* ---- deliveries ---- */
struct delivered_facts { /* kept beside the receipt, for track.h; not part of the answer */
    char by[24];         /* id of the sender's key; "": the operator */
    uint64_t row;        /* its id in the mailbox; 0: unknown */
    int64_t queued_ms;
    int64_t sent_ms, taken_ms; /* 0: not before the receipt was written */
};
struct delivered_entry { /* embedded in the waiting call; zeroed at first */
    struct list link;
    store_put_cb *done;
    void *ctx;
};

/* Adds @json to this turn's record; @done runs when the record is on disk. */
void delivered_keep(struct receipts *t, const struct receipt_name *name, struct str json,
                    const struct delivered_facts *facts, struct delivered_entry *e,
                    store_put_cb *done, void *ctx);
void delivered_forget(struct delivered_entry *e); /* its callback does not run; still written */

/* Finds the receipt of a delivery; @at_ms is the time that relay_deliver() returned. */
struct receipt_read *delivered_find(struct dispatch *d, const struct receipt_name *name,
                                    int64_t at_ms, receipt_cb *done, void *ctx) BH_MUST_USE;

/* ---- all of them ----
 *
 * limits.receipt_bytes bounds the receipts of a tenant on disk.  Receipts from before this start
 * count against the total only, because a receipt does not name its tenant. */
struct receipts *receipts_new(struct dispatch *d);
void receipts_free(struct receipts *t);   /* all entries were forgotten before; NULL is fine */
void receipts_expire(struct receipts *t); /* deletes the old ones; call it from a timer */
/* False: over limits.receipt_bytes, so no call may start that ends with a receipt. */
bool receipts_have_room(struct receipts *t, struct str tenant);
