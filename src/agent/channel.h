/* channel.h - `bellhop mcp --channel`: the mailbox of an instance as a channel of Claude Code.
 *
 *      Claude Code ==stdio, JSON-RPC== channel ==HTTP, /v1/mailbox== bellhop
 *
 *      delivery --pull--> notifications/claude/channel --> the model --reply, ack--> done
 *
 * Claude Code drops notifications without an error: before it has loaded the channel, at a restart,
 * sometimes while it is busy.  So nothing counts as delivered before the model names it.  A
 * delivery is done when the tool `reply` or `ack` names it.  All others stay in the mailbox and
 * come again at the next start, marked repeat="true".  Every answer of a tool lists the deliveries
 * that are not done, and the tool `history` shows them, so that a model finds what was dropped on
 * the way.
 *
 * Within one session a delivery comes once, also when bellhop restarts: the channel goes on behind
 * the newest delivery that it has read.  At most @window deliveries are in the model's hands; a
 * delivery that is not done after CHANNEL_STALE_MS makes room for another one.
 *
 * The channel pulls its mail (relay/in/inside.h) and does not dial /relay.  On a socket the window
 * of unacked messages fills with what a model never acks, after 90 s without an ack the agent
 * counts as away, and a delivery that outlived ten sockets is parked.  A model needs minutes, and
 * its sessions end as they like.
 *
 * A permission request of Claude Code becomes a question with two buttons that only people linked
 * to the instance may press.  It is asked in the chat of the delivery in hand, else in the direct
 * chat of such a person.  Where neither is possible, and when its time is up, the answer is no.
 *
 * A newer session of the instance takes the mailbox over; this one tells the model so and exits.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define CHANNEL_STALE_MS ((int64_t)10 * 60 * 1000)
#define CHANNEL_FILE_BYTES ((size_t)25 << 20)   /* of one attachment */
#define CHANNEL_FILES_BYTES ((size_t)256 << 20) /* of all attachments of a session */

struct channel_options {        /* borrowed while channel_run() runs */
    const char *url;            /* of the server, without a slash at its end */
    const char *unix_socket;    /* connect here instead; NULL: by @url */
    const char *const *headers; /* they authenticate us; NULL-terminated */
    const char *instance;
    const char *version; /* of this program */
    size_t window;
    int64_t settle_ms;     /* pause between the client's tools/list and the first delivery */
    int64_t permission_ms; /* timeout of a question */
};

/* Runs until standard input ends, SIGTERM or SIGINT, or until the channel may not go on.  Returns
 * the exit status: 0 the client went or another session took over, 1 failure. */
int channel_run(const struct channel_options *opt);
