/* wecom.h - WeCom (WeChat Work) agents: encrypted callbacks in, the message API out.
 *
 * The bot is the agent's id.  A person's id is the route key; without such a route the event
 * follows the bot's.  docs/platforms/wecom.md goes from the agent to the first answer. */
#pragma once
#include "platform/platform.h"

struct wecom_settings {
    struct platform_settings base; /* first */
    char *corp_id, *secret, *token, *encoding_aes_key;
    char *api_base; /* NULL: WeCom's own */
};
extern const struct config_section wecom_config;
extern const struct platform_ops wecom_ops;
