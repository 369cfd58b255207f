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
#include "base/list.h"
#include "core/accept.h"

struct instance;
struct relay;

struct accept {
    struct list link; /* relay->accepts, then relay->answers, then relay->spare */
    accepted_cb *done;
    void *ctx;        /* borrowed */
    uint32_t pending; /* copies nobody knows the end of yet */
    uint32_t index;   /* in relay->accept_slots, for good */
    uint32_t generation;
    uint8_t err; /* enum bh_err */
};

struct accept *accept_new(struct relay *r, accepted_cb *done, void *ctx);
static inline struct accept_id accept_id_of(const struct accept *a)
{
    return (struct accept_id){a->index, a->generation};
}
static inline void accept_hold(struct accept *a)
{
    a->pending++;
}
void accept_release(struct relay *r, struct accept *a, enum bh_err err);
void accept_answer_all(struct relay *r); /* at the end of a turn */
void accept_free_all(struct relay *r);   /* unanswered ones are forgotten */
