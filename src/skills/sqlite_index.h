/* sqlite_index.h - the index of the filesystem backend: the catalog, and a stamp per skill.
 *
 * The stamp records inode, size and mtime of the skill's files when they were read.  The index can
 * be deleted while bellhop is stopped; it is rebuilt from the files. */
#pragma once
#include "skills/catalog.h"

struct skill_stamp { /* of NAME.skill.md, and the length of NAME.versions.jsonl */
    int64_t mtime_ns, ino, size, history_size;
    int64_t seen_ns; /* when the file was read, by the clock of the file system */
};

struct sqldb *skill_index_open(const char *path, bool writer, char *ret_why);
/* @ret_stamp may be NULL. */
enum skill_found skill_index_get(struct sqldb *x, const struct skill_where *at, struct str name,
                                 struct arena *arena, struct skill_row *ret_row,
                                 struct skill_stamp *ret_stamp);
bool skill_index_put(struct sqldb *x, const struct skill_where *at, const struct skill_next *n,
                     const struct skill_stamp *stamp);
bool skill_index_restamp(struct sqldb *x, const struct skill_where *at, struct str name,
                         const struct skill_stamp *stamp);
