/* seen.h - deduplicates deliveries by their id.
 *
 * The connector repeats every delivery that is not acknowledged; with this table no delivery
 * reaches a handler twice.  An id is pending from the moment it is queued until it is settled or
 * forgotten.  The last @keep settled ids are remembered.
 *
 *  unknown --add--> PENDING --settle--> SETTLED --@keep newer ones settle--> unknown
 *                      '----forget----> unknown (a repetition is new)
 */
#pragma once
#include "base/list.h"
#include "base/map.h"

#define SEEN_ID_MAX 256 /* frames.c refuses longer ids */

enum seen_state { SEEN_PENDING, SEEN_SETTLED };

struct seen_entry {
    struct list link; /* settled ones, oldest first */
    uint64_t number;  /* the application's ->delivery; never reused */
    uint64_t socket;  /* the connection that delivered it last */
    enum seen_state state;
    size_t id_bytes;
    char id[]; /* and a NUL */
};

struct seen {
    struct map by_id;     /* all */
    struct map by_number; /* the pending ones */
    struct list settled;
    size_t n_settled, keep;
    uint64_t last_number;
};

void seen_init(struct seen *l, size_t keep);
void seen_done(struct seen *l);

struct seen_entry *seen_find(const struct seen *l, struct str id); /* NULL: unknown */
/* Adds the unknown @id, received over @socket, as pending. */
struct seen_entry *seen_add(struct seen *l, struct str id, uint64_t socket);
struct seen_entry *seen_pending(const struct seen *l, uint64_t number); /* NULL: not pending */
void seen_settle(struct seen *l, struct seen_entry *e); /* may free older entries, not @e */
void seen_forget(struct seen *l, struct seen_entry *e); /* frees @e */

static inline struct str seen_id(const struct seen_entry *e)
{
    return str_make(e->id, e->id_bytes);
}
static inline size_t seen_n_pending(const struct seen *l)
{
    return map_count(&l->by_number);
}

/* ---- the settled ids on disk, for the next process ----
 *
 * The file has one id per line, newest last, at most twice as many as memory keeps.  An id is
 * written before its acknowledgement is sent.  If the process dies in between, the next process
 * acknowledges the repetition without calling a handler.  The file survives a crash of the process,
 * not of the machine: nothing is synced.
 *
 *      CLOSED --open--> HELD --done--> CLOSED        one process at a time holds it, by a lock
 *                 '---> TAKEN --an id settles and the other process is gone--> HELD
 */
struct seen_file {
    char *path;     /* owned; NULL: closed, nothing is written */
    int fd;         /* locked by us; -1: TAKEN */
    size_t n_lines; /* in the file */
    size_t bytes;   /* of the file, all of them whole lines */
    bool failing;   /* a write failed, and that was reported */
};

/* Reads @path into @l; creates the file if it is missing.  An incomplete last line is dropped.
 * False: @ret_why (256 bytes) says why; a file of another format is refused and left unchanged. */
bool seen_file_open(struct seen_file *f, const char *path, struct seen *l, char *ret_why);
void seen_file_done(struct seen_file *f); /* a zeroed struct is fine */

/* Records @id, which was settled in @l.  False: the write failed; returned only for the first
 * failure until a write succeeds again. */
bool seen_file_add(struct seen_file *f, struct seen *l, struct str id);
