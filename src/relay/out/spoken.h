/* spoken.h - which messages an instance sent: what it may change later.
 *
 * The newest SPOKEN_PER_CHAT of every chat, for two days, and SPOKEN_CHATS chats of one instance;
 * what goes first is the oldest of its own.  Only hashes are kept, in memory and on disk (namespace
 * "said": the chat, the mailbox's number, the slot), so a restart of either side changes nothing.
 * Another life of a name has another mailbox, and has said nothing yet. */
#pragma once
#include "base/err.h"
#include "base/hash.h"

#define SPOKEN_PER_CHAT 256
#define SPOKEN_CHATS 16384
#define SPOKEN_MS (48 * 3600 * 1000ll)

struct instance;
struct relay;
struct spoken;

struct spoken_place { /* an instance in a chat, as one of our bots sees it */
    struct hash128 chat;
    uint32_t box;
};

struct spoken *spoken_new(void);
enum bh_err spoken_load(struct relay *r); /* at start */
void spoken_free(struct spoken *t);       /* NULL is fine */

struct spoken_place spoken_place(const struct instance *i, struct str platform, struct str bot,
                                 struct str chat_id);
/* The instance sent @message_id there just now. */
void spoken_note(struct relay *r, struct spoken_place at, struct str message_id);
/* It speaks in @place (company.h) and counts there, until it is heard there (chats.h counts it
 * then), or was silent for two days; after a start, from its next word on. */
void spoken_enter(struct relay *r, struct spoken_place at, uint64_t place);
void spoken_heard(struct relay *r, struct spoken_place at);
/* Did it send it, and is it still known? */
bool spoken_has(struct relay *r, struct spoken_place at, struct str message_id);
/* Forget what is past its time; looks at @steps chats at most. */
void spoken_expire(struct relay *r, size_t steps);
