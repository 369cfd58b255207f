/* chat_table.h - the in-memory table of all instances' chats, 64 bytes each.
 *
 * The layout is compact because there may be a million chats.  Shared texts (platform, bot and
 * guild; the basis of guard.h) are interned.  Numeric ids are stored as numbers.  A single session
 * key is stored inline.  Chats refer to each other by 32-bit numbers.
 *
 * A chat is found by instance and id, without the platform, because a gateway may omit it.  If
 * several platforms have the id, chat_first() returns the chat added or moved to the front last,
 * and chat_next() the others.  A queue (struct chat_row) keeps the order of its caller.  A chat
 * belongs to one era of its instance.  When the instance begins another era, the chat is over: it
 * is not found any more and waits for its removal.  Only chats.c changes the table. */
#pragma once
#include "base/names.h"
#include "base/pool.h"
#include "base/str.h"

struct instance;

#define CHAT_KEYS 16     /* session keys remembered of one chat */
#define CHAT_ID_CHARS 24 /* room for an id that is kept as a number */
#define CHAT_ID_MAX 1024 /* bytes; longer ids are never stored */
#define CHAT_ERA_BITS 12
#define CHAT_ERAS (1u << CHAT_ERA_BITS)

enum chat_order { CHAT_BY_AGE, CHAT_BY_INSTANCE, CHAT_QUEUES };

struct chat_row { /* a linked list of chat numbers; zeroed: empty */
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
    uint32_t counted : 1; /* its instance counts as a participant: byline.h */
};

struct chat_table {
    struct pool pool;
    struct names names;
    uint32_t *buckets; /* owned; numbers of chats */
    uint32_t n_buckets, cap;
};
void chat_table_init(struct chat_table *t);
void chat_table_done(struct chat_table *t); /* with all chats */

struct known_chat *chat_add(struct chat_table *t, struct instance *i, struct str id);
/* Bulk load into an empty table: the chats are not found until chat_index().  Its @all has the
 * chats in order of insertion, each with a different name. */
struct known_chat *chat_add_unindexed(struct chat_table *t, struct instance *i, struct str id);
void chat_index(struct chat_table *t, const struct chat_row *all, enum chat_order kind);
bool chat_is_over(const struct known_chat *c); /* of an earlier era: not found any more */
/* Removes and frees a chat that is in no queue. */
void chat_remove(struct chat_table *t, struct known_chat *c);
struct known_chat *chat_first(const struct chat_table *t, const struct instance *i, struct str id);
struct known_chat *chat_next(const struct chat_table *t, const struct known_chat *c);
void chat_lead(struct chat_table *t, struct known_chat *c); /* makes @c first of its id */

/* ---- fields ---- */

struct str chat_id(const struct known_chat *c, char scratch[CHAT_ID_CHARS]);
struct str chat_platform(const struct known_chat *c);
struct str chat_bot(const struct known_chat *c);   /* bot of the newest event; "": unnamed */
struct str chat_scope(const struct known_chat *c); /* its guild; "": none or unknown */
/* True when the address changed. */
bool chat_set_address(struct chat_table *t, struct known_chat *c, struct str platform,
                      struct str bot, struct str scope);
void chat_set_basis(struct chat_table *t, struct known_chat *c, struct str basis);

const uint64_t *chat_keys(const struct known_chat *c); /* n_keys of them, oldest first */
bool chat_has_key(const struct known_chat *c, uint64_t key);
void chat_add_key(struct known_chat *c, uint64_t key); /* n_keys is below CHAT_KEYS */
bool chat_remove_key(struct known_chat *c, uint64_t key);

/* ---- queues ---- */

void chat_row_append(struct chat_table *t, struct chat_row *l, enum chat_order kind,
                     struct known_chat *c);
void chat_row_remove(struct chat_table *t, struct chat_row *l, enum chat_order kind,
                     struct known_chat *c);
/* Moves all of @from to the end of @to. */
void chat_row_join(struct chat_table *t, struct chat_row *to, enum chat_order kind,
                   struct chat_row *from);
