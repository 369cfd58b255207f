/* staged.h - stores events that must wait for files, context or an answer about their readers.
 *
 *      WRITING --row on disk--> WAITING --all here, or late--> READY --front of chat--> ENTERING
 *         |                                                      ^                         |
 *         | the store refused it                                 '-- a mailbox is full, ---|
 *         v                                                        or the store is down    v
 *      gone, the platform sends it again                 gone: its deliveries are on disk or acked
 *
 * Six things make an event wait:
 *   - nobody knows yet whether people of a recipient can see the chat, and the platform is being
 *     asked (GATE_NO_SIGHT_ASKED), STAGED_SIGHT_MS at most;
 *   - a file that only bellhop can fetch, with the bot's credential;
 *   - a file with a public URL that expires (Discord's after a day), if a recipient is not live;
 *   - context, the messages before the event, that the adapter has to request;
 *   - the text of a /stop: the turn that it interrupts gets INTERRUPT_HOLD_MS to end;
 *   - more messages of its author, where the bot has `debounce`: a burst (burst.h).
 *
 * A staged event is one row in the store, whatever the number of recipients.  Only a recipient
 * whose sight is asked for has a row of its own, so that no other recipient waits for the answer.
 * Recipients that need not wait are in no row and get the event at once.  The platform gets its
 * answer once the rows and these deliveries are on disk.
 *
 * The gate judges the event on arrival, so that nothing is fetched without a recipient, and again
 * when the event enters, so that a revocation counts.  A recipient must pass both times, in the
 * same life of its name.  A recipient whose sight is asked for counts as passing on arrival; if the
 * platform does not answer, the recipient does not get the event.  One transaction appends the
 * deliveries and deletes the row.  After a timeout the event enters with a note about what is
 * missing.
 *
 * Later events of the same chat for one of its recipients wait behind the staged event, as rows of
 * their own.  So each instance gets a chat in order, and no instance waits for a row that is not
 * for it.  A /stop overtakes the waiting rows. Staged events are bounded per chat, per tenant and
 * in all; a reserve is kept for tenants that have few.  At a bound the answer is BH_BUSY, and the
 * platform sends the event again later.  At STAGED_SIGHT_MAX only the recipient whose sight is
 * unknown loses the event: BH_BUSY would hold back the other recipients too.
 *
 * A burst is one row (burst.h).  Its files are fetched once it has ended.  Its deliveries have the
 * id of its first message; their transaction writes the deduplication keys of all its messages.
 *
 * A row has the mailbox number STAGED_BOX and the flag STORE_ROW_STAGED.  Its body is the event
 * with its recipients.
 *
 * Rows found at start wait again.  If such an event had entered already, deduplication drops its
 * deliveries.
 *
 * accept.c calls this module for every event.  Files and context come through relay_file_here(),
 * relay_file_lost() and relay_context().
 */
#pragma once
#include "relay/relay.h"
#include "store/store.h"

struct accept;

#define STAGED_BOX (1u << 24)
#define STAGED_MAX 4096 /* in all */
#define STAGED_TENANT_MAX 1024
#define STAGED_CHAT_MAX 256
#define STAGED_SIGHT_MAX 64   /* of a chat, while they wait for an answer about sight */
#define STAGED_SIGHT_MS 5000  /* the longest wait for that answer */
#define STAGED_RESERVED 1024  /* beyond STAGED_MAX, for tenants that have fewer than ... */
#define STAGED_TENANT_SURE 16 /* ... this */

struct staged_to { /* a recipient at the event's arrival */
    struct str tenant, instance;
    uint32_t life; /* of the name: instance.h */
};

bool staged_has(const struct staged_to *to, size_t n, const struct gate_instance *i);

struct stage *stage_new(struct relay *r);
void stage_free(struct stage *t); /* NULL is fine; the store must be closed */

/* Called at start for each row of STAGED_BOX, with its body. */
void stage_load(struct relay *r, const struct store_row *row);
extern const struct record_form staged_form; /* the body of a staged row */

void stage_begin(struct relay *r); /* called by relay_begin(): loaded events wait again */

/* Defers @ev in memory if the only staged event of its chat is entering just now; accept_resume()
 * follows.  *@ret_err is BH_OK and @a is held, or it is BH_BUSY.  The platform has no answer yet,
 * so it sends the event again after a crash.  False: nothing happened. */
bool stage_defer(struct relay *r, const struct event *ev, const struct gate_verdict *verdicts,
                 size_t n, struct accept *a, enum bh_err *ret_err);
/* Stages @ev for the recipients that must wait, and takes them out of @verdicts; @a is held until
 * their rows are on disk.  *@ret_err is BH_OK, or BH_BUSY: no room.  @stops: @ev is the text of a
 * /stop, which waits INTERRUPT_HOLD_MS if there is room.  False: the caller delivers to the
 * recipients left in @verdicts, if any, and then returns *@ret_err.  True: every recipient is
 * staged, or refused; the caller returns *@ret_err. */
bool stage_take(struct relay *r, const struct event *ev, struct gate_verdict *verdicts, size_t *n,
                bool stops, struct accept *a, enum bh_err *ret_err);
bool stage_has(struct relay *r, const struct event *ev); /* @ev is staged: it is a duplicate */
/* Drops the staged events that @user wrote, or of the direct chat whose id is @user; returns how
 * many.  @only_count drops nothing. */
uint64_t stage_forget(struct relay *r, struct str platform, struct str user, bool only_count,
                      uint64_t *quoted);
