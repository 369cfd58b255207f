/* accept.h - taking an event in: whose it is, whether we know it, and who waits for the answer.
 *
 * One accept stands for one host_accept(): it is answered once every copy of the event (one per
 * instance) is on disk or acked, with the worst result among them, when the turn ends.
 *
 *      struct accept *a = accept_new(r, done, ctx);
 *      for every copy: accept_hold(a); ... later accept_release(r, a, BH_OK);
 *      accept_release(r, a, BH_OK);               // the one accept_new() took
 */
#pragma once
#include "core/accept.h"

struct accept;
struct accepts;
struct delivery_group;
struct event;
struct gate_verdict;
struct relay;
struct staged_to;

struct accepts *accepts_new(void);
void accepts_free(struct accepts *t); /* NULL is fine; unanswered ones are forgotten */

struct accept *accept_new(struct relay *r, accepted_cb *done, void *ctx);
void accept_hold(struct accept *a);
void accept_release(struct relay *r, struct accept *a, enum bh_err err);

/* An event that has waited (staged.h) enters the mailboxes of those of @to that pass the gate, as
 * part of @g; @done as above. */
void accept_staged(struct relay *r, const struct event *ev, const struct staged_to *to, size_t n_to,
                   struct delivery_group *g, accepted_cb *done, void *ctx);
/* An event that was routed goes on: it is taken in for those of @to (NULL: for all) that pass the
 * gate, and @a, which is held, is released. */
void accept_resume(struct relay *r, const struct event *ev, const struct staged_to *to, size_t n_to,
                   struct accept *a);
/* Was it delivered to all of these before? */
bool accept_is_known(struct relay *r, const struct event *ev, const struct gate_verdict *verdicts,
                     size_t n);

void accept_answer_all(struct relay *r); /* at the end of a turn */
bool accept_any_answer(const struct relay *r);
