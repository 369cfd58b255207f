/* queued.h - actions on messages by the name they had while they waited.
 *
 * A gateway that waited too long was told "queued:<number>" as the message's id, and uses it.  Here
 * it becomes the real one, or the edit waits with its message.
 */
#pragma once
#include "platform/platform.h"

struct carries;

/* The platform's act(), or carry_act() for what carries a file. */
void queued_act(struct carries *c, struct platform *p, struct action_id id,
                const struct action_from *from, const struct action *a);
