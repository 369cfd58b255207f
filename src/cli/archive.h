/* archive.h - writes and reads a backup file: a tar archive (ustar) that other programs can read.
 *
 * backup.c writes one member per file and reads them back in order.  The reader refuses names that
 * are absolute, lead upwards, or have ARCHIVE_NAME bytes or more.  The last member, ARCHIVE_SUM, is
 * the SHA-256 of all names and contents before it, so a reader that reaches the end has verified
 * the archive.  (Older archives have no checksum.) */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

#define ARCHIVE_NAME 1024
#define ARCHIVE_SUM "SHA256"

struct archive {
    int fd;             /* of the archive; owned */
    uint64_t left;      /* reading: bytes of the member not read yet */
    uint64_t pad;       /* reading: padding bytes after the member */
    struct digest *sum; /* owned; checksum of everything written or read so far */
};

/* @ret_why has 256 bytes everywhere. */
enum bh_err archive_create(struct archive *a, const char *path, char *ret_why);
enum bh_err archive_add(struct archive *a, const char *name, const char *file, char *ret_why);
enum bh_err archive_finish(struct archive *a, char *ret_why); /* writes the checksum and syncs */

enum bh_err archive_open(struct archive *a, const char *path, char *ret_why);
/* The next member.  BH_NOT_FOUND: the end of the archive; its checksum matched. */
enum bh_err archive_next(struct archive *a, char ret_name[ARCHIVE_NAME], uint64_t *ret_bytes,
                         char *ret_why);
enum bh_err archive_extract(struct archive *a, const char *file, char *ret_why); /* to a new file */
void archive_close(struct archive *a);

/* ---- a progress bar on stderr, if that is a terminal ---- */
struct progress {
    const char *what; /* borrowed */
    bool tty;
    int64_t shown_ms; /* when it was last drawn */
};

void progress_begin(struct progress *p, const char *what);
void progress_show(struct progress *p, uint64_t done,
                   uint64_t all);      /* ten times a second at most */
void progress_end(struct progress *p); /* removes the bar */
