/* intent.h - what was being sent when bellhop died.
 *
 * Before a request leaves that must not happen twice, its intent goes to disk; when its answer is
 * known, it goes away again.  What is found at the next start was cut off in the middle, and nobody
 * knows whether the platform acted.  A gateway that asks for the very same again within
 * INTENT_MEMORY_MS is told so, once ("timed out: ..."), instead of being obeyed blindly.
 *
 *      if (intents_was_cut_off(all, what))           // chat, thread and content, in one string
 *          fail(ACTION_ERROR_UNKNOWN ...);
 *      intent_begin(all, &req->intent, what, on_ready);
 *        -> on_ready(&req->intent, BH_OK)            // on disk: send now
 *      intent_end(&req->intent);                     // the answer came, or it was never sent
 */
#pragma once
#include "base/err.h"
#include "base/list.h"
#include "base/str.h"

#define INTENT_MEMORY_MS 60000

struct clock;
struct intent;
struct intent_write;
struct intents;
struct store;

typedef void intent_ready_cb(struct intent *it, enum bh_err err);

struct intent {                 /* embedded in the owner's request; a zeroed one has not begun */
    struct intents *all;        /* private; NULL: not begun, or ended */
    struct intent_write *write; /* private; NULL: on disk */
    intent_ready_cb *ready;     /* private */
    struct list link;           /* private */
    char key[64];               /* private: its record */
};

/* Reads what an earlier process left: blocks, for start-up.  @store and @clock are borrowed;
 * @platform and @bot too. */
enum bh_err intents_open(struct store *store, struct clock *clock, const char *platform,
                         const char *bot, struct intents **ret_all, char *ret_why);
/* Intents not ended stay on disk: their requests are being cut off.  ready() is not called. */
void intents_free(struct intents *all); /* NULL is fine */

size_t intents_found(const struct intents *all); /* cut off before this start, for status */
bool intents_was_cut_off(struct intents *all, struct str what); /* true at most once for each */

/* @it has not begun.  @ready runs later, once, unless intent_end() or intents_free() comes first.
 */
void intent_begin(struct intents *all, struct intent *it, struct str what, intent_ready_cb *ready);
void intent_end(struct intent *it); /* harmless when it has not begun */
/* We stop in the middle: it stays on disk.  Harmless when it has not begun. */
void intent_leave(struct intent *it);
