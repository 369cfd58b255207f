/* burst.h - joins the messages that one person writes in a burst to one event.
 *
 *      "look at this"  +  photo  +  "what is it?"   ->   one event: "look at this\nwhat is it?" and
 *                                                        the photo, message_ids of all three
 *
 * Only bots with `debounce` have bursts.  The joined event has the event id, the context and the
 * quoted message of its first part.  Its texts are joined by newlines, and its files are in order.
 *
 * A burst is one staged row (staged.h).  Each message that joins it rewrites the row, and the
 * platform gets its answer for that message once the rewrite is on disk:
 *
 *      joined, edited or deleted --burst_changed()--> rewritten --on disk--> the platform is told
 *                                                         |  ^
 *                                       the store refused | '-- RETRY_MS, while it is in doubt
 *                                                         v
 *                                   parts that are not on disk leave: their platform repeats them
 *
 * A burst ends when its author pauses, when it is full, when anything else comes from that chat for
 * one of its recipients (a message of somebody else, a command, a button press), or with the
 * process.  Then no message joins it any more.  The same functions write an edit of any other
 * staged event, as an ended burst of one message.
 *
 * staged.c and edits.c call this module. */
#pragma once
#include "base/clock.h"
#include "core/event.h"

struct accept;
struct gate_verdict;
struct relay;
struct staged;
struct staged_chat;

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

/* ---- the row of a burst ---- */

/* Joins @ev to the open burst of the chat @c that it belongs to, and holds @a until the rewritten
 * row is on disk.  False: the chat has no such burst. */
bool burst_take(struct relay *r, struct staged_chat *c, const struct event *ev,
                const struct gate_verdict *verdicts, size_t n, struct accept *a);
/* True when a recipient has received @ev already, so @ev must not join a burst. */
bool burst_was_given(struct relay *r, const struct event *ev, const struct gate_verdict *verdicts,
                     size_t n);
/* Ends the open bursts in the chat of @ev that have a recipient in @verdicts. */
void bursts_end(struct relay *r, const struct event *ev, const struct gate_verdict *verdicts,
                size_t n);
/* The event has changed: rewrites its row, and holds @a until the row is on disk. */
void burst_changed(struct staged *e, struct accept *a);
void burst_rewrite(struct staged *e); /* writes the row again, as the event is now */
timer_cb burst_again;                 /* of e->again: retries a rewrite in doubt */
