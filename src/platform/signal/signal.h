/* signal.h - connects a Signal account by signal-cli: a child process, or a daemon's socket.
 *
 * The bot is the account's number ("+15551230000").  People are known by their UUID, and their
 * number is an alias.  The route key of an event is the chat: a person, or "group:" and the group's
 * id.  docs/platforms/signal.md describes the set-up. */
#pragma once
#include "platform/platform.h"

struct signal_settings {
    struct platform_settings base; /* first */
    char **command;                /* signal-cli and its arguments; NULL: address */
    char *address;                 /* unix:/path or host:port */
    bool read_receipts;
};
extern const struct config_section signal_config;
extern const struct platform_ops signal_ops;
