/* route.h - which of several routes an event takes: the most specific one that leads anywhere.
 *
 *      its own key (guild, chat, person) > what it was called before > the bot > "*"
 *
 * Adapters say what an event could be routed by; nobody but this function chooses.
 */
#pragma once
#include "core/event.h"

typedef bool route_leads_fn(void *ctx, struct str platform, struct str key);

/* The key whose routes apply to @ev; its own when none does, or only those of "*". */
struct str route_choose(const struct event *ev, route_leads_fn *leads, void *ctx);
