/* wecom.h - WeCom (WeChat Work) agents: encrypted callbacks in, the message API out.
 *
 * The bot is the agent's id.  A person is routed by their id where that is routed, else by the bot.
 * docs/platforms/wecom.md tells the whole way. */
#pragma once
#include "platform/platform.h"

struct wecom_settings {
    struct platform_settings base; /* first */
    char *corp_id, *secret, *token, *encoding_aes_key;
    char *api_base; /* NULL: WeCom's own */
};
extern const struct config_section wecom_config;
extern const struct platform_ops wecom_ops;
