/* outgoing_log.h - what is on its way out, on disk: one record for each, and nothing else.
 *
 * Before anything is tried its record is on disk (outgoing_entry.h says what stands there); when
 * its answer is known, the record goes.  What is found at the next start goes on, or was cut off in
 * the middle; the sender decides that.
 *
 *      outgoing_log_put(log, &o->record, &entry, on_recorded)
 *        -> on_recorded(&o->record, BH_OK)      on disk: it may leave
 *      outgoing_log_end(&o->record)             the answer came, or it never left
 *
 * What was cut off is remembered for OUTGOING_KNOWN_MS by its hash: a gateway that asks for the
 * very same again is told so, once (outgoing_log_was_cut_off), instead of being obeyed blindly.
 * The hash is keyed with the database's own key.
 */
#pragma once
#include "base/err.h"
#include "platform/outgoing_entry.h"

#define OUTGOING_KNOWN_MS 60000
#define OUTGOING_HASH_CHARS 32

struct clock;
struct outgoing_log;
struct outgoing_record;
struct store;
struct store_put;

typedef void outgoing_recorded_cb(struct outgoing_record *rec, enum bh_err err);
/* A record as it was found, borrowed for the call, in the order of asking. */
typedef void outgoing_found_cb(void *ctx, uint64_t number, struct str value);

struct outgoing_record {            /* embedded in its owner; a zeroed one has not begun */
    struct outgoing_log *log;       /* private; NULL: not begun, or ended */
    struct store_put *put;          /* private; NULL: nothing is being waited for */
    outgoing_recorded_cb *recorded; /* private */
    uint64_t number;
};

/* Reads what an earlier process left and tells @found of each: blocks, for start-up.  @store and
 * @clock are borrowed; @platform and @bot too. */
enum bh_err outgoing_log_open(struct store *store, struct clock *clock, const char *platform,
                              const char *bot, outgoing_found_cb *found, void *ctx,
                              struct outgoing_log **ret_log, char *ret_why) BH_MUST_USE;
/* Every record has been ended or left.  NULL is fine. */
void outgoing_log_close(struct outgoing_log *log);

void outgoing_log_hash(const struct outgoing_log *log, struct str what,
                       char ret[OUTGOING_HASH_CHARS + 1]);
/* It was being done when an earlier process died, @ago_ms ago. */
void outgoing_log_cut_off(struct outgoing_log *log, struct str hash, uint64_t number,
                          int64_t ago_ms);
/* Was this being done when an earlier process died?  True at most once for each. */
bool outgoing_log_was_cut_off(struct outgoing_log *log, struct str what, uint64_t *ret_number);

/* Write the record of @e->number, anew or again.  @recorded runs later, once, unless
 * outgoing_log_end() or outgoing_log_leave() comes first; writes keep their order.  NULL: nobody
 * waits for it, and whoever waits for an earlier one still does. */
void outgoing_log_put(struct outgoing_log *log, struct outgoing_record *rec,
                      const struct outgoing_entry *e, outgoing_recorded_cb *recorded);
void outgoing_log_end(struct outgoing_record *rec); /* harmless when it has not begun */
/* It stays on disk as it is.  Harmless when it has not begun. */
void outgoing_log_leave(struct outgoing_record *rec);
/* The record of something that is not under way goes. */
void outgoing_log_delete(struct outgoing_log *log, uint64_t number);
