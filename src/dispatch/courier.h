/* courier.h - brings an agent inside its mail: a session of the relay over a wire of our own.
 *
 *      CLOSED --mail, or a start--> OPEN --frame--> BRINGING --done: ack--> OPEN
 *        ^                                             |
 *        '------ the pause is over ---- RESTING <------'  failed, or nobody there: session closed
 *
 * One delivery at a time and in order.  While it rests nothing of the mail is in memory.  Pauses
 * double from dispatch.retry to dispatch.retry_max, with jitter; where nobody is there to take
 * something, that is no attempt and the pauses stay short. */
#pragma once

struct recipient;
struct courier;

struct courier *courier_new(struct recipient *a); /* opens when the turn ends */
void courier_free(struct courier *c); /* what is on its way is called off; NULL is fine */
void courier_look(struct courier *c); /* there may be mail */
/* Why mail waits, a phrase; NULL: it does not. */
const char *courier_problem(const struct courier *c);
