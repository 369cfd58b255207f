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
#include "core/event.h"

struct accept;
struct accepts;
struct relay;

struct accepts *accepts_new(void);
void accepts_free(struct accepts *t); /* NULL is fine; unanswered ones are forgotten */

struct accept *accept_new(struct relay *r, accepted_cb *done, void *ctx);
void accept_hold(struct accept *a);
void accept_release(struct relay *r, struct accept *a, enum bh_err err);

void accept_answer_all(struct relay *r); /* at the end of a turn */
bool accept_any_answer(const struct relay *r);
