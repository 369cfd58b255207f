/* ledger.h - which deliveries were seen, and what became of them.
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

#define LEDGER_ID_MAX 256 /* longer ids are refused by whoever reads frames */

enum ledger_state { LEDGER_PENDING, LEDGER_SETTLED };

struct ledger_entry {
    struct list link; /* settled ones, oldest first */
    uint64_t number;  /* what the application calls it; never reused */
    uint64_t socket;  /* the connection that brought it last */
    enum ledger_state state;
    size_t id_bytes;
    char id[]; /* and a NUL */
};

struct ledger {
    struct map by_id;     /* all */
    struct map by_number; /* the pending ones */
    struct list settled;
    size_t n_settled, keep;
    uint64_t last_number;
};

void ledger_init(struct ledger *l, size_t keep);
void ledger_done(struct ledger *l);

struct ledger_entry *ledger_find(const struct ledger *l, struct str id); /* NULL: unknown */
/* @id, which is unknown, came over @socket: it is pending from now on. */
struct ledger_entry *ledger_add(struct ledger *l, struct str id, uint64_t socket);
struct ledger_entry *ledger_pending(const struct ledger *l,
                                    uint64_t number);         /* NULL: not pending */
void ledger_settle(struct ledger *l, struct ledger_entry *e); /* may free older entries, not @e */
void ledger_forget(struct ledger *l, struct ledger_entry *e); /* frees @e */

static inline struct str ledger_id(const struct ledger_entry *e)
{
    return str_make(e->id, e->id_bytes);
}
static inline size_t ledger_n_pending(const struct ledger *l)
{
    return map_count(&l->by_number);
}
