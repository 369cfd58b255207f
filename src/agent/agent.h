/* agent.h - `bellhop agent`: runs any program as a gateway.
 *
 *      connector ==WebSocket== gateway client ==posts==> worker ==lines==> program
 *                                    ^                                         |
 *                                    '-- conversation: actions in order <------'
 *
 * The gateway client's threads only copy events and post them; everything else runs on one loop.
 *
 * Each message gets a turn: the program reads the message as one line, and its output lines answer
 * that message until the turn is over.  A program has one message in hand at a time (--window
 * changes that), so a line of plain text cannot reach the wrong chat.
 *
 *      WAITING --handed--> IN HAND --a line of text, "done", or exit 0--> OVER
 *         ^                   |                             answers are out: freed
 *         '-- program died ---'   unless the message was answered, or a person interrupted it
 *
 * A webhook that the connector passes through is a line too, but needs no answer.  It is never in
 * hand, and is acknowledged when the program has read it.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct agent_options { /* borrowed while agent_run() runs */
    const char *url, *gateway_id, *secret, *ca_file;
    const struct bhgw_identity *identities;
    size_t n_identities;
    const char *seen_file;             /* keeps acknowledged ids across runs; NULL: memory only */
    const struct bhgw_policy *policy;  /* declared on connect; NULL: the policy stays as it is */
    const struct backend_ops *backend; /* what the agent speaks */
    char **argv;                       /* the program; ends with NULL */
    bool per_chat;
    size_t max_programs;  /* with per_chat: programs running at once */
    int64_t chat_idle_ms; /* with per_chat: a program idle for longer is ended */
    size_t window;        /* messages that a program has in hand at once */
    bool until_done;      /* only "done" ends a turn, a line of text does not */
    bool ack_on_reply;    /* acknowledge on the answer; else when the program has read the line */
    int64_t turn_ms;      /* timeout of a turn: the program is restarted; 0: none */
    int64_t grace_ms;     /* time for unfinished turns after SIGTERM */
    bool no_typing;       /* suppresses typing indicators.  They show people that a turn takes
                           * long, and keep the instance from looking idle to the connector */
    bool quiet;           /* nothing on stdout */

    /* backends with turns (backend.h) */
    const char *sessions_file; /* keeps the agent's sessions across runs; NULL: memory only */
    size_t sessions;           /* of one program */
    const char *login;         /* ACP: the agent's way to log in; NULL: none is asked for */
    bool shared_groups;        /* one conversation for all people of a shared chat */
    bool merge;                /* all messages that came during a turn are the next turn */
    bool progress;             /* show what the agent does */
    int64_t permission_ms;     /* timeout of a question */

    /* models behind an HTTP interface */
    const char *model_url, *model, *model_key, *model_ca; /* key, ca: NULL if none */
    size_t history; /* messages of a conversation that a model gets, besides the new one */
};

/* Runs until SIGTERM or SIGINT.  Returns the exit status: 0 clean shutdown, 1 failure, 2 bad
 * option, 3 the connector revoked this gateway. */
int agent_run(const struct agent_options *opt);
