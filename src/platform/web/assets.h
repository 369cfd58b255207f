/* assets.h - the files of web/chat/, embedded when building (web/embed.py). */
#pragma once
#include "base/str.h"

struct asset {
    const char *name, *type, *etag; /* etag with its quotes */
    struct str bytes;
};
extern const struct asset web_assets[]; /* ends with a NULL name */
