/* courier.h - delivers mail from the relay to an agent that has no gateway.
 *
 *      CLOSED --mail, or a start--> OPEN --frame--> BRINGING --done: ack--> OPEN
 *        ^                                             |
 *        '------ backoff is over ------ RESTING <------'  failed, or agent away: session closed
 *
 * A courier holds a session of the relay, as a gateway would, and runs the agent's substrate for
 * each frame.  It delivers one payload at a time, in order.  While it rests, it keeps no mail in
 * memory.
 *
 * After a failure the backoff doubles from dispatch.retry to dispatch.retry_max, with jitter.  When
 * the agent is away, no attempt is counted and the backoff stays short.
 *
 * agent.c makes one courier per recipient and owns it. */
#pragma once

struct recipient;

struct courier *courier_new(struct recipient *a); /* opens its session when the turn ends */
void courier_free(struct courier *c);             /* cancels the delivery under way; NULL is fine */
void courier_look(struct courier *c); /* there may be mail: opens the session if closed */
/* Why the last attempt failed, a phrase; NULL: it did not. */
const char *courier_problem(const struct courier *c);
