/* sessions.h - the sessions of agents: which there are, and when each was last seen.
 *
 *      `sessions:` of an entry        "configured"
 *      PUT .../sessions/{session}     "registered": the agent says that the session is live
 *      a delivery that was taken,
 *      a message that was said        "seen"
 *
 * One record per session is in the namespace "agent_session", key tenant \x1f agent \x1f session.
 * A session that is not seen for SESSION_KEPT_MS is forgotten.  An agent has at most
 * SESSIONS_EACH, all agents together SESSIONS_ALL; a new one takes the place of the agent's
 * session that was not seen for the longest time.
 *
 * Where a session is known, receipts name it.  It never chooses where text goes: the panes of a
 * tmux agent come from its entry alone. */
#pragma once
#include "base/str.h"

#define SESSIONS_EACH 200
#define SESSIONS_ALL 100000
#define SESSION_KEPT_MS ((int64_t)7 * 24 * 3600 * 1000)
#define SESSION_WRITE_MS 60000 /* how exact the time is after a restart */

struct dispatch;
struct agent_sessions;

struct agent_sessions *
agent_sessions_new(struct dispatch *d);             /* blocks while it reads the records */
void agent_sessions_free(struct agent_sessions *t); /* NULL is fine */
void agent_sessions_tidy(struct agent_sessions *t); /* forgets those that are too old */

/* Removes the sessions of a tenant from memory; their records are gone. */
void agent_sessions_forget(struct agent_sessions *t, struct str tenant);

/* The agent took or said something in the session. */
void session_seen(struct dispatch *d, struct str tenant, struct str agent, struct str session);
bool session_is_known(const struct dispatch *d, struct str tenant, struct str agent,
                      struct str session);
