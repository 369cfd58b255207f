/* chats.h - which chats an instance was delivered something from: the ground of the guard.
 *
 * Kept for as long as its instance holds the name (namespace "chat", key tenant \x1f instance \x1f
 * platform \x1f chat id, value {"bot", "scope", "box", "keys", "ground"}): an agent may answer long
 * after, and after a restart of either side.  "keys" are the session keys last heard in it, as
 * interrupt.h hashes them: who runs a session is known after a restart too.
 *
 * Two bounds, and what goes first is what was not heard from for longest: max_instance_chats for an
 * instance; and limits.max_chats in all on platforms where strangers can make as many as they like
 * (secret_chats), where the guard lets whoever holds the bot's route answer in the forgotten ones.
 * A chat that is forgotten is on disk no more. */
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "base/str.h"
#include "relay/out/chat_table.h"

#define CHATS_NS "chat" /* of its records */

struct chats;
struct event;
struct instance;
struct relay;

struct chats *chats_new(void);
enum bh_err chats_load(struct relay *r); /* at start, after the instances */
void chats_free(struct chats *t);        /* NULL is fine */

/* @ev, of session @key, goes to @i; @owner: its author is linked to it.  NULL when it names no
 * chat. */
struct known_chat *chats_note(struct instance *i, const struct event *ev, uint64_t key, bool owner);
void chats_drop_key(struct known_chat *c, uint64_t key); /* another chat has it from now on */
/* The name has another holder: none of its chats is known any more.  Memory and disk get rid of
 * them a few in a turn, however many there were; chats_ending() says how many there still are. */
void chats_end(struct instance *i);
size_t chats_ending(const struct relay *r);
/* False: the record, whose value is @doc, is of a life of the name that is over (life.h). */
bool chats_record_counts(const struct instance *i, struct json doc);
/* The platform heard from last comes first; NULL: never delivered. */
struct known_chat *chats_find(const struct instance *i, struct str chat_id);
struct known_chat *chats_find_on(const struct instance *i, struct str platform, struct str chat_id);

/* A number for half a pointer: good as long as the chat is; 0 is nobody. */
uint32_t chats_number(const struct known_chat *c);
struct known_chat *chats_at(const struct relay *r, uint32_t number);
/* The next chat of @i behind @c, least recently heard from first; NULL: the first, or the end. */
struct known_chat *chats_next_of(const struct instance *i, const struct known_chat *c);

/* Those heard from no more for longer than @retention_ms go, by whole days; 0: no limit. */
void chats_retain(struct relay *r, int64_t retention_ms);
struct sweep_ops;
extern const struct sweep_ops chats_age_ops; /* through all records of them; ctx: the relay */

/* Forget chats past the limit, looking at @steps of them at most. */
void chats_trim(struct relay *r, size_t steps);
