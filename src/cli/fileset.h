/* fileset.h - several files, written all or not at all.
 *
 *      fileset_add(&f, path, text, 0600);
 *      if (fileset_write(&f, why)) ... look at the result ... fileset_keep(&f) or fileset_undo(&f)
 *      fileset_done(&f);
 *
 * Nothing touches the disk before fileset_write().  fileset_write() first writes every file under
 * another name beside its place, then renames all of them; an error undoes what was done. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "base/buf.h"

#define FILESET_FILES 16

struct fileset {
    struct fileset_file {
        char *path, *text;   /* owned; @text is wiped */
        char *fresh, *older; /* owned: the other names while a write is under way; NULL: none */
        unsigned mode;
        bool placed; /* the new file stands at @path */
    } files[FILESET_FILES];
    size_t n;
    char *folders[FILESET_FILES]; /* owned: folders that fileset_write() made */
    size_t n_folders;
};

/* Adds a file, or replaces the text of one that was added.  A file that is as it shall be is left
 * alone, and a symbolic link stays one: the file behind it changes.  A secret (mode 0600) lies in a
 * folder that only the owner can enter.  An existing file keeps its mode and owner; as root, a
 * new one gets the owner of its folder. */
void fileset_add(struct fileset *d, const char *path, struct str text, unsigned mode);
/* False: nothing has changed; @ret_why has 256 bytes. */
bool fileset_write(struct fileset *d, char *ret_why);
void fileset_keep(struct fileset *d); /* after fileset_write(): the older files go */
void fileset_undo(struct fileset *d); /* after fileset_write(): the older files come back */
void fileset_done(struct fileset *d); /* frees; undoes nothing */
