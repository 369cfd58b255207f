/* line.h - connects bots of LINE's Messaging API: webhooks in, push messages out.
 *
 * The bot is its user id ("U" and 32 hex digits), which every webhook names as its destination.
 * docs/platforms/line.md describes the set-up. */
#pragma once
#include "platform/platform.h"

struct line_settings {
    struct platform_settings base; /* first */
    char *token, *channel_secret;
};
extern const struct config_section line_config;
extern const struct platform_ops line_ops;
