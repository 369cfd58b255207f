/* spoken.h - remembers the messages an instance sent, because it may edit only those.
 *
 * Bounds: the newest SPOKEN_PER_CHAT messages of a chat, for two days, in SPOKEN_CHATS chats of one
 * instance; the oldest is dropped first.  Memory and disk hold hashes only (namespace "said": the
 * chat, the mailbox number, the slot), and survive a restart of either side.  A new holder of an
 * instance's name has another mailbox number, and therefore no messages. */
#pragma once
#include "base/err.h"
#include "base/hash.h"

#define SPOKEN_PER_CHAT 256
#define SPOKEN_CHATS 16384
#define SPOKEN_MS (48 * 3600 * 1000ll)

struct instance;
struct relay;
struct spoken;

struct spoken_chat { /* an instance in a chat, as one of our bots sees it */
    struct hash128 chat;
    uint32_t box;
};

struct spoken *spoken_new(void);
enum bh_err spoken_load(struct relay *r); /* at start */
void spoken_free(struct spoken *t);       /* NULL is fine */

struct spoken_chat spoken_chat(const struct instance *i, struct str platform, struct str bot,
                               struct str chat_id);
/* The instance sent @message_id there just now. */
void spoken_note(struct relay *r, struct spoken_chat at, struct str message_id);
/* The instance speaks in a chat and becomes a participant under the key @shared (byline.h), until
 * spoken_heard() (from then on chats.h counts the instance) or two days of silence.  Participants
 * are not stored: after a start the next message counts. */
void spoken_enter(struct relay *r, struct spoken_chat at, uint64_t shared);
void spoken_heard(struct relay *r, struct spoken_chat at);
/* Did the instance send @message_id, within the bounds above? */
bool spoken_has(struct relay *r, struct spoken_chat at, struct str message_id);
/* Forget messages older than SPOKEN_MS; looks at @steps chats at most. */
void spoken_expire(struct relay *r, size_t steps);

struct record_form;
extern const struct record_form said_form;
