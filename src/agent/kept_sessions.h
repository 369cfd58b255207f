/* kept_sessions.h - remembers the agent's session of each conversation across restarts.
 *
 * A file of JSON lines (base/agent_state.h): the last line of a key counts, and an empty session
 * forgets it.  Every change appends one line; a file with too many lines is written anew beside
 * the old one and renamed.  At most KEPT_SESSIONS_MAX conversations are kept, the newest ones.  The
 * file is not synced: a power failure may lose the newest lines, and the conversation then begins a
 * new session. */
#pragma once
#include "base/agent_state.h"

struct kept_sessions;

#define KEPT_SESSIONS_MAX 16384
#define KEPT_SESSION_BYTES 1024 /* of an id; longer ones are not kept */

/* Reads the file; @path NULL: memory only.  Never fails: a file that cannot be used is logged. */
struct kept_sessions *kept_sessions_open(const char *path);
void kept_sessions_close(struct kept_sessions *k); /* NULL is fine */
/* The session of @key; NULL: none.  Borrowed until the next call. */
const char *kept_sessions_get(struct kept_sessions *k, struct str key);
/* @by: who began the session. */
void kept_sessions_put(struct kept_sessions *k, struct str key, struct str session,
                       struct agent_person by);
void kept_sessions_forget(struct kept_sessions *k, struct str key);
