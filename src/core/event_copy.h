/* event_copy.h - saves an event as private JSON and loads it again, to keep it past its call.
 *
 * relay/in/staged.c and relay/in/edits.c use it.  The form holds every member of struct event but
 * looks_back, which only queries use.  It is never sent to a peer. */
#pragma once
#include "base/arena.h"
#include "base/json.h"
#include "core/event.h"

void event_save(struct buf *out, const struct event *ev);
/* Loads a saved event; its texts live in @arena.  False: @saved is not an event. */
bool event_load(struct json saved, struct arena *arena, struct event *ret);
