/* edits.h - applies people's edits and deletions to messages that are not delivered yet.
 *
 * An event whose edit is set (core/event.h) names an earlier message.  For each instance:
 *
 *      the message waits and was never sent     its text is replaced, or it is settled
 *      it was sent, or is not known any more    the instance gets the event itself, unless silent
 *
 * An edit of a staged event (staged.h) changes that event for all recipients.  In a burst (burst.h)
 * the edit changes or removes only the message that it names.
 *
 * A waiting delivery is found by its name, which is derived from the message's ids
 * (core/event.h).  The search covers deliveries in memory, then rows in the store whose age
 * matches the deduplication key of that name.  accept.c calls this module. */
#pragma once
#include "core/event.h"

struct accept;
struct gate_instance;
struct gate_verdict;
struct relay;

/* Applies the edit @ev to the waiting delivery of @to, or starts a search for that delivery.  The
 * search holds @a; if it finds nothing, @ev is delivered as an event of its own, unless silent.
 * False: no such delivery waits. */
bool edit_take(struct relay *r, const struct gate_instance *to, const struct event *ev,
               struct accept *a);
/* Applies the edit @ev to the rows of a staged message: replaces its text, or drops it.  Takes
 * their recipients out of @verdicts.  False: the message is not staged. */
bool edit_staged(struct relay *r, const struct event *ev, struct gate_verdict *verdicts, size_t *n,
                 struct accept *a);
