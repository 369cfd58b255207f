/* file.h - small files: reading them whole, safe names, and syncing their folder. */
#pragma once
#include "base/buf.h"

/* False: errno says why (EFBIG: longer than @max_bytes); @out has the bytes read so far. */
bool file_read(const char *path, size_t max_bytes, struct buf *out);
/* Write all bytes at the offset @at; FILE_END: where the descriptor stands.  False: errno says
 * why. */
bool file_write(int fd, struct str bytes, int64_t at);
#define FILE_END INT64_C(-1)
/* Write @text to a file that only this user may read, and sync it.  @how: O_EXCL (it must be new)
 * or O_TRUNC (an older one is replaced).  False: errno says why. */
bool file_put(const char *path, int how, struct str text);
bool file_sync(const char *path); /* a file or a folder */
/* Sync the folder of @path, so that a created, renamed or removed name survives a crash. */
bool file_sync_folder_of(const char *path);

/* Bytes of the files in the folder of @path, without subfolders; 0: it cannot be read. */
uint64_t file_folder_bytes(const char *path);

/* Appends @name as one path component: letters, digits, "_", "-" and inner dots stay, the rest is
 * escaped.  A long name is cut and gets its hash, so different names stay different. */
void file_name_add(struct buf *out, struct str name);
#define FILE_NAME_MAX 200 /* the most it appends, which leaves room for a suffix */
