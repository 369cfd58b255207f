/* asset.h - a file that rides inside the program, embedded when building (web/embed.py). */
#pragma once
#include "base/str.h"

struct asset {
    const char *name, *type, *etag; /* etag with its quotes */
    struct str bytes;
};
