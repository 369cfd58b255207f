/* edits.h - people edit and delete messages that still wait for their agent.
 *
 * An event whose edit is set (core/event.h) names an earlier message.  For each instance:
 *
 *      the message waits, on no socket yet      its text is replaced, or it is settled
 *      it was sent, or is not known any more    the instance gets the event itself, unless silent
 *
 * An edit of an event that still waits for its files (staged.h) changes that event, for all its
 * recipients.
 *
 * A waiting delivery is found by its name, which is made from the message's ids
 * (core/delivery_id.h): in memory, or among the rows of the mailbox that are as old as the
 * deduplication key of that name.  The rows are read from the store. */
#pragma once
#include "core/event.h"

struct accept;
struct edits;
struct gate_instance;
struct relay;

struct edits *edits_new(void);
void edits_free(struct relay *r); /* the store holds none of its reads any more */

/* The message that @ev changes, as far as its name goes; borrowed until the next call. */
struct event edit_original(struct relay *r, const struct event *ev);
/* @ev, whose edit is set, changes what waits for @to, or that is looked for: then @a is held
 * until that is done, and if nothing is found the event is delivered after all.  False: nothing of
 * it waits there. */
bool edit_take(struct relay *r, const struct gate_instance *to, const struct event *ev,
               struct accept *a);
