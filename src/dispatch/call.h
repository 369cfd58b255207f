/* call.h - one call of the contract on its way.
 *
 * Embedded as the first member of whatever the work needs; @free frees the whole.  A cancelled call
 * goes on without its callback; at dispatch_close() each is freed where it stands, so @free also
 * cancels what is under way.
 *
 *      struct delivering *w = call_new(d, sizeof *w, ...);
 *      ...
 *      jw...(&w->call.json)            // or fault_set(&w->call.fault, ...)
 *      call_end(&w->call);             // runs the callback, frees; nothing after it
 */
#pragma once
#include "base/list.h"
#include "core/accept.h"
#include "dispatch/dispatch.h"

struct errand_end;
struct payload;
struct recipient;

struct dispatch_call {
    struct dispatch *d; /* borrowed */
    struct list link;   /* dispatch->calls, or ->ending */
    dispatch_cb *done;  /* NULL: nobody waits any more */
    void *ctx;
    void (*free)(struct dispatch_call *c); /* what it holds; not the struct itself */
    struct fault fault;
    struct buf json;
    struct buf claim; /* what no other call may do meanwhile; empty: nothing */
};

void *call_new(struct dispatch *d, size_t size, void (*free)(struct dispatch_call *c),
               dispatch_cb *done, void *ctx);
/* Answer with @fault, or with @json when there is none, and free.  Only from callbacks. */
void call_end(struct dispatch_call *c);
/* The same when this turn ends: from inside the call that began it. */
void call_end_later(struct dispatch_call *c);
void calls_free(struct dispatch *d);

/* Whom an address means for this caller, and the session in it (absent: none).  NULL: the fault is
 * set, and what belongs to others reads like what does not exist. */
struct recipient *call_agent(struct dispatch_call *c, const struct dispatch_who *who,
                             struct str address, struct str *ret_session);

/* Nobody else does what @name names while this call is under way.  False: somebody does, and the
 * fault says so; asked again later there is a receipt. */
struct receipt_name;
bool call_claim(struct dispatch_call *c, const struct receipt_name *name);

/* May it end with one more receipt of this tenant?  False: the fault says so. */
bool call_has_room(struct dispatch_call *c, struct str tenant);

/* DeliveryFailedError with its three fields. */
void call_fail_unknown(struct dispatch_call *c, struct str agent_id);
void call_fail_errand(struct dispatch_call *c, struct str agent_id, const struct errand_end *e);
/* What the relay said when it did not take it. */
void call_fail_store(struct dispatch_call *c, enum bh_err err);

/* Put @p into the agent's mailbox, as relay_deliver(): @done when it is on disk.  @may_wake: a
 * sleeping gateway is woken for it. */
struct accept_id post_payload(struct recipient *a, const struct payload *p, bool may_wake,
                              int64_t *ret_known_ms, accepted_cb *done, void *ctx);
/* What dispatch_wake() does, for schedules: at once, one wake per @key. */
struct dispatch_call *wake_agent(struct dispatch *d, struct recipient *a, struct str session,
                                 struct str context, struct str key, dispatch_cb *done,
                                 void *ctx) BH_MUST_USE;
