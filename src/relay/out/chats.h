/* chats.h - remembers the chats that an instance received events from, for guard.h.
 *
 * A chat is kept for the life of its instance, because an agent may answer much later, and after a
 * restart of either side.  Its record has hashes of recent session keys (interrupt.h), so that an
 * interrupt finds its session after a restart.
 *
 * Two bounds apply, and the chat without events for longest goes first: max_instance_chats for one
 * instance, and limits.max_chats in all on platforms where strangers can create chats
 * (secret_chats).  There the guard lets the holder of the bot's route answer in forgotten chats.
 * Forgetting a chat deletes its record. */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include "relay/out/chat_table.h"
#include "store/store.h"

struct chats;
struct event;
struct instance;
struct relay;

struct chats *chats_new(void);
enum bh_err chats_load(struct relay *r); /* at start, after the instances */
void chats_free(struct chats *t);        /* NULL is fine */

/* @i receives @ev of session @key; @owner: the author is linked to @i.  NULL: @ev names no chat. */
struct known_chat *chats_note(struct instance *i, const struct event *ev, uint64_t key, bool owner);
void chats_drop_key(struct known_chat *c, uint64_t key); /* @key has moved to another chat */
/* Ends all chats of @i, whose name has a new holder.  They are deleted from memory and disk a few
 * per turn; chats_ending() counts those that are left. */
void chats_end(struct instance *i);
size_t chats_ending(const struct relay *r);
struct chat_record { /* texts are borrowed until the next record is read */
    struct str tenant, instance, platform, id;
    struct str bot, scope;
    uint32_t box; /* mailbox number; differs from the instance's: an earlier life (instance.h) */
    struct str keys;
    struct record_json basis;
    int64_t day; /* of the last event; 0: written while no retention was set */
};
extern const struct record_form chat_form;
/* False: the record is damaged. */
bool chats_read(struct relay *r, struct str key, struct str value, struct chat_record *ret);
/* If several platforms have this chat id, the chat with the newest event; NULL: none. */
struct known_chat *chats_find(const struct instance *i, struct str chat_id);
struct known_chat *chats_find_on(const struct instance *i, struct str platform, struct str chat_id);

/* A 32-bit handle, valid as long as the chat; 0: no chat. */
uint32_t chats_number(const struct known_chat *c);
struct known_chat *chats_at(const struct relay *r, uint32_t number);
/* The chat of @i after @c, least recently heard first.  @c NULL: the first; result NULL:
 * the end. */
struct known_chat *chats_next_of(const struct instance *i, const struct known_chat *c);

/* Sets the retention: chats without events for so long are dropped, by whole days; 0: no limit. */
void chats_retain(struct relay *r, int64_t retention_ms);
struct sweep_ops;
extern const struct sweep_ops chats_age_ops; /* a sweep of the records; ctx: the relay */

/* Forgets chats past the limit; visits at most @steps chats. */
void chats_trim(struct relay *r, size_t steps);
