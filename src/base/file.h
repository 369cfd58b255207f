/* file.h - small files, read whole. */
#pragma once
#include "base/buf.h"

/* False: errno says why (EFBIG: longer than @max_bytes).  What was read is in @out either way. */
bool file_read(const char *path, size_t max_bytes, struct buf *out);
