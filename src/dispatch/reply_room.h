/* reply_room.h - how many replies of agents are kept, and for how long.
 *
 * The newest dispatch.replies of an agent, no more than limits.reply_bytes of it and of all, none
 * older than `retention`.  What is there is counted by a pass through all of them, at the start and
 * every hour (store/sweep.h); until the first one is over an eighth of what is allowed is kept
 * anew.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "base/str.h"

#define REPLY_NS "reply"
#define REPLY_CURSOR_CHARS 16

struct dispatch;
struct reply_room;

struct reply_room *reply_room_new(struct dispatch *d);
void reply_room_free(struct reply_room *t); /* NULL is fine */

/* One more reply of @bytes, from the agent whose keys begin with @prefix?  It counts as kept then;
 * older ones go for it when they must.  False: there is no room now. */
bool reply_room_take(struct reply_room *t, struct str prefix, size_t bytes);
