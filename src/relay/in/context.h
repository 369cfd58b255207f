/* context.h - what an instance is shown of what was said before a message.
 *
 * An event carries one context for everybody.  Each copy carries what its instance may hear and can
 * use: gateways of the newer generation only, only where the visibility floor lets somebody linked
 * to the instance read back, and without the author's own words if all of them were delivered. */
#pragma once
#include "core/event.h"

struct gate_verdict;
struct relay;

struct context_room { /* for context_shown(); lives as long as what it returns */
    struct event ev;
    struct event_said said[EVENT_MAX_CONTEXT];
};

/* @ev as the instance of @v (NULL: nobody was asked) shall have it: @ev itself, or @room's. */
const struct event *context_shown(struct relay *r, const struct gate_verdict *v,
                                  const struct event *ev, struct context_room *room);
