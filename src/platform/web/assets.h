/* assets.h - the files of the chat page (web/chat/), which web/embed.py embeds in the build. */
#pragma once
#include "base/asset.h"

extern const struct asset web_assets[]; /* ends with a NULL name */
