/* wecom.h - WeCom (WeChat Work) agents: encrypted callbacks in, the message API out.
 *
 * The bot is the agent's id.  A person is routed by their id where that is routed, else by the bot.
 * docs/platforms/wecom.md tells the whole way. */
#pragma once
#include "platform/platform.h"

extern const struct platform_ops wecom_ops;
