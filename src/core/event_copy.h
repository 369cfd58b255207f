/* event_copy.h - an event that outlives the call it was passed to, in memory or on disk.
 *
 * As JSON of our own, which nobody else reads: everything that is in a struct event, and nothing
 * that is not. */
#pragma once
#include "base/arena.h"
#include "base/json.h"
#include "core/event.h"

void event_save(struct buf *out, const struct event *ev);
/* The same event again; everything in it lives in @arena.  False: it is none. */
bool event_load(struct json saved, struct arena *arena, struct event *ret);
