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
