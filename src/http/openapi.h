/* openapi.h - the description of /v1, embedded when building (web/embed.py). */
#pragma once
#include "base/asset.h"

extern const struct asset http_assets[]; /* openapi.json; ends with a NULL name */
