/* linking.h - "/link CODE" sent to the bot: a person links their account to an instance.
 *
 * The message is consumed, whatever becomes of it: a code never reaches an agent.  Who it is comes
 * from the event, as the platform says it.  The answer goes back to the chat it came from. */
#pragma once
#include "core/event.h"

struct accept;
struct linkings;
struct relay;

struct linkings *linkings_new(void);
void linkings_free(struct linkings *t); /* NULL is fine */

/* True when @ev was such a message; @a is answered when the link is on disk or refused. */
bool linking_take(struct relay *r, const struct event *ev, struct accept *a);
