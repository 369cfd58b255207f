/* outbox.h - the send queue of one bot: decides which request leaves next.
 *
 *      outbox_add(box, &req->item, tenant, chat_id, 25000)  BH_OK: queued, for at most 25 s
 *        -> start(ctx, item)      later, when its turn has come: send the request
 *             outbox_done(box, item)          the request has ended; the lane goes on
 *             outbox_again(box, item, 1500)   retry: start() again, first in its lane, in 1.5 s
 *        -> drop(ctx, item, why)  the item will not be started (again)
 *
 * A lane is the queue of one chat.  Its items run one at a time, in the order they were added, even
 * while the first one waits out a rate limit.  Other lanes go on meanwhile.  Each item has a payer,
 * the tenant it is sent for.  Payers take turns, and so do the lanes of one payer, so the backlog
 * of one tenant does not delay the others.  An item that is not started before its deadline is
 * dropped, never sent late.
 *
 * Platforms count the requests they refuse: Discord bans an address for 10,000 in ten minutes, and
 * the adapter pauses the bot long before that.  So that one tenant's mistakes do not pause the bot
 * for all, outbox_blame() counts refusals by tenant.  After BLAME_MAX within about ten minutes
 * outbox_is_blamed() is true for that tenant alone.
 *
 * The sender is the only user.  Each struct outgoing embeds an item; the item belongs to the outbox
 * from outbox_add() until outbox_done(), outbox_remove() or drop().  The outbox sends nothing
 * itself: it is logic on a clock.
 */
#pragma once
#include "base/clock.h"
#include "base/err.h"
#include "base/list.h"
#include "base/str.h"

struct outbox_item {
    struct list link;           /* private */
    struct outbox_lane *lane;   /* private; NULL: not queued */
    struct outbox_payer *payer; /* private */
    struct timer late;          /* private */
    int64_t deadline_ms;        /* monotonic; set by outbox_add() */
    size_t bytes;               /* its memory; set by the owner before outbox_add() */
    unsigned starts;            /* how often start() was called for it */
};

enum outbox_drop {
    OUTBOX_LATE,   /* the deadline passed while the item waited */
    OUTBOX_CLOSED, /* outbox_free() */
};

struct outbox_handlers {
    /* Sends the request.  Never called inside another outbox call.  The owner answers with
     * outbox_done() or outbox_again(), inside start() or later. */
    void (*start)(void *ctx, struct outbox_item *it);
    /* The item has left the queue for good; the owner tells its gateway and frees the item. */
    void (*drop)(void *ctx, struct outbox_item *it, enum outbox_drop why);
};

struct outbox_limits {
    size_t max_lane;    /* items of one payer waiting in one lane; 0: 64 */
    size_t max_all;     /* items waiting in all lanes; 0: 16384.  Beyond it, a payer with less than
                         * an even share may still add */
    size_t max_bytes;   /* of all items, running ones too; 0: 64 MiB.  Beyond it, as above */
    size_t max_running; /* items between start() and their answer; 0: 64.  One payer may use three
                         * quarters of them */
};

/* @clock, @h and @ctx are borrowed and must outlive the outbox.  @limits NULL: the defaults. */
struct outbox *outbox_new(struct clock *clock, const struct outbox_limits *limits,
                          const struct outbox_handlers *h, void *ctx);
/* Calls drop(OUTBOX_CLOSED) for every item.  The owner of a running item cancels its request.  Not
 * from inside a handler.  NULL is fine. */
void outbox_free(struct outbox *box);

/* BH_BUSY: the payer has too many items in the lane, or too many items or bytes in all lanes;
 * BH_UNAVAILABLE: the lane rests for longer than @patience_ms.  On error nothing changes.  @payer
 * and @lane are copied. */
enum bh_err outbox_add(struct outbox *box, struct outbox_item *it, struct str payer,
                       struct str lane, int64_t patience_ms) BH_MUST_USE;
void outbox_done(struct outbox *box, struct outbox_item *it); /* a running item has ended */
/* Takes out an item that waits, without drop().  The item must not be running. */
void outbox_remove(struct outbox *box, struct outbox_item *it);
bool outbox_is_running(const struct outbox_item *it);
/* Will the pump probably start the item in this turn of the loop? */
bool outbox_starts_at_once(const struct outbox *box, const struct outbox_item *it);
/* Ends the rest of the item's lane. */
void outbox_hurry(struct outbox *box, struct outbox_item *it);
/* When the rest of the item's lane ends, monotonic; 0: the lane is not resting. */
int64_t outbox_next_ms(const struct outbox_item *it);
/* Puts a running item back to the front of its lane, to be started again in @delay_ms.  If its
 * deadline comes first, the item is dropped without that wait; drop() runs later, not inside. */
void outbox_again(struct outbox *box, struct outbox_item *it, int64_t delay_ms);
/* Starts nothing in any lane for @for_ms: for limits of the whole bot.  A shorter pause never ends
 * a longer one. */
void outbox_pause(struct outbox *box, int64_t for_ms);
int64_t outbox_paused_ms(const struct outbox *box); /* 0: not paused */

size_t outbox_waiting(const struct outbox *box); /* for status: queued, not running */
size_t outbox_running(const struct outbox *box);

/* ---- tenants whose requests the platform refuses ---- */

#define BLAME_MAX 100
#define BLAME_MS 600000
/* Counts a refused request of @who, whether or not an item of @who is queued. */
void outbox_blame(struct outbox *box, struct str who);
bool outbox_is_blamed(const struct outbox *box, struct str who);
size_t outbox_n_blamed(const struct outbox *box); /* names with a count, for tests */
