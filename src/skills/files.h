/* files.h - the interface between files.c and files_sync.c, the filesystem backend.  Private to
 * this folder.
 *
 *      ROOT/.index.db                          rebuilt when it is missing
 *      ROOT/TENANT/NAME.skill.md               the body, replaced atomically by a rename
 *      ROOT/TENANT/NAME.versions.jsonl         its history, one JSON line per write, old bodies too
 *      ROOT/TENANT/@NAMESPACE/NAME.skill.md    the same in a namespace
 *      ROOT/TENANT/.NAME.tmp                   a body that is being written
 *
 * A write has three steps: write the body to .NAME.tmp, append a line to the history, rename.  Each
 * step is synced before the next.  The appended line commits the write.  A delete appends a line
 * that says so, then removes the files.
 *
 *      found after a crash                     recovery
 *      .tmp, and the last line describes it    renamed
 *      .tmp, any other                         removed
 *      a line without its newline              never read; the next write truncates it
 *      a history that ends with a delete       both files removed
 *      a body that its history does not have   an editor changed it: a line is appended
 */
#pragma once
#include <sys/stat.h>
#include "skills/backend.h"
#include "skills/sqlite_index.h"

#define SKILL_BODY_SUFFIX ".skill.md"
#define SKILL_HISTORY_SUFFIX ".versions.jsonl"

/* ---- files.c: one directory of skills; every function does disk I/O ---- */

struct skill_dir {
    int fd; /* of the directory; -1: the directory does not exist */
    size_t max_body_bytes;
    char why[160]; /* of the last failure */
};

/* "ROOT/TENANT[/@NS]". */
void skill_dir_path(const char *root, const struct skill_where *at, struct buf *out);
/* @make: create missing directories.  False: failed; a missing directory is not a failure. */
bool skill_dir_open(struct skill_dir *d, const char *path, bool make);
void skill_dir_close(struct skill_dir *d);

/* Reads the body of @name.  A file that is not text or is too long is SKILL_MISSING too. */
enum skill_found skill_file_read(struct skill_dir *d, struct str name, struct buf *out,
                                 struct stat *ret_st);
/* Writes @body and @line in the order described above.  @line includes its newline.  @body NULL:
 * only the line.  @fresh: starts a new history instead of continuing the existing one. */
bool skill_file_write(struct skill_dir *d, struct str name, const struct buf *body, struct str line,
                      bool fresh, struct skill_stamp *ret_stamp);
bool skill_file_stamp(struct skill_dir *d, struct str name, struct skill_stamp *ret_stamp);
/* After a crash: settle .NAME.tmp and histories that end with a delete. */
bool skill_file_recover(struct skill_dir *d, struct str name);

/* ---- files_sync.c: lines of a history ---- */

struct skill_line { /* borrowed from the parser */
    bool deleted;
    bool is_whole; /* has author and created_at; otherwise the first line of the history has them */
    struct skill_head head; /* without its bag; with the body if the line has one */
    struct json bag;
    struct skill_version version;
};
/* Formats the line of a write.  @with_source false: the body equals the previous version's and is
 * left out. */
void skill_line_write(const struct skill_next *n, bool with_source, struct buf *out);
bool skill_line_read(struct json_parser *p, struct str line, struct skill_line *ret_l);
/* Reads the last complete line; SKILL_MISSING: there is none.  *@ret_end: the offset of its end. */
enum skill_found skill_history_last(struct skill_dir *d, struct str name, struct buf *out,
                                    int64_t *ret_end);
/* Every complete line, oldest first.  @cb returns false to stop. */
typedef bool skill_line_cb(void *ctx, const struct skill_line *l);
enum skill_found skill_history_each(struct skill_dir *d, struct str name, skill_line_cb *cb,
                                    void *ctx);

/* ---- files_sync.c: inotify watches, to notice edits by other programs ---- */

struct skill_watch *skill_watch_new(void);
void skill_watch_free(struct skill_watch *w);
/* Nothing changed in @dir since its last scan.  Any thread. */
bool skill_watch_is_clean(struct skill_watch *w, struct str dir);
/* @dir had a full scan since start-up, so crash recovery is complete there. */
bool skill_watch_is_seen(struct skill_watch *w, struct str dir);
/* Lists the files to scan; called by the writer, which scans them.  *@ret_all: scan the whole
 * directory.  Otherwise @cb runs once per changed name.  The watch is installed before this
 * returns, so a change during the scan is not missed. */
typedef bool skill_watch_cb(void *ctx, struct str name);
bool skill_watch_take(struct skill_watch *w, struct str dir, bool *ret_all, skill_watch_cb *cb,
                      void *ctx);
void skill_watch_spoil(struct skill_watch *w, struct str dir); /* forces a full scan next time */

/* ---- files_sync.c: synchronises files, histories and index; writer only ---- */

struct skill_files {                 /* shared by the connections */
    int lock_fd;                     /* holds the flock on ROOT/.lock */
    char *root;                      /* owned */
    const struct skill_rules *rules; /* borrowed */
    struct skill_watch *watch;       /* owned */
    char *default_author;            /* owned; NULL: the file owner's name */
};

struct files_conn {
    struct skill_files *files; /* borrowed */
    struct sqldb *index;       /* owned */
    bool writer;
    bool
        index_ok; /* in this transaction; the files are authoritative, so a write goes on without */
    struct skill_dir dir; /* of this request */
    struct buf path;      /* of @dir */
};

/* Open the directory of @at. */
bool files_enter(struct files_conn *c, const struct skill_where *at, bool make);
/* Reads the current version of @name into @ret_n.  An edit by another program gets its line in the
 * history first. */
enum skill_found files_reconcile(struct files_conn *c, const struct skill_where *at,
                                 struct str name, struct skill_next *ret_n);
/* Reconciles every changed skill of @at; all skills if the directory was never scanned. */
bool files_sync(struct files_conn *c, const struct skill_where *at);
bool files_sync_once(struct files_conn *c, const struct skill_where *at);
void files_index_put(struct files_conn *c, const struct skill_where *at, const struct skill_next *n,
                     const struct skill_stamp *stamp);
void files_index_drop(struct files_conn *c, const struct skill_where *at, struct str name);
