/* files.h - the files of a turn's messages, fetched for an agent that cannot fetch them itself.
 *
 * Files that the connector keeps (/relay/media/) are fetched with the gateway's credential, which
 * goes to the connector and nowhere else.  Other files are fetched from public addresses only.
 *
 *      s->files = files_fetch(agent, turn, wants, on_files, s);
 *      files_cancel(&s->files);    // on_files will not run
 */
#pragma once
#include "base/buf.h"

struct agent;
struct agent_turn;
struct turn_files;

#define FILES_MAX 16                       /* of one turn; further files are links */
#define FILE_MAX_BYTES ((size_t)8 << 20)   /* of one file */
#define FILES_MAX_BYTES ((size_t)24 << 20) /* of one turn */

struct turn_file {
    const char *url, *type, *name; /* borrowed from the turn's messages; type and name never NULL */
    struct buf bytes;              /* if fetched */
    bool fetched;
    bool kept; /* the connector keeps it: nobody else can fetch the URL */
};

typedef bool files_want_cb(void *ctx, const struct turn_file *f);
/* @files are borrowed until files_cancel(), which the callback calls. */
typedef void files_cb(void *ctx, const struct turn_file *files, size_t n);

/* Fetches the files that @wants.  @done runs once, later.  NULL: the messages have no files. */
struct turn_files *files_fetch(struct agent *a, struct agent_turn *t, files_want_cb *wants,
                               files_cb *done, void *ctx);
void files_cancel(struct turn_files **f); /* sets NULL; NULL inside is fine */
