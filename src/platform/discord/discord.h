/* discord.h - Discord as a platform: gateway in, REST out.
 *
 * The bot is the application's id.  An event's route key is its guild's id, or "dm:<user id>" for a
 * direct message; what is not routed so goes where the bot's own id is routed.
 * docs/platforms/discord.md tells the whole way from creating the bot to the first answer. */
#pragma once
#include "platform/platform.h"

struct dcache;

struct discord_settings {
    struct platform_settings base; /* first */
    char *token, *public_key;
    char *intents;                /* NULL: the usual ones */
    char *interactions;           /* "passthrough" or "inbound"; NULL: passthrough */
    uint32_t context;             /* messages before one that are told with it; 0: none */
    bool auto_thread;             /* answers open threads */
    bool reactions;               /* people's reactions to what the bot said are told */
    char *api_base, *gateway_url; /* NULL: Discord's own */
};
extern const struct config_section discord_config;
/* The intents as Discord counts them: a number, or names with commas between them. */
bool discord_intents(const struct discord_settings *s, uint64_t *ret_intents, char *ret_why);
extern const struct platform_ops discord_ops;

/* What the bot knows of guilds, channels, roles and members, for whoever decides who may see what.
 * @p must be a Discord platform. */
struct dcache *discord_cache(struct platform *p);
