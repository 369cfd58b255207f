/* seen_file.h - the settled ids on disk, so that the next process knows them too.
 *
 * A list of lines, the newest last, bounded to twice what seen.h keeps.  An id is in the file
 * before its acknowledgement leaves; a process that dies in between settles the repetition without
 * handing it over.  It spans the death of the process, not of the machine: nothing is synced.
 *
 *      CLOSED --open--> HELD --done--> CLOSED        one process at a time holds it, by a lock
 *                 '---> TAKEN --an id settles and the other process is gone--> HELD
 */
#pragma once
#include "seen.h"

struct seen_file {
    char *path;     /* owned; NULL: closed, nothing is written */
    int fd;         /* locked by us; -1: TAKEN */
    size_t n_lines; /* in the file */
    size_t bytes;   /* of the file, all of them whole lines */
    bool failing;   /* a write failed, and that was told */
};

/* Read @path into @l, making it if need be.  False: @ret_why (256 bytes) says what is wrong.  A
 * line that was not written to its end is dropped; a file that is not ours is refused, and stays.
 */
bool seen_file_open(struct seen_file *f, const char *path, struct seen *l, char *ret_why);
void seen_file_done(struct seen_file *f); /* one that was never opened, but zeroed, is fine */

/* @id was settled in @l.  False: it could not be written; told once until it works again. */
bool seen_file_add(struct seen_file *f, struct seen *l, struct str id);
