/* irc.h - connects a bot to an IRC network.
 *
 * The bot is "nick@network".  The chat is "#channel@network", or "nick@network" for a person; the
 * person is "account@network".  The route key of an event is the chat.  docs/platforms/irc.md
 * describes the set-up. */
#pragma once
#include "platform/platform.h"

struct irc_settings {
    struct platform_settings base; /* first */
    char *server;                  /* host:port */
    bool tls;
    char *ca;        /* NULL: the system's authorities */
    char *password;  /* of the server; NULL: none */
    char *username;  /* NULL: the nick */
    char *real_name; /* NULL: a default */
    struct {
        int mechanism; /* enum sasl_mechanism */
        char *user, *password, *cert;
    } sasl;
    char **channels;  /* "#lobby", or "#lobby key"; NULL: none */
    uint32_t context; /* messages; 0: none */
    uint32_t burst;
    int64_t interval_ms;
};
extern const struct config_section irc_config;
extern const struct platform_ops irc_ops;
