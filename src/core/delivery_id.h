/* delivery_id.h - the stable id of a delivery: its bufferId on the wire and its deduplication key.
 *
 * The id is a hash of tenant, instance, platform, bot and event id.  The same event has the same id
 * after a crash, on every node, and when its platform repeats it.  A client that remembers ids
 * handles each delivery once.  The row number in the mailbox only gives the order and is never
 * sent.
 *
 *      the event             its event id
 *      a message             delivery_event_id(): the platform's message id, with the chat where it
 *                            is unique only within the chat
 *      an edit, a press      the platform's id of that update
 *      a forwarded webhook   the interaction's or message's id
 *      without an id         none: the delivery gets a random id, and a repeat is a new delivery
 */
#pragma once
#include "base/hash.h"

struct buf;
struct event;

#define DELIVERY_ID_CHARS 27 /* "b" and 26 digits of five bits */
#define DELIVERY_BOT_BITS 10 /* the first bits are a hash of the bot */

/* The id of @ev for one instance; false when @ev has no event id.  The first DELIVERY_BOT_BITS are
 * equal for all events of one bot.  @key is random per database and stored in it. */
bool delivery_id_of(const struct event *ev, const struct hash_key *key, struct str tenant,
                    struct str instance, struct hash128 *ret);

/* The event id of a message.  The result is borrowed from @buf, which holds the joined id, or from
 * @message_id. */
struct str delivery_event_id(struct buf *buf, bool ids_per_chat, struct str chat_id,
                             struct str message_id);

/* Appends `"bufferId":"...",`. */
void delivery_id_write(struct buf *out, struct hash128 id);
void delivery_id_format(struct hash128 id, char ret[DELIVERY_ID_CHARS]);
/* The bufferId of a frame that bellhop wrote; absent: it has none. */
struct str delivery_id_in(struct str frame);
