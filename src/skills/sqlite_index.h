/* sqlite_index.h - the index of the filesystem backend: the catalog, and a stamp per skill.
 *
 * The stamp records inode, size and mtime of the skill's files when they were read.  The index can
 * be deleted while bellhop is stopped; it is rebuilt from the files. */
#pragma once
#include "skills/backend.h"

struct skill_index;

struct skill_stamp { /* of NAME.skill.md, and the length of NAME.versions.jsonl */
    int64_t mtime_ns, ino, size, history_size;
    int64_t seen_ns; /* when the file was read, by the clock of the file system */
};

struct skill_index *skill_index_open(const char *path, bool writer, char *ret_why);
void skill_index_close(struct skill_index *x);
bool skill_index_begin(struct skill_index *x, bool write);
bool skill_index_commit(struct skill_index *x);
void skill_index_rollback(struct skill_index *x);
void skill_index_for_job(struct skill_index *x, const struct lane_job *job);
const char *skill_index_problem(const struct skill_index *x);

enum skill_found skill_index_get(struct skill_index *x, const struct skill_where *at,
                                 struct str name, struct arena *arena, struct skill_row *ret_row,
                                 struct skill_stamp *ret_stamp);
bool skill_index_put(struct skill_index *x, const struct skill_where *at,
                     const struct skill_next *n, const struct skill_stamp *stamp);
bool skill_index_restamp(struct skill_index *x, const struct skill_where *at, struct str name,
                         const struct skill_stamp *stamp);
bool skill_index_drop(struct skill_index *x, const struct skill_where *at, struct str name);
bool skill_index_size(struct skill_index *x, struct str tenant, uint64_t *ret_bytes);
bool skill_index_namespaces(struct skill_index *x, struct str tenant, skill_ns_cb *cb, void *ctx);
bool skill_index_sizes(struct skill_index *x, skill_size_cb *cb, void *ctx);
enum skill_found skill_index_list(struct skill_index *x, const struct skill_where *at,
                                  const struct skill_query *q, skill_row_cb *cb, void *ctx);
enum skill_found skill_index_token(struct skill_index *x, const struct skill_where *at,
                                   char ret_token[SKILL_TOKEN_BYTES]);
