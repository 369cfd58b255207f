/* chats.h - which chats an instance was delivered something from: the ground of the guard.
 *
 * Kept for good (namespace "chat", key tenant \x1f instance \x1f platform \x1f chat id, value
 * {"bot":...,"scope":...,"box":...}): an agent may answer long after, and after a restart of either
 * side.
 *
 * In memory a chat lives as long as the relay, unless strangers can make as many as they like: on a
 * platform with secret_chats only the last limits.max_chats are kept, and the guard lets
 * whoever holds the bot's route answer in the others.  A chat that is pinned stays. */
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

struct known_chat {
    struct instance *inst;   /* borrowed */
    struct known_chat *next; /* the same chat id on another platform, less recently heard from */
    char *bot;               /* owned; the identity it was heard through last; "" when unnamed */
    char *scope;             /* owned; the guild it lies in; "" when none or not known */
    struct str id, platform;
    struct list age; /* chats->old; unlinked: it is kept */
    uint32_t pins;   /* pointers to it elsewhere */
    bool stored;     /* its record is on disk or on its way */
    char bytes[];    /* number of the mailbox, id, platform; number and id are the map key */
};

struct chats *chats_new(void);
enum bh_err chats_load(struct relay *r); /* at start, after the instances */
void chats_free(struct chats *t);        /* NULL is fine */

/* @ev goes to @i.  NULL when it names no chat. */
struct known_chat *chats_note(struct instance *i, const struct event *ev);
/* False: of a life of the name that is over (life.h), and only remembered because of a pin. */
bool chats_is_current(const struct known_chat *c);
/* The same of a chat's record: @doc is its value. */
bool chats_record_counts(const struct instance *i, struct json doc);
/* The platform heard from last comes first; NULL: never delivered. */
struct known_chat *chats_find(const struct instance *i, struct str chat_id);
struct known_chat *chats_find_on(const struct instance *i, struct str platform, struct str chat_id);

/* Forget chats past the limit, looking at @steps of them at most. */
void chats_trim(struct relay *r, size_t steps);
