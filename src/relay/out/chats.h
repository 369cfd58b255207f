/* chats.h - remembers the chats that an instance received events from, for guard.h.
 *
 * A chat is kept for the life of its instance, because an agent may answer much later, and after a
 * restart of either side.  Its record (chat_records.h) has hashes of recent session keys
 * (commands.h), so that an interrupt finds its session after a restart.
 *
 * Two bounds apply, and the chat without events for longest goes first: max_instance_chats for one
 * instance, and limits.max_chats in all on platforms where strangers can create chats
 * (secret_chats).  There the guard lets the holder of the bot's route answer in forgotten chats.
 * Forgetting a chat deletes its record.
 *
 * A chat takes 64 bytes of memory, because there may be a million.  Shared texts (platform, bot and
 * guild; the basis of guard.h) are interned.  Numeric ids are stored as numbers.  A single session
 * key is stored inline.  Chats refer to each other by 32-bit numbers. */
#pragma once
#include "base/names.h"
#include "base/pool.h"
#include "base/str.h"

struct event;
struct relay;

#define CHAT_KEYS 16     /* session keys remembered of one chat */
#define CHAT_ID_CHARS 24 /* room for an id that is kept as a number */
#define CHAT_ID_MAX 1024 /* bytes; longer ids are never stored */
#define CHAT_ERA_BITS 12
#define CHAT_ERAS (1u << CHAT_ERA_BITS)

enum chat_order { CHAT_BY_AGE, CHAT_BY_INSTANCE, CHAT_QUEUES };

struct chat_list { /* a linked list of chat numbers; zeroed: empty */
    uint32_t first, last;
};

struct known_chat {
    struct instance *inst; /* borrowed */
    struct name *address;  /* held; platform, bot, guild; NULL: not said yet */
    struct name *basis;    /* held; guard.h; NULL: unsaid */
    union {
        int64_t number; /* id_n 0 */
        char *text;     /* owned */
    } id;
    union {
        uint64_t one;   /* n_keys 1 */
        uint64_t *many; /* owned; n_keys > 1; oldest first */
    } keys;
    struct {
        uint32_t prev, next;
    } in[CHAT_QUEUES];
    uint32_t bucket_next;
    uint32_t id_n : 11;  /* CHAT_ID_MAX at most */
    uint32_t n_keys : 5; /* CHAT_KEYS at most */
    uint32_t era : CHAT_ERA_BITS;
    uint32_t aging : 1;   /* it is in a queue CHAT_BY_AGE */
    uint32_t stored : 1;  /* its record is on disk or on its way */
    uint32_t writing : 1; /* its record is on its way */
    uint32_t counted : 1; /* its instance counts as a participant: spoken.h */
};

struct chats *chats_new(struct relay *r);
void chats_free(struct chats *t); /* NULL is fine */

/* @i receives @ev of session @key; @owner: the author is linked to @i.  NULL: @ev names no chat. */
struct known_chat *chats_note(struct instance *i, const struct event *ev, uint64_t key, bool owner);
void chats_drop_key(struct known_chat *c, uint64_t key); /* @key has gone to another chat */
/* The chat with this id; NULL: none.  An absent @platform matches any: if several platforms have
 * the id, the chat with the newest event. */
struct known_chat *chats_find(const struct instance *i, struct str platform, struct str chat_id);
/* Forgets chats past the limit; visits at most @steps chats. */
void chats_trim(struct relay *r, size_t steps);

/* A 32-bit handle, valid as long as the chat; 0: no chat. */
uint32_t chats_number(const struct known_chat *c);
struct known_chat *chats_at(const struct relay *r, uint32_t number);
/* The chat of @i after @c, least recently heard first.  @c NULL: the first; result NULL:
 * the end. */
struct known_chat *chats_next_of(const struct instance *i, const struct known_chat *c);

/* ---- the fields of a chat ---- */

struct str chat_id(const struct known_chat *c, char scratch[CHAT_ID_CHARS]);
struct str chat_address(const struct known_chat *c, int part);
static inline struct str chat_platform(const struct known_chat *c)
{
    return chat_address(c, 0);
}
static inline struct str chat_bot(const struct known_chat *c) /* of the newest event; "": unnamed */
{
    return chat_address(c, 1);
}
static inline struct str chat_scope(const struct known_chat *c) /* its guild; "": none or unknown */
{
    return chat_address(c, 2);
}
const uint64_t *chat_keys(const struct known_chat *c); /* n_keys of them, oldest first */
bool chat_has_key(const struct known_chat *c, uint64_t key);

/* ---- the table ----
 *
 * A chat is hashed by instance and id, without the platform, because a gateway may omit it.  A
 * bucket has the chat that was added or moved to the front last first.  A queue (struct
 * chat_list) keeps the order of its caller.  A chat belongs to one era of its instance.  When the
 * instance begins another era, the chat is over: it is not found any more and waits for its
 * removal.  Only chats.c and chat_records.c change it. */

struct chat_table {
    struct pool pool;
    struct names names;
    uint32_t *buckets; /* owned; numbers of chats */
    uint32_t n_buckets, cap;
    struct chat_hash *last; /* owned; the hash computed last */
};
void chat_table_init(struct chat_table *t);
void chat_table_done(struct chat_table *t); /* with all chats */

struct known_chat *chat_add(struct chat_table *t, struct instance *i, struct str id);
/* Bulk load into an empty table: the chats are not found until chat_index().  Its @all has the
 * chats in order of insertion, each with a different name. */
struct known_chat *chat_add_unindexed(struct chat_table *t, struct instance *i, struct str id);
void chat_index(struct chat_table *t, const struct chat_list *all, enum chat_order kind);
bool chat_is_over(const struct known_chat *c); /* of an earlier era: not found any more */
/* Removes and frees a chat that is in no queue. */
void chat_remove(struct chat_table *t, struct known_chat *c);
void chat_lead(struct chat_table *t, struct known_chat *c); /* makes @c first of its id */

/* True when the address changed. */
bool chat_set_address(struct chat_table *t, struct known_chat *c, struct str platform,
                      struct str bot, struct str scope);
void chat_set_basis(struct chat_table *t, struct known_chat *c, struct str basis);

void chat_add_key(struct known_chat *c, uint64_t key); /* at CHAT_KEYS the oldest key goes */
bool chat_remove_key(struct known_chat *c, uint64_t key);

void chat_list_append(struct chat_table *t, struct chat_list *l, enum chat_order kind,
                      struct known_chat *c);
void chat_list_remove(struct chat_table *t, struct chat_list *l, enum chat_order kind,
                      struct known_chat *c);
/* Moves all of @from to the end of @to. */
void chat_list_join(struct chat_table *t, struct chat_list *to, enum chat_order kind,
                    struct chat_list *from);

/* ---- for chat_records.c ---- */

void chats_enter(struct known_chat *c);     /* a new chat joins the queues */
void chats_leave_old(struct known_chat *c); /* it is not to be forgotten by age any more */
uint64_t chat_participants(const struct known_chat *c); /* participants_key() of its address */
