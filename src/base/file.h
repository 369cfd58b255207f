/* file.h - small files: reading them whole, safe names, and syncing their folder. */
#pragma once
#include "base/buf.h"

/* False: errno says why (EFBIG: longer than @max_bytes).  What was read is in @out either way. */
bool file_read(const char *path, size_t max_bytes, struct buf *out);
/* Sync the folder of @path, so that a created, renamed or removed name survives a crash. */
bool file_sync_folder_of(const char *path);

/* Bytes of the files in the folder that @path lies in, not below it; 0 when it cannot be read. */
uint64_t file_folder_bytes(const char *path);

/* @name as one component of a path: letters, digits, "_", "-" and inner dots stay, the rest is
 * escaped.  One that gets too long is cut and told apart by its hash: no two are the same. */
void file_name_add(struct buf *out, struct str name);
#define FILE_NAME_MAX 200 /* what it adds at most: there is room for a suffix */
