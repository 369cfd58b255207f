/* asset.h - a file embedded in the program by the build (web/embed.py). */
#pragma once
#include "base/str.h"

struct asset { /* a table ends with an entry without a name, whose etag is the version of all */
    const char *name, *type, *etag; /* etag with its quotes */
    struct str bytes;
};
