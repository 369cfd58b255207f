/* outbox.h - outbound requests of one bot, in lanes: which request leaves next.
 *
 * A lane is a chat: its items run strictly one after the other, in the order they were added, also
 * while one of them waits out a rate limit.  Other lanes go on meanwhile.  Each item has a payer,
 * the tenant it is sent for: payers take turns, and so do the lanes of one payer, so a backlog of
 * one tenant costs the others nothing.  An item that could not be started before its deadline is
 * dropped, never sent late.
 *
 *      outbox_add(box, &req->item, tenant, chat_id, 25000)  BH_OK: it is queued, for so many ms
 *        -> start(ctx, item)      later, when its turn has come: send the request
 *             outbox_done(box, item)          its answer is known; the lane goes on
 *             outbox_again(box, item, 1500)   not now: start() again, at its old place, in 1.5 s
 *        -> drop(ctx, item, why)  it will not be started (again)
 *
 * Platforms count the requests they refuse (Discord bans an address for 10,000 in ten minutes), and
 * the sender pauses a bot long before that.  So that one tenant's mistakes do not pause the bot for
 * all, outbox_blame() counts refusals by tenant: after BLAME_MAX within about ten minutes
 * outbox_is_blamed() is true for that tenant alone.
 *
 * Items are embedded in the owner's request and belong to the outbox from outbox_add() until
 * outbox_done() or drop().  The outbox sends nothing itself: it is logic on a clock.
 */
#pragma once
#include "base/clock.h"
#include "base/err.h"
#include "base/list.h"
#include "base/str.h"

struct outbox;
struct outbox_lane;
struct outbox_payer;

struct outbox_item {
    struct list link;           /* private */
    struct outbox_lane *lane;   /* private; NULL: not queued */
    struct outbox_payer *payer; /* private */
    struct timer late;          /* private */
    int64_t deadline_ms;        /* monotonic; set by outbox_add() */
    size_t bytes;               /* that it takes; set by the owner before outbox_add() */
    unsigned starts;            /* how often start() was called for it */
};

enum outbox_drop {
    OUTBOX_LATE,   /* its deadline passed while it waited */
    OUTBOX_CLOSED, /* outbox_free() */
};

struct outbox_handlers {
    /* Send it now.  Never called inside another outbox call.  The owner answers with outbox_done()
     * or outbox_again(), both allowed right here. */
    void (*start)(void *ctx, struct outbox_item *it);
    /* Out of the queue for good; the owner tells its gateway and frees the item. */
    void (*drop)(void *ctx, struct outbox_item *it, enum outbox_drop why);
};

struct outbox_limits {
    size_t max_lane;    /* items of one payer waiting in one lane; 0: 64 */
    size_t max_all;     /* items waiting in all lanes; 0: 16384.  When it is full, a payer with less
                         * than an even share may still add */
    size_t max_bytes;   /* of all that is here, running ones too; 0: 64 MiB.  The same */
    size_t max_running; /* items between start() and their answer; 0: 64.  A payer may have three
                         * quarters of it */
};

/* @clock is borrowed and must outlive it, @h and @ctx too.  @limits NULL: the defaults. */
struct outbox *outbox_new(struct clock *clock, const struct outbox_limits *limits,
                          const struct outbox_handlers *h, void *ctx);
/* drop(OUTBOX_CLOSED) for every item, also for those that are running: their owner cancels the
 * request.  Not from inside a handler.  NULL is fine. */
void outbox_free(struct outbox *box);

/* BH_BUSY: too much of this payer's is waiting, in the lane or in all; BH_UNAVAILABLE: the lane
 * rests for longer than @patience_ms; nothing happened.  @payer and @lane are copied. */
enum bh_err outbox_add(struct outbox *box, struct outbox_item *it, struct str payer,
                       struct str lane, int64_t patience_ms) BH_MUST_USE;
void outbox_done(struct outbox *box, struct outbox_item *it); /* a running item has ended */
/* Take out an item that waits: nobody is told.  It must not be running. */
void outbox_remove(struct outbox *box, struct outbox_item *it);
bool outbox_is_running(const struct outbox_item *it);
/* Will it be started in this very turn of the loop, as far as can be told? */
bool outbox_starts_at_once(const struct outbox *box, const struct outbox_item *it);
/* Its lane rests no longer. */
void outbox_hurry(struct outbox *box, struct outbox_item *it);
/* When its lane is tried next, monotonic; 0: it is not resting. */
int64_t outbox_next_ms(const struct outbox_item *it);
/* Back to the front of its lane, to be started again in @delay_ms - or dropped, already now, when
 * its deadline comes first (drop() then runs later, not inside). */
void outbox_again(struct outbox *box, struct outbox_item *it, int64_t delay_ms);
/* Start nothing in any lane for this long (a limit that holds for the whole bot).  A shorter pause
 * never ends a longer one. */
void outbox_pause(struct outbox *box, int64_t for_ms);
int64_t outbox_paused_ms(const struct outbox *box); /* 0: not paused */

size_t outbox_waiting(const struct outbox *box); /* for status: queued, not running */
size_t outbox_running(const struct outbox *box);

/* ---- tenants whose requests the platform refuses ---- */

#define BLAME_MAX 100
#define BLAME_MS 600000
/* The platform refused a request of @who; whether an item of it is queued does not matter. */
void outbox_blame(struct outbox *box, struct str who);
bool outbox_is_blamed(const struct outbox *box, struct str who);
size_t outbox_n_blamed(const struct outbox *box); /* remembered, for tests */
