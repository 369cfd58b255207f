/* agent_state.h - the files in which `bellhop agent` keeps conversations across restarts.
 *
 *      agent-ID.seen                 ids of acknowledged deliveries
 *      agent-ID.sessions             lines {"key", "session", "platform"?, "user"?}
 *      agent-ID.sessions.chats/HASH  [{"role", "content", "at", "platform", "user"?}, ...]
 *
 * platform and user name the person who wrote, also in an answer to that person; "at" is in ms.
 * src/agent writes the files.  For agents that the server runs, dispatch/hosted_state.h deletes
 * from them what an erasure or the retention ends: it puts a new file in the place of the old one,
 * or none, and the agent reads it again before it uses what it remembers. */
#pragma once
#include "base/buf.h"

#define AGENT_SEEN ".seen"
#define AGENT_SESSIONS ".sessions"
#define AGENT_CHATS ".chats"                  /* behind the path of the sessions */
#define AGENT_SESSIONS_MAX ((size_t)64 << 20) /* bytes of such a file */
#define AGENT_CHAT_MAX ((size_t)2 << 20)

struct agent_person { /* borrowed */
    struct str platform, user;
};
/* Appends the path of the file with this suffix of the gateway @id. */
void agent_state_path(struct buf *out, const char *dir, struct str id, const char *suffix);
