/* call.h - a pending call of the contract: its callback, its answer and its end.
 *
 *      struct delivering *w = call_new(d, sizeof *w, ...);
 *      ...
 *      jw...(&w->call.json)            // or fault_set(&w->call.fault, ...)
 *      call_end(&w->call);             // runs the callback, frees; nothing after it
 *
 * struct dispatch_call is the first member of the struct of each kind of call.  The dispatch owns
 * the calls.  A cancelled call goes on without its callback.  dispatch_close() frees every pending
 * call and cancels its pending operations.
 */
#pragma once
#include "base/list.h"
#include "core/accept.h"
#include "dispatch/dispatch.h"
#include "dispatch/receipts.h"
#include "dispatch/substrate.h"
#include "relay/in/inside.h"

struct payload;

struct dispatch_call {
    struct dispatch *d; /* borrowed */
    struct list link;   /* dispatch->calls, or ->ending */
    dispatch_cb *done;  /* NULL: cancelled, or already answered */
    void *ctx;
    void (*free)(struct dispatch_call *c); /* of what its kind has besides; NULL: nothing */
    struct fault fault;
    struct buf json;
    struct buf claim; /* key in dispatch->claims; empty: none */
    /* What several kinds have; zero: not yet, or not this kind. */
    char *tenant, *agent, *session; /* owned; session NULL: none */
    const char *word;               /* of its receipt: struct receipt_name */
    struct buf key;                 /* of its receipt; empty: none is kept */
    int64_t at_ms;                  /* when it came, by the wall clock */
    struct parcel_fate fate;        /* of its payload */
    struct buf warnings;            /* of its answer: JSON strings with commas between them */
    char *took; /* owned; the session that the agent's receipt names; NULL: none */
    struct accept_id accept;
    bool accepting; /* the mailbox's row is not on disk yet */
    bool must_keep; /* of call_keep() */
    void (*go)(struct dispatch_call *c);
    const char *again; /* of call_once() */
    struct receipt_read *look;
    struct store_put *put;
    struct errand_job *job;
    const struct recipient *job_of; /* borrowed while @job runs */
};

void *call_new(struct dispatch *d, size_t size, void (*free)(struct dispatch_call *c),
               dispatch_cb *done, void *ctx);
/* Answers with c->fault, or with c->json when there is no fault, and frees the call.  Only from
 * callbacks, never inside the function that started the call. */
void call_end(struct dispatch_call *c);
/* call_end() when this turn of the loop ends: for the function that started the call. */
void call_end_later(struct dispatch_call *c);
void calls_free(struct dispatch *d);
/* Starts a job for the call. */
void call_run(struct dispatch_call *c, struct recipient *a, const struct errand *e,
              errand_cb *done);
/* Ends the calls whose job is for @a, which is freed next. */
void calls_agent_gone(struct dispatch *d, const struct recipient *a);

/* Resolves an address for this caller, and the session in it (absent: none).  NULL: the fault is
 * set.  An agent the caller may not use is reported as unknown. */
struct recipient *call_agent(struct dispatch_call *c, const struct dispatch_who *who,
                             struct str address, struct str *ret_session);
/* True when the caller's key is bound to the agent or to its instance, or to neither. */
bool call_may_answer(const struct dispatch_who *who, const struct recipient *a);
/* Names the agent, the session and the receipt, and notes the time. */
void call_begin(struct dispatch_call *c, const struct recipient *a, struct str session,
                const char *word, struct str key);
struct receipt_name call_receipt(const struct dispatch_call *c);

/* False: the agent is a pane and @session is none of its own; the fault is set. */
bool call_session_ok(struct dispatch_call *c, const struct recipient *a, struct str session);
void call_warn(struct dispatch_call *c, struct str what);
/* Takes session and warnings of the agent's own receipt. */
void call_told(struct dispatch_call *c, const struct errand_end *e);
void call_write_warnings(const struct dispatch_call *c, struct jw *j); /* "warnings", if any */
/* Writes "session_id" if that session got it, else warns; then the warnings.  @a NULL: the agent is
 * gone. */
void call_write_session(struct dispatch_call *c, const struct recipient *a, struct jw *j);

/* Locks the receipt's name until the call ends, so that two calls with one Idempotency-Key never
 * run at once.  False: another call holds it, and the fault is FAULT_BUSY. */
bool call_claim(struct dispatch_call *c);
/* Runs @go once for an Idempotency-Key, c->key: now if it is empty, else when no receipt is found.
 * A receipt that is found is the answer, with @warning added; NULL: as it is.  @go ends the call by
 * call_end_later() or call_keep(), never by call_end(). */
void call_once(struct dispatch_call *c, void (*go)(struct dispatch_call *c), const char *warning);
/* Writes the receipt, if there is a key, and answers.  @must: without a receipt the call fails. */
void call_keep(struct dispatch_call *c, bool must);

/* False: limits.receipt_bytes leaves no room for a receipt of the tenant; the fault is set. */
bool call_has_room(struct dispatch_call *c, struct str tenant);

/* These set a DeliveryFailedError with its three fields. */
void call_fail_unknown(struct dispatch_call *c, struct str agent_id);
void call_fail_errand(struct dispatch_call *c, const struct errand_end *e);
/* Sets the fault for an error of the relay or the store. */
void call_fail_store(struct dispatch_call *c, enum bh_err err);

/* Enqueues @p in the agent's mailbox with relay_deliver(); @done gets @c when it is on disk.
 * @may_wake: wakes a sleeping gateway. */
void call_post(struct dispatch_call *c, struct recipient *a, const struct payload *p, bool may_wake,
               accepted_cb *done);
/* Why the agent's mail waits now, a phrase; NULL: it does not. */
const char *call_waits(struct recipient *a);
/* The facts of a delivery whose call has no receipt yet; NULL: there is no such call. */
const struct delivered_facts *delivery_under_way(struct dispatch *d,
                                                 const struct receipt_name *name);
/* The agent's own receipt of a delivery, for the call that waits for it. */
void delivery_told(struct recipient *a, struct str word, struct str dispatch_id,
                   const struct errand_end *e);
/* dispatch_wake() for schedule.c: wakes now; @key is the Idempotency-Key. */
struct dispatch_call *wake_agent(struct dispatch *d, struct recipient *a, struct str session,
                                 struct str context, struct str key, dispatch_cb *done,
                                 void *ctx) BH_MUST_USE;
