/* recent.h - what was said in a bot's shared chats lately, where no platform can be asked for it.
 *
 * In memory only, and only where an operator wants it.  Bounded: so many messages per chat,
 * EVENT_CONTEXT_BYTES of text, RECENT_MS of age (or the retention, if that is shorter),
 * RECENT_TOTAL_BYTES in all; past it the chat where nothing was said for longest is forgotten. */
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
/* @ev was said in @chat.  The same message again: its words have changed. */
void recent_note(struct recent *r, struct str chat, const struct event *ev);
/* What was said there before @ev, oldest first, without what its author said to the bot.  @out has
 * room for EVENT_MAX_CONTEXT; strs are borrowed until the next call. */
size_t recent_before(struct recent *r, struct str chat, const struct event *ev,
                     struct event_said *out);
void recent_forget(struct recent *r, struct str user); /* their words */
size_t recent_bytes(const struct recent *r);
