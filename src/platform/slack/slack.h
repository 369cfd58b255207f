/* slack.h - connects Slack apps: the Events API or Socket Mode in, the Web API out.
 *
 * The bot is the app's id.  The route key of an event is its workspace, for a direct message
 * "dm:<user>".  docs/platforms/slack.md describes the set-up. */
#pragma once
#include "platform/platform.h"

struct slack_settings {
    struct platform_settings base; /* first */
    char *mode; /* "socket" or "webhook"; NULL: socket if there is an app_token */
    char *bot_token, *app_token, *signing_secret, *client_id, *client_secret;
};
extern const struct config_section slack_config;
extern const struct platform_ops slack_ops;
