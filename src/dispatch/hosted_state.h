/* hosted_state.h - what the agents that bellhop runs keep of people: it goes with an erasure and
 * with the retention.
 *
 * The files are described in base/agent_state.h.  Agents go on working meanwhile: a file is
 * replaced, never changed in place.  A thread does it.  What an agent's own program keeps (the
 * sessions of an ACP program, the memory of a model's server) is out of reach. */
#pragma once

struct dispatch;
struct erasure;

/* Of the erasure's person, or everything of its tenant's agents, those of earlier times too.  A dry
 * erasure does nothing.  Then erasure_next(), or erasure_fail(). */
void hosted_state_erase(struct dispatch *d, struct erasure *e);
/* Deletes what was said before the retention, if there is one.  Does nothing while it does. */
void hosted_state_age(struct dispatch *d);
