/* burst.h - joins the messages that one person writes in a burst to one event.
 *
 *      "look at this"  +  photo  +  "what is it?"   ->   one event: "look at this\nwhat is it?" and
 *                                                        the photo, message_ids of all three
 *
 * Only bots with `debounce` have bursts.  The joined event has the event id, the context and the
 * quoted message of its first part.  Its texts are joined by newlines, and its files are in order.
 *
 * These functions change events in memory only.  staged.c decides when a burst ends, and keeps it
 * on disk. */
#pragma once
#include "core/event.h"

#define BURST_TEXT_BYTES ((size_t)32 << 10) /* of all texts; one longer message is a burst alone */
#define BURST_MAX_MS 60000                  /* from the first message to the end */

/* True when messages like @ev may be joined.  Bots, commands, button presses, edits and messages
 * for one instance only are never joined. */
bool burst_takes(const struct event *ev);
/* True when @ev belongs to @burst: same author, same place, no other message quoted, and there is
 * room.  Both belong to one chat of one bot. */
bool burst_fits(const struct event *burst, const struct event *ev);
bool burst_is_full(const struct event *burst); /* no message fits any more */
/* Appends @ev to @burst, whose members live in @arena.  The parts of a burst that was read from
 * disk are complete: nothing is joined to it. */
void burst_join(struct event *burst, struct arena *arena, const struct event *ev);
void burst_cut(struct event *burst, size_t n_parts); /* keeps the first ones */
/* The part of @burst with this event id; -1: none.  An event without parts is its own part 0. */
int burst_find(const struct event *burst, struct str event_id);
/* Applies the edit or deletion @ev to @part.  False: every part is deleted now. */
bool burst_edit(struct event *burst, struct arena *arena, int part, const struct event *ev);
/* Makes text, message_type and message_id of the joined event from its parts. */
void burst_finish(struct event *burst, struct arena *arena);
