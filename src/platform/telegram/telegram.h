/* telegram.h - Telegram bots as a platform: one struct platform per bot token. */
#pragma once
#include "platform/platform.h"

extern const struct platform_ops telegram_ops;
