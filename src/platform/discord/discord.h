/* discord.h - the Discord adapter: receives events through a WebSocket, sends REST requests.
 *
 * The host uses it through discord_ops only.  The bot's name in the configuration is the id of the
 * Discord application.  An event's route key is its guild's id, or "dm:<user id>" for a direct
 * message; an event without such a route follows the route of the bot's id.
 * docs/platforms/discord.md goes from creating the bot to the first answer. */
#pragma once
#include "platform/platform.h"

struct discord_settings {
    struct platform_settings base; /* first */
    char *token, *public_key;
    char *intents;      /* NULL: DISCORD_INTENTS_DEFAULT */
    char *interactions; /* "passthrough" or "inbound"; NULL: passthrough */
    uint32_t context;   /* earlier messages that an event carries; 0: none */
    bool auto_thread;   /* answers open threads */
    char *gateway_url;  /* NULL: the address that Discord names */
};
extern const struct config_section discord_config;
/* Reads `intents`: Discord's number, or names separated by commas. */
extern const struct platform_ops discord_ops;
