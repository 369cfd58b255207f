/* spoken.h - remembers the messages each agent sent to a chat, and adds names where agents share
 * one.
 *
 * An instance may edit only messages that it sent, so the relay remembers them: the newest
 * SPOKEN_PER_CHAT messages of a chat, for two days, in SPOKEN_CHATS chats of one instance.  The
 * oldest is dropped first.  Memory and disk hold hashes only (namespace "said": the chat, the
 * mailbox number, the slot), and survive a restart of either side.  A new holder of an instance's
 * name has another mailbox number, and therefore no messages.
 *
 * Participants are the instances that received an event from a chat (chats.h) or spoke there.
 * Where a chat has several, each message begins with its agent's name, the displayName that the
 * gateway was provisioned with.  An agent without a name, or alone in the chat, speaks without one.
 * requests.c asks at every action, so names appear and disappear with the other agents.  The counts
 * live in memory only. */
#pragma once
#include "base/err.h"
#include "base/hash.h"
#include "core/action.h"

#define SPOKEN_PER_CHAT 256
#define SPOKEN_CHATS 16384
#define SPOKEN_MS (48 * 3600 * 1000ll)

struct buf;
struct destination;
struct instance;
struct relay;

struct spoken_chat { /* an instance in a chat, as one of our bots sees it */
    struct hash128 chat;
    uint64_t box;
};

struct spoken *spoken_new(void);
enum bh_err spoken_load(struct relay *r); /* at start, after the instances */
void spoken_free(struct spoken *t);       /* NULL is fine */

struct spoken_chat spoken_chat(const struct instance *i, struct str platform, struct str bot,
                               struct str chat_id);
/* @i sent @message_id there just now. */
void spoken_note(struct instance *i, struct spoken_chat at, struct str message_id);
/* Did the instance send @message_id, within the bounds above? */
bool spoken_has(struct relay *r, struct spoken_chat at, struct str message_id);
/* From now on chats.h counts the instance as a participant. */
void spoken_heard(struct relay *r, struct spoken_chat at);
/* Forgets messages older than SPOKEN_MS; looks at @steps chats at most. */
void spoken_expire(struct relay *r, size_t steps);

extern const struct record_form said_form;

/* The content of @a as people read it: unchanged, or with the name in front of it in @room.  An
 * edit that would become too long keeps its text and goes without the name.  Counts @i as a
 * participant until spoken_heard() or two days of silence. */
struct str byline_add(struct instance *i, const struct destination *to, const struct action *a,
                      struct buf *room);

/* ---- how many agents share a chat ---- */

/* The key of a chat as one bot sees it; never 0. */
uint64_t participants_key(const struct relay *r, struct str platform, struct str bot,
                          struct str chat_id);
/* One instance more, or one less; the caller counts each instance once. */
void participants_join(struct relay *r, uint64_t chat);
void participants_leave(struct relay *r, uint64_t chat);
void participants_prefetch(const struct relay *r, uint64_t chat); /* before a join */
/* Exact below PARTICIPANTS_MAX; a count that reached PARTICIPANTS_MAX stays until the next start.
 */
#define PARTICIPANTS_MAX 255
unsigned participants_count(const struct relay *r, uint64_t chat);
