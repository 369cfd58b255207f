/* outgoing_log.h - what is on its way out, on disk: one record for each, and nothing else.
 *
 * Before anything leaves that must not happen twice, its record is on disk; when its answer is
 * known, the record goes.  What is found at the next start was cut off in the middle, and nobody
 * knows whether the platform acted:
 *
 *   - whoever asked for it is told, once (the found() callback);
 *   - a gateway that asks for the very same again within OUTGOING_KNOWN_MS is told so, once
 *     (outgoing_log_was_cut_off), instead of being obeyed blindly.
 *
 *      outgoing_log_begin(log, &o->record, &entry, on_recorded)
 *        -> on_recorded(&o->record, BH_OK)      on disk: it may leave
 *      outgoing_log_end(&o->record)             the answer came, or it never left
 *
 * Namespace "outgoing", key platform US bot US number (16 hex digits, growing over restarts, so
 * that the order of keys is the order of asking), value an object:
 *
 *      {"tenant", "instance", "life", "request", "op", "chat", "at", "hash", "state"}
 *
 * The hash is of what is said, keyed with the database's own key: a copy of the record says nothing
 * about the message.  The state is "trying", or "waiting" when bellhop was stopped in order before
 * anything of it had left.  Records found stay on disk while they matter, so that another crash
 * finds them too.
 */
#pragma once
#include "base/err.h"
#include "core/action.h"

#define OUTGOING_KNOWN_MS 60000

struct clock;
struct outgoing_log;
struct outgoing_record;
struct store;
struct store_put;

struct outgoing_entry { /* borrowed for the call */
    struct action_from from;
    enum action_op op;
    struct str chat;
    struct str what; /* what makes two of them the same one; absent: it may well be done twice */
    bool waits;      /* nothing of it has left */
};

typedef void outgoing_recorded_cb(struct outgoing_record *rec, enum bh_err err);
typedef void outgoing_found_cb(void *ctx, const struct outgoing_entry *e); /* what is absent */

struct outgoing_record {            /* embedded in its owner; a zeroed one has not begun */
    struct outgoing_log *log;       /* private; NULL: not begun, or ended */
    struct store_put *put;          /* private; NULL: on disk */
    outgoing_recorded_cb *recorded; /* private */
    uint64_t number;                /* private */
};

/* Reads what an earlier process left and tells @found of each: blocks, for start-up.  @store and
 * @clock are borrowed; @platform and @bot too. */
enum bh_err outgoing_log_open(struct store *store, struct clock *clock, const char *platform,
                              const char *bot, outgoing_found_cb *found, void *ctx,
                              struct outgoing_log **ret_log, char *ret_why) BH_MUST_USE;
/* Every record has been ended or left.  NULL is fine. */
void outgoing_log_close(struct outgoing_log *log);

/* What was cut off, as of this start: for status. */
size_t outgoing_log_found(const struct outgoing_log *log);
/* Was this being done when an earlier process died?  True at most once for each record. */
bool outgoing_log_was_cut_off(struct outgoing_log *log, struct str what);

/* @rec has not begun.  @recorded runs later, once, unless outgoing_log_end() or
 * outgoing_log_leave() comes first. */
void outgoing_log_begin(struct outgoing_log *log, struct outgoing_record *rec,
                        const struct outgoing_entry *e, outgoing_recorded_cb *recorded);
/* Something about it has changed: its record is written again, and again recorded() runs. */
void outgoing_log_change(struct outgoing_record *rec, const struct outgoing_entry *e);
void outgoing_log_end(struct outgoing_record *rec); /* harmless when it has not begun */
/* We stop in the middle: it stays on disk.  Harmless when it has not begun. */
void outgoing_log_leave(struct outgoing_record *rec);
