/* agent.h - any program as a gateway: `bellhop agent`.
 *
 *      connector ==WebSocket== gateway client ==posts==> worker ==lines==> program
 *                                    ^                                         |
 *                                    '-- conversation: actions in order <------'
 *
 * The library's threads only copy and post; everything else happens on one loop.
 *
 * A message has a turn: it is handed to a program as one line, and the program's lines are about it
 * until the turn is over.  A program has one message in hand at a time (--window changes that), so
 * a line of plain text can never land in somebody else's chat.
 *
 *      WAITING --handed--> IN HAND --a line of text, "done", or exit 0--> OVER
 *         ^                   |                             answers are out: freed
 *         '---- it died ------'   unless something was said already, or a person interrupted it
 *
 * A webhook that the connector passes through is a line too, but nobody waits for an answer to it:
 * it has no turn, and is acknowledged when the program has read it.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bhgw_identity;
struct bhgw_policy;

struct agent_options { /* borrowed while it runs */
    const char *url, *gateway_id, *secret, *ca_file;
    const struct bhgw_identity *identities;
    size_t n_identities;
    const char *seen_file;            /* ids of what was acknowledged; NULL: forgotten at the end */
    const struct bhgw_policy *policy; /* declared when it connects; NULL: left as it is */
    char **argv;                      /* the program; ends with NULL */
    bool per_chat;
    size_t max_programs;  /* with per_chat: running at once */
    int64_t chat_idle_ms; /* with per_chat: a program that heard nothing for so long is ended */
    size_t window;        /* messages in a program's hand at once */
    bool until_done;      /* only "done" ends a turn, a line of text does not */
    bool ack_on_reply;    /* else: when the program has read the line */
    int64_t turn_ms;      /* a longer turn is given up and the program started anew; 0: never */
    int64_t grace_ms;     /* for turns under way after SIGTERM */
    bool no_typing;       /* else a turn that takes long shows as typing, to people and to whoever
                           * asks the connector whether this instance is idle */
    bool quiet;           /* nothing on stdout */
};

/* Run until SIGTERM or SIGINT.  Returns the exit status: 0 left in good order, 1 failed, 2 an
 * option makes no sense, 3 the connector revoked this gateway. */
int agent_run(const struct agent_options *opt);
