/* call.h - a pending call of the contract: its callback, its answer and its end.
 *
 *      struct delivering *w = call_new(d, sizeof *w, ...);
 *      ...
 *      jw...(&w->call.json)            // or fault_set(&w->call.fault, ...)
 *      call_end(&w->call);             // runs the callback, frees; nothing after it
 *
 * struct dispatch_call is the first member of the struct of each kind of call.  The dispatch owns
 * the calls.  A cancelled call goes on without its callback.  dispatch_close() frees every pending
 * call, so its free function also cancels its pending operations.
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
    dispatch_cb *done;  /* NULL: cancelled, or already answered */
    void *ctx;
    void (*free)(struct dispatch_call *c); /* frees the members, not the struct itself */
    struct fault fault;
    struct buf json;
    struct buf claim; /* key in dispatch->claims; empty: none */
};

void *call_new(struct dispatch *d, size_t size, void (*free)(struct dispatch_call *c),
               dispatch_cb *done, void *ctx);
/* Answers with c->fault, or with c->json when there is no fault, and frees the call.  Only from
 * callbacks, never inside the function that started the call. */
void call_end(struct dispatch_call *c);
/* call_end() when this turn of the loop ends: for the function that started the call. */
void call_end_later(struct dispatch_call *c);
void calls_free(struct dispatch *d);

/* Resolves an address for this caller, and the session in it (absent: none).  NULL: the fault is
 * set.  An agent the caller may not use is reported as unknown. */
struct recipient *call_agent(struct dispatch_call *c, const struct dispatch_who *who,
                             struct str address, struct str *ret_session);

/* Locks @name until the call ends, so that two calls with one Idempotency-Key never run at once.
 * False: another call holds it, and the fault is FAULT_BUSY. */
struct receipt_name;
bool call_claim(struct dispatch_call *c, const struct receipt_name *name);

/* False: limits.receipt_bytes leaves no room for a receipt of the tenant; the fault is set. */
bool call_has_room(struct dispatch_call *c, struct str tenant);

/* These set a DeliveryFailedError with its three fields. */
void call_fail_unknown(struct dispatch_call *c, struct str agent_id);
void call_fail_errand(struct dispatch_call *c, struct str agent_id, const struct errand_end *e);
/* Sets the fault for an error of the relay or the store. */
void call_fail_store(struct dispatch_call *c, enum bh_err err);

/* Enqueues @p in the agent's mailbox with relay_deliver(); @done runs when it is on disk.
 * @may_wake: wakes a sleeping gateway. */
struct accept_id post_payload(struct recipient *a, const struct payload *p, bool may_wake,
                              int64_t *ret_known_ms, accepted_cb *done, void *ctx);
/* dispatch_wake() for schedule.c: wakes now; @key is the Idempotency-Key. */
struct dispatch_call *wake_agent(struct dispatch *d, struct recipient *a, struct str session,
                                 struct str context, struct str key, dispatch_cb *done,
                                 void *ctx) BH_MUST_USE;
