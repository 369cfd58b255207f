/* linking.h - "/link CODE" sent to a bot: links a person's account to an instance.
 *
 * The message is always consumed, so that a code never reaches an agent.  The platform's event
 * identifies the person.  The answer goes to the chat of the message.  accept.c calls this. */
#pragma once
#include "core/event.h"

struct accept;
struct linkings;
struct relay;

struct linkings *linkings_new(void);
void linkings_free(struct linkings *t); /* NULL is fine */

/* True when @ev is a /link message; @a is held until the link is on disk or refused. */
bool linking_take(struct relay *r, const struct event *ev, struct accept *a);
