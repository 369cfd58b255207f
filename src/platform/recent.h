/* recent.h - what was said in a bot's shared chats lately: the context of messages to agents.
 *
 * In memory only.  Adapters note every message of a shared chat as it comes, and ask for the words
 * before a message that an agent gets.  Edits, deletions and `erase --person` change what is here.
 *
 *      recent_note() ... recent_note() --recent_reaches_back()?--yes--> recent_before()
 *                                                 '--no--> one page of the platform's history:
 *                                                          recent_refill(), recent_note() for each
 *
 * Bounds: so many messages are told per chat, and EVENT_CONTEXT_BYTES of text; RECENT_MS of age (or
 * the retention, if that is shorter), RECENT_TOTAL_BYTES in all.  Past the last one the chat where
 * nothing was said for longest is dropped.
 *
 * A chat reaches back when no older message is missing: after a refill, or once so many messages
 * were noted that older ones do not fit.  A gap in the connection ends that (recent_gap()), and so
 * does age.  Platforms that cannot be asked (Telegram) ignore it. */
#pragma once
#include "core/event.h"

struct clock;
struct recent;

#define RECENT_MS ((int64_t)24 * 3600 * 1000)
#define RECENT_TOTAL_BYTES ((size_t)32 << 20)

/* @per_chat is at most EVENT_MAX_CONTEXT. */
struct recent *recent_new(struct clock *clock, size_t per_chat);
void recent_free(struct recent *r); /* NULL is fine */

/* Nothing is kept for longer than this; 0: RECENT_MS. */
void recent_retain(struct recent *r, int64_t retention_ms);
/* @ev was said in @chat, in any order of time: message ids that are numbers grow.  A message that
 * is here already gets the new words in its old place. */
void recent_note(struct recent *r, struct str chat, const struct event *ev);
/* What was said there before @ev, oldest first, without what its author said to the bot.  @out has
 * room for EVENT_MAX_CONTEXT; strs are borrowed until the next call. */
size_t recent_before(struct recent *r, struct str chat, const struct event *ev,
                     struct event_said *out);

/* The author edited or deleted a message; an empty text deletes it too.  Unknown ids do nothing. */
void recent_edit(struct recent *r, struct str chat, struct str message_id, struct str text);
void recent_delete(struct recent *r, struct str chat, struct str message_id);
struct str recent_author(struct recent *r, struct str chat, struct str message_id); /* absent: ? */
void recent_forget(struct recent *r, struct str user); /* their words */

/* Is nothing missing that recent_before() would tell? */
bool recent_reaches_back(struct recent *r, struct str chat);
/* A page of history that ends before @message_id follows: what is older than that is dropped, and
 * the chat reaches back from now on. */
void recent_refill(struct recent *r, struct str chat, struct str message_id);
/* Messages may have been missed in the chats that @in says. */
typedef bool recent_in_fn(void *ctx, struct str chat);
void recent_gap(struct recent *r, recent_in_fn *in, void *ctx);
size_t recent_bytes(const struct recent *r);
