/* byline.h - who says it: where several agents share a chat, each one's words start with its name.
 *
 * The name is the displayName its gateway provisioned with; an agent without one, or alone in the
 * chat, speaks as it is.  Asked at every action, so a name comes and goes with the company; whoever
 * asks has spoken, and is company to the others. */
#pragma once
#include "core/action.h"

struct buf;
struct destination;
struct instance;

/* What @a says, as people are to read it: its content, or with the name in front of it in @room.
 * An edit that would not fit any more keeps its words and goes without the name. */
struct str byline_add(const struct instance *i, const struct destination *to,
                      const struct action *a, struct buf *room);
