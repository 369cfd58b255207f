/* seen.h - which deliveries were seen, and what became of them.
 *
 * The connector repeats what it was not told is settled; this is why nothing is handed over twice.
 * An id is pending from the moment it is queued until it is settled or forgotten; the last @keep
 * settled ids are remembered.
 *
 *  unknown --add--> PENDING --settle--> SETTLED --@keep newer ones settle--> unknown
 *                      '----forget----> unknown (a repetition is new)
 */
#pragma once
#include "base/list.h"
#include "base/map.h"

#define SEEN_ID_MAX 256 /* longer ids are refused by whoever reads frames */

enum seen_state { SEEN_PENDING, SEEN_SETTLED };

struct seen_entry {
    struct list link; /* settled ones, oldest first */
    uint64_t number;  /* what the application calls it; never reused */
    uint64_t socket;  /* the connection that brought it last */
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
/* @id, which is unknown, came over @socket: it is pending from now on. */
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

/* ---- the settled ids on disk, so that the next process knows them too ----
 *
 * A list of lines, the newest last, bounded to twice what is kept in memory.  An id is in the file
 * before its acknowledgement leaves; a process that dies in between settles the repetition without
 * handing it over.  It spans the death of the process, not of the machine: nothing is synced.
 *
 *      CLOSED --open--> HELD --done--> CLOSED        one process at a time holds it, by a lock
 *                 '---> TAKEN --an id settles and the other process is gone--> HELD
 */
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
