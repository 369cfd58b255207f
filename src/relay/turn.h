/* turn.h - the end of a turn, when everything that its calls caused is done together.
 *
 *      a call -> turn_want() ... the turn ends -> results -> pumps -> acks -> answers -> changes
 *
 * That is what makes batches large and calls safe from anywhere: nothing calls back into a
 * caller. */
#pragma once

struct relay;
struct turn;

struct turn *turn_new(struct relay *r);
void turn_free(struct turn *t); /* NULL is fine */

/* Something was left for the end of this turn.  Cheap: call it whenever that is so. */
void turn_want(struct relay *r);
