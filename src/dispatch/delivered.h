/* delivered.h - receipts of deliveries, kept for a day: a repeat gets the first one again.
 *
 *      this turn's deliveries --> rows and keys (relay)     one group commit, then all are answered
 *                             '-> their receipts, one record
 *
 * A record holds the receipts of a turn; its key (namespace "delivered") begins with the time.  So
 * they are written one behind the other and old ones go without being looked at.  A repeat knows
 * when the first one came (relay_deliver()), and that is where its receipt is found.
 *
 * A receipt without its delivery is harmless: nobody looks for it unless the delivery is known. */
#pragma once
#include "base/list.h"
#include "dispatch/receipt.h"

#define DELIVERED_NS "delivered"

struct delivered;       /* of a dispatch */
struct delivered_batch; /* the receipts of a turn */
struct delivered_look;  /* a cancel handle */

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
