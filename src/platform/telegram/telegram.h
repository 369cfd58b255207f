/* telegram.h - connects Telegram bots to bellhop: one struct platform per bot token.
 *
 * The host opens a bot through telegram_ops; docs/platforms/telegram.md describes the settings. */
#pragma once
#include "platform/platform.h"

struct telegram_settings {
    struct platform_settings base; /* first */
    char *token, *webhook_secret;
    char *mode;       /* "polling" or "webhook"; NULL: polling */
    uint32_t context; /* earlier messages to add to an event from a group; 0: none */
    bool drafts;      /* show unfinished answers in private chats as previews */
    bool rich;        /* send Markdown as rich messages */
};
extern const struct config_section telegram_config;
extern const struct platform_ops telegram_ops;
