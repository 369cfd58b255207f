/* recent.h - remembers the latest messages of a bot's shared chats, as context for agents.
 *
 *      recent_note() ... recent_note() --recent_reaches_back()?--yes--> recent_before()
 *                                                 '--no--> one page of the platform's history:
 *                                                          recent_refill(), recent_note() for each
 *
 * Adapters note every message of a shared chat as it comes, and read the messages before one that
 * goes to an agent.  Edits, deletions and `erase --person` change the messages here.  Everything is
 * in memory; a restart forgets it.
 *
 * Bounds: @per_chat messages and EVENT_CONTEXT_BYTES of text for one event; RECENT_MS of age, or
 * the retention if that is shorter; RECENT_TOTAL_BYTES in all.  Beyond the total, the chat that has
 * been silent for longest is dropped.
 *
 * A chat reaches back when no message is missing before the ones here: after a refill, or once
 * @per_chat messages were noted.  A gap in the connection ends that (recent_gap()), and so does the
 * expiry of a message, unless @per_chat are left.  Adapters whose platform has no history to read
 * (Telegram) ignore it. */
#pragma once
#include "core/event.h"

struct arena;
struct clock;

#define RECENT_MS ((int64_t)24 * 3600 * 1000)
#define RECENT_TOTAL_BYTES ((size_t)32 << 20)

/* @per_chat is at most EVENT_MAX_CONTEXT. */
struct recent *recent_new(struct clock *clock, size_t per_chat);
void recent_free(struct recent *r); /* NULL is fine */

/* Sets the maximum age; 0, or more than RECENT_MS: RECENT_MS. */
void recent_retain(struct recent *r, int64_t retention_ms);
/* Adds the message @ev of @chat.  Messages may be noted in any order: numeric message ids sort
 * them.  A message that is here already gets the new text and keeps its place. */
void recent_note(struct recent *r, struct str chat, const struct event *ev);
/* The messages before @ev, oldest first, without those that its author addressed to the bot.  @out
 * has room for EVENT_MAX_CONTEXT; strs are borrowed until the next call. */
size_t recent_before(struct recent *r, struct str chat, const struct event *ev,
                     struct event_said *out);

/* Gives @ev the messages before it as its context, then notes @ev itself.  The texts are copied
 * into @arena.  @noted: @ev as later messages should see it; NULL: as it is. */
void recent_join(struct recent *r, struct str chat, struct event *ev, const struct event *noted,
                 struct arena *arena);

/* The author edited or deleted a message; an empty text deletes it too.  Unknown ids do nothing. */
void recent_edit(struct recent *r, struct str chat, struct str message_id, struct str text);
/* The author's user id; absent: unknown. */
struct str recent_author(struct recent *r, struct str chat, struct str message_id);
void recent_forget(struct recent *r, struct str user); /* deletes the user's messages */

/* True: recent_before() misses no message. */
bool recent_reaches_back(struct recent *r, struct str chat);
/* Called before the caller notes a page of history that ends before @message_id.  Drops the older
 * messages; the chat reaches back from now on. */
void recent_refill(struct recent *r, struct str chat, struct str message_id);
/* Messages may have been missed in the chats for which @in is true. */
typedef bool recent_in_fn(void *ctx, struct str chat);
void recent_gap(struct recent *r, recent_in_fn *in, void *ctx);
size_t recent_bytes(const struct recent *r);
