/* wecom.h - connects agents of WeCom (WeChat Work): encrypted callbacks in, the message API out.
 *
 * The bot is the agent's id.  The route key of an event is the person's id; if it has no route, the
 * bot's route applies.  docs/platforms/wecom.md describes the set-up. */
#pragma once
#include "platform/platform.h"

struct wecom_settings {
    struct platform_settings base; /* first */
    char *corp_id, *secret, *token, *encoding_aes_key;
    bool scoped_ids;
};
extern const struct config_section wecom_config;
extern const struct platform_ops wecom_ops;
