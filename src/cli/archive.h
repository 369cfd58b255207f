/* archive.h - a backup as one file: a tar (ustar) that other programs can read too.
 *
 * Written from files whose size is known, read back one member after the other.  Names are
 * relative, of less than ARCHIVE_NAME bytes; anything else in one is refused, not skipped.  The
 * last member, ARCHIVE_SUM, is the SHA-256 of all names and contents before it: whoever reads to
 * the end knows that nothing was changed.  (Older archives have none.) */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

#define ARCHIVE_NAME 1024
#define ARCHIVE_SUM "SHA256"

struct digest;

struct archive {
    int fd;             /* of the archive; owned */
    uint64_t left;      /* reading: bytes of the member not read yet */
    uint64_t pad;       /* and the zeros behind it */
    struct digest *sum; /* owned; of what was written or read so far */
};

/* @ret_why has 256 bytes everywhere. */
enum bh_err archive_create(struct archive *a, const char *path, char *ret_why);
enum bh_err archive_add(struct archive *a, const char *name, const char *file, char *ret_why);
enum bh_err archive_finish(struct archive *a, char *ret_why); /* the end, on disk; then close it */

enum bh_err archive_open(struct archive *a, const char *path, char *ret_why);
/* The next member; BH_NOT_FOUND: that was all, and it is as it was written. */
enum bh_err archive_next(struct archive *a, char ret_name[ARCHIVE_NAME], uint64_t *ret_bytes,
                         char *ret_why);
enum bh_err archive_extract(struct archive *a, const char *file, char *ret_why); /* a new file */
void archive_close(struct archive *a);

/* ---- a bar on stderr, where a person looks ---- */
struct progress {
    const char *what; /* borrowed */
    bool tty;
    int64_t shown_ms; /* when it was last drawn */
};

void progress_begin(struct progress *p, const char *what);
void progress_show(struct progress *p, uint64_t done,
                   uint64_t all);      /* ten times a second at most */
void progress_end(struct progress *p); /* the bar goes away */
