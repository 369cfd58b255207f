/* asset.h - a file embedded in the program by the build (web/embed.py). */
#pragma once
#include "base/str.h"

struct asset {
    const char *name, *type, *etag; /* etag with its quotes */
    struct str bytes;
};
