/* staged.h - events that wait, for their files or their context, before they enter mailboxes.
 *
 * A file that only bellhop can fetch (with the bot's credential) is fetched when its message comes.
 * A file whose address anybody can read, but not for long (Discord's hold for a day), is fetched
 * when a recipient is not connected.  What was said before a message is asked for where the adapter
 * does not know it.  Such an event is one row in the store, whatever the number of recipients, and
 * its platform is told "received" once that row is on disk:
 *
 *      WRITING --row on disk--> WAITING --all here, or late--> READY --front of chat--> ENTERING
 *         |                                                      ^                         |
 *         | the store refused it                                 '-- a mailbox is full, ---|
 *         v                                                        or the store is down    v
 *      gone, the platform sends it again                 gone: its deliveries are on disk or acked
 *
 * The event is judged when it comes, so that nothing is fetched for nobody, and again when it
 * enters, so that a revocation counts.  Only an instance that passes both times, under the same
 * holder of its name, receives it.  One transaction appends its deliveries and removes its row.
 * An event that is late enters without what is missing, and says so.
 *
 * Later events of the same chat wait behind it, as rows of their own; a /stop passes, and so does
 * every other chat.  Waiting events are bounded per chat, per tenant and in all; past a bound the
 * platform is told to send the event again later.
 *
 * A row has the mailbox number STAGED_BOX and the flag STORE_ROW_STAGED; its body is
 * {"to":[{tenant, instance, life}...],"event":...}, the event as event_save() writes it.
 *
 * Rows found at a start wait again.  If such an event had entered already, the
 * deduplication keys of its deliveries say so.
 *
 * accept.c calls this for every event.  The answers of struct outside come through relay.h.
 */
#pragma once
#include "core/accept.h"
#include "relay/relay.h"
#include "store/store.h"

struct accept;
struct gate_instance;
struct gate_verdict;
struct stage;

#define STAGED_BOX (1u << 24)
#define STAGED_MAX 4096 /* in all */
#define STAGED_TENANT_MAX 1024
#define STAGED_CHAT_MAX 256

struct staged_to { /* a recipient, when the event came */
    struct str tenant, instance;
    uint32_t life; /* of the name: instance.h */
};

bool staged_has(const struct staged_to *to, size_t n, const struct gate_instance *i);

struct stage *stage_new(struct relay *r);
void stage_free(struct stage *t); /* NULL is fine; the store holds none of its writes any more */

/* While starting: a row of STAGED_BOX, with its body. */
void stage_load(struct relay *r, const struct store_row *row);
void stage_begin(struct relay *r); /* the relay lives: what was loaded waits again */

/* Does the last event before it in its chat enter just now?  Then it waits for that in memory, with
 * @a held, and is resumed after; *@ret_err as below.  Nobody has been told of it: a crash makes its
 * platform send it again. */
bool stage_park(struct relay *r, const struct event *ev, const struct gate_verdict *verdicts,
                size_t n, struct accept *a, enum bh_err *ret_err);
/* Must this event wait?  Then it does, and *@ret_err is BH_OK and @a is held until its row is on
 * disk; or there is no room, and it is BH_BUSY.  False: nothing happened. */
bool stage_take(struct relay *r, const struct event *ev, const struct gate_verdict *verdicts,
                size_t n, struct accept *a, enum bh_err *ret_err);

/* The message that @ev changes (its edit is set) waits here: it has the new text, or is gone, once
 * @a, which is held meanwhile, is released.  False: it does not. */
bool stage_edit(struct relay *r, const struct event *ev, struct accept *a);

bool stage_any_writing(const struct relay *r); /* some row is on its way to the disk */

/* What this person wrote, or was written in their chat of two, is dropped; returns how many events
 * that were.  @only_count: nothing is. */
uint64_t stage_forget(struct relay *r, struct str platform, struct str user, bool only_count,
                      uint64_t *quoted);
