/* files.h - what the files of the filesystem backend share.  Private to this folder.
 *
 *      ROOT/.index.db                          made anew when it is missing
 *      ROOT/TENANT/NAME.skill.md               the body, written whole (a rename)
 *      ROOT/TENANT/NAME.versions.jsonl         its history, one JSON line per write, old bodies too
 *      ROOT/TENANT/@NAMESPACE/NAME.skill.md    the same in a namespace
 *      ROOT/TENANT/.NAME.tmp                   a body on its way
 *
 * A write is: the body into .NAME.tmp, a line to the history, the rename; each on disk before the
 * next.  The line decides: a .NAME.tmp that the last line knows is renamed after a crash, any other
 * is thrown away.  A delete is a line that says so, then the files go.
 *
 *      found after a crash                   done
 *      .tmp, and the last line is about it   renamed
 *      .tmp, any other                       removed
 *      a line without its end                cut off by the next write, and never read
 *      a history that ends with a delete     both files removed
 *      a body its history does not know      somebody's editor: a line is added
 */
#pragma once
#include <sys/stat.h>
#include "skills/backend.h"
#include "skills/sqlite_index.h"

#define SKILL_BODY_SUFFIX ".skill.md"
#define SKILL_HISTORY_SUFFIX ".versions.jsonl"

/* ---- files.c: one directory of skills; every function touches the disk ---- */

struct skill_dir {
    int fd; /* of the directory; -1: it is not there */
    size_t max_body_bytes;
    char why[160]; /* of the last failure */
};

/* "ROOT/TENANT[/@NS]". */
void skill_dir_path(const char *root, const struct skill_where *at, struct buf *out);
/* @make: create what is missing.  False: failed; a directory that is missing is no failure. */
bool skill_dir_open(struct skill_dir *d, const char *path, bool make);
void skill_dir_close(struct skill_dir *d);

/* The body of @name; SKILL_MISSING also when it is no text or too long. */
enum skill_found skill_file_read(struct skill_dir *d, struct str name, struct buf *out,
                                 struct stat *ret_st);
/* Body and line, in that order of safety; @line ends with its newline.  No @body: only the line.
 * @fresh: what was there of a history is not continued. */
bool skill_file_write(struct skill_dir *d, struct str name, const struct buf *body, struct str line,
                      bool fresh, struct skill_stamp *ret_stamp);
bool skill_file_delete(struct skill_dir *d, struct str name, struct str line);
bool skill_file_stamp(struct skill_dir *d, struct str name, struct skill_stamp *ret_stamp);
/* After a crash: settle .NAME.tmp and histories that end with a delete. */
bool skill_file_recover(struct skill_dir *d, struct str name);

/* ---- files_sync.c: lines of a history ---- */

struct skill_line { /* borrowed from the parser */
    bool deleted;
    bool is_whole; /* it knows author and beginning; otherwise skill_history_origin() does */
    struct skill_head head; /* without its bag; with the body, when the line has it */
    struct json bag;
    struct skill_version version;
};
/* The line of a write; @with_source: the bytes of the one before do not stand for it. */
void skill_line_write(const struct skill_next *n, bool with_source, struct buf *out);
bool skill_line_read(struct json_parser *p, struct str line, struct skill_line *ret_l);
/* The last whole line; SKILL_MISSING: there is none.  *@ret_end: where it ends. */
enum skill_found skill_history_last(struct skill_dir *d, struct str name, struct buf *out,
                                    int64_t *ret_end);
/* What the first line says: of histories that the Skillscript runtime wrote. */
enum skill_found skill_history_origin(struct skill_dir *d, struct str name, int64_t *ret_created_at,
                                      struct buf *ret_author);
/* Every whole line, oldest first.  False from @cb: enough. */
typedef bool skill_line_cb(void *ctx, const struct skill_line *l);
enum skill_found skill_history_each(struct skill_dir *d, struct str name, skill_line_cb *cb,
                                    void *ctx);

/* ---- files_sync.c: who changed what behind our back ---- */

struct skill_watch;
struct skill_watch *skill_watch_new(void);
void skill_watch_free(struct skill_watch *w);
/* Nothing was changed in @dir since it was scanned last.  Any thread. */
bool skill_watch_is_clean(struct skill_watch *w, struct str dir);
/* It was looked at as a whole at least once since the start, so nothing is left of a crash. */
bool skill_watch_is_seen(struct skill_watch *w, struct str dir);
/* What has to be looked at; called by the writer, which does it.  *@ret_all: everything.  Otherwise
 * @cb runs once per name.  Watching starts before the answer, so nothing is missed in between. */
typedef bool skill_watch_cb(void *ctx, struct str name);
bool skill_watch_take(struct skill_watch *w, struct str dir, bool *ret_all, skill_watch_cb *cb,
                      void *ctx);
void skill_watch_spoil(struct skill_watch *w, struct str dir); /* look at everything next time */

/* ---- files_sync.c: files, histories and index brought together; of the writer ---- */

struct skill_files {                 /* shared by the connections */
    int lock_fd;                     /* holds the flock on ROOT/.lock */
    char *root;                      /* owned */
    const struct skill_rules *rules; /* borrowed */
    struct skill_watch *watch;       /* owned */
    char *default_author;            /* owned; NULL: the owner of the file */
};

struct files_conn {
    struct skill_files *files; /* borrowed */
    struct skill_index *index; /* owned */
    bool writer;
    bool index_ok; /* of this transaction; the files are the truth, so a write goes on without it */
    struct skill_dir dir; /* of this call */
    struct buf path;      /* of @dir */
};

/* Open the directory of @at. */
bool files_enter(struct files_conn *c, const struct skill_where *at, bool make);
/* @name as it is now: an edit gets its line in the history first.  @ret_n: the current version. */
enum skill_found files_reconcile(struct files_conn *c, const struct skill_where *at,
                                 struct str name, struct skill_next *ret_n);
/* Everything that changed, or everything when nobody looked yet. */
bool files_sync(struct files_conn *c, const struct skill_where *at);
bool files_sync_once(struct files_conn *c, const struct skill_where *at);
void files_index_put(struct files_conn *c, const struct skill_where *at, const struct skill_next *n,
                     const struct skill_stamp *stamp);
void files_index_drop(struct files_conn *c, const struct skill_where *at, struct str name);
