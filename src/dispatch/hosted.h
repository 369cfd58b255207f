/* hosted.h - agents that bellhop runs itself: substrates program, acp, responses and chat.
 *
 *      IDLE --turn ends--> ENTERING --its gateway is in the facts--> RUNNING --exit--> RESTING
 *                             ^                                         |                 |
 *                             '--------------- backoff is over ---------|-----------------'
 *                                                      stop, change --> STOPPING --exit--> freed
 *
 * Each is a child process `bellhop agent ...` that connects to this server as a gateway of the
 * entry's instance; src/agent does the rest, and for dispatch the agent is one on the relay.  The
 * gateway is made by this module, with a credential of its own: the secret is sealed in the store
 * and reaches the child in its environment.  With `platform` and `bot` the gateway is added for
 * that bot, as `bellhop gateway add` would; people link themselves, or the bot is `open`.
 *
 * A child that exits is started again, with backoff from 1 s to 1 min.  Its standard error is
 * logged, at most HOSTED_LINES lines a second.  The spawner runs the children, outside of the
 * sandbox.  On a cluster the node that serves runs them.
 *
 * dispatch.c opens and closes it; agent.c's table says which agents there are. */
#pragma once
#include <stddef.h>
#include "base/buf.h"

#define HOSTED_LINES 10

struct agent_settings;
struct dispatch;
struct hosts;

struct hosts *hosts_new(struct dispatch *d);
void hosts_free(struct hosts *h); /* ends the children at once; NULL is fine */
/* The table of agents has changed: starts, restarts and stops children.  A removed agent's gateway
 * is revoked. */
void hosted_update(struct dispatch *d);
/* Revokes the gateways of agents that went from the configuration while the server was down. */
void hosted_revoke_removed(struct dispatch *d);
/* Why the agent does not run, a phrase; NULL: it does, or it is not hosted. */
const char *hosted_problem(const struct dispatch *d, struct str tenant, struct str id);

/* Fills @argv with the command of the child, NULL-terminated; texts are borrowed from @s and @room.
 * Returns the number of words; 0: the command is too long. */
#define HOSTED_WORDS 120
struct hosted_words {
    char identity[300], timeout[24], permission[24], history[16], sessions[16], state[4096];
};
size_t hosted_command(const struct agent_settings *s, const char *state_dir,
                      struct hosted_words *room, const char *argv[HOSTED_WORDS + 1]);
/* Appends the folder in which the children keep their files. */
void hosted_folder(const char *state_dir, struct buf *out);
bool hosted_owns(const char *gateway); /* true: the gateway with this id was made by this module */
/* The path of this program.  Call it once before the sandbox is closed. */
const char *hosted_program(void);
