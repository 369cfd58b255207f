/* accept.h - accepts events: finds the recipients, drops duplicates, answers the platform.
 *
 *      struct accept *a = accept_new(r, done, ctx);
 *      for every copy: accept_hold(a); ... later accept_release(r, a, BH_OK);
 *      accept_release(r, a, BH_OK);               // the one accept_new() took
 *
 * A struct accept is one pending answer to relay_accept(), with a count of holds.  When the last
 * hold is released, @done runs at the end of the turn with the first error, or BH_OK.  A copy (one
 * per recipient) releases its hold once the copy is on disk or acked.  A staged event releases its
 * hold once its row is on disk.
 */
#pragma once
#include "core/accept.h"
#include "relay/in/inside.h"

struct delivery_group;
struct event;
struct gate_verdict;
struct instance;
struct slot;
struct staged_to;

struct accepts *accepts_new(struct relay *r);
void accepts_free(struct accepts *t); /* NULL is fine; pending answers are dropped */

struct accept *accept_new(struct relay *r, accepted_cb *done, void *ctx);
void accept_hold(struct accept *a);
void accept_release(struct relay *r, struct accept *a, enum bh_err err);

/* Delivers a staged event (staged.h) to those of @to that pass the gate.  The deliveries join @g,
 * which is submitted here.  @noted: the judge has counted the author already. */
void accept_staged(struct relay *r, const struct event *ev, const struct staged_to *to, size_t n_to,
                   bool noted, struct delivery_group *g, accepted_cb *done, void *ctx);
/* Continues with a routed event: delivers it to those of @to (NULL: all) that pass the gate, and
 * releases the caller's hold on @a. */
void accept_resume(struct relay *r, const struct event *ev, const struct staged_to *to, size_t n_to,
                   struct accept *a);
/* True when @ev is a duplicate for every recipient in @verdicts. */
bool accept_is_known(struct relay *r, const struct event *ev, const struct gate_verdict *verdicts,
                     size_t n);

/* Tells what became of a delivery to the watcher of parcels (inside.h).  A settled delivery that
 * was never sent counts as removed.  For instances with has_parcels only. */
void parcel_tell(const struct instance *i, const struct slot *slot, enum parcel_news news,
                 struct str why);

void accept_answer_all(struct relay *r); /* at the end of a turn */
