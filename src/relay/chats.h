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
#include "base/list.h"
#include "base/str.h"

#define CHATS_NS "chat" /* of its records */

struct chats;
struct event;
struct instance;
struct relay;
struct store_put;

#define CHAT_KEYS 16 /* session keys remembered of one chat */

struct known_chat {
    struct instance *inst;   /* borrowed */
    struct known_chat *next; /* the same chat id on another platform, less recently heard from */
    char *bot;               /* owned; the identity it was heard through last; "" when unnamed */
    char *scope;             /* owned; the guild it lies in; "" when none or not known */
    char *ground;            /* owned; what connects the instance with it: ground.h; NULL: unsaid */
    struct str id, platform;
    struct list age;       /* chats->old; unlinked: its platform has no secret chats */
    struct list by_inst;   /* instance->chats; the last one was heard from last */
    struct store_put *put; /* borrowed; its record on the way to the disk */
    uint64_t *keys;        /* owned; oldest first */
    uint8_t n_keys;        /* CHAT_KEYS at most */
    bool stored;           /* its record is on disk or on its way */
    char bytes[];          /* number of the mailbox, id, platform; number and id are the map key */
};

struct chats *chats_new(void);
enum bh_err chats_load(struct relay *r); /* at start, after the instances */
void chats_free(struct chats *t);        /* NULL is fine */

/* @ev, of session @key, goes to @i; @owner: its author is linked to it.  NULL when it names no
 * chat. */
struct known_chat *chats_note(struct instance *i, const struct event *ev, uint64_t key, bool owner);
void chats_drop_key(struct known_chat *c, uint64_t key); /* another chat has it from now on */
/* The name has another holder: its chats are forgotten, here and on disk. */
void chats_end(struct instance *i);
/* False: the record, whose value is @doc, is of a life of the name that is over (life.h). */
bool chats_record_counts(const struct instance *i, struct json doc);
/* The platform heard from last comes first; NULL: never delivered. */
struct known_chat *chats_find(const struct instance *i, struct str chat_id);
struct known_chat *chats_find_on(const struct instance *i, struct str platform, struct str chat_id);

/* Forget chats past the limit, looking at @steps of them at most. */
void chats_trim(struct relay *r, size_t steps);
