/* telegram.h - Telegram bots as a platform: one struct platform per bot token. */
#pragma once
#include "platform/platform.h"

struct telegram_settings {
    struct platform_settings base; /* first */
    char *token, *webhook_secret;
    char *mode;       /* "polling" or "webhook"; NULL: polling */
    char *api_base;   /* NULL: Telegram's own */
    uint32_t context; /* earlier messages that a group's event carries; 0: none */
    bool reactions;   /* people's reactions to the bot's messages are events */
};
extern const struct config_section telegram_config;
extern const struct platform_ops telegram_ops;
