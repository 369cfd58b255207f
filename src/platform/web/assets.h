/* assets.h - the files of web/chat/, embedded when building (web/embed.py). */
#pragma once
#include "base/asset.h"

extern const struct asset web_assets[]; /* ends with a NULL name */
