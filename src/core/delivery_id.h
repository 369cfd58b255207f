/* delivery_id.h - what a delivery is called, always: its bufferId on the wire.
 *
 * Made from what the event is (tenant, instance, platform, bot, event id), not from when it came,
 * so the same event has the same name after any crash, on any node, and however often its platform
 * sends it again.  A client that remembers names acts once.  The number of its row is something
 * else: it gives the order and is never told.
 *
 *      who makes it          its event id
 *      a message             delivery_event_id(): the platform's message id, with its chat where it
 *                            is unique there only
 *      an edit, a press      the platform's own id of that update
 *      a forwarded webhook   the interaction's or message's id
 *      nothing to go by      none: the name is drawn at random, and a repeat is another delivery
 */
#pragma once
#include "base/hash.h"

struct buf;
struct event;

#define DELIVERY_ID_CHARS 27 /* "b" and 26 digits of five bits */
#define DELIVERY_BOT_BITS 10 /* the first ones: which bot it came through */

/* The name of @ev for one instance; false when it has no event id.  Its first DELIVERY_BOT_BITS are
 * the same for all events of one bot.  It is the deduplication key
 * too: @key is random per database and moves with it. */
bool delivery_id_of(const struct event *ev, const struct hash_key *key, struct str tenant,
                    struct str instance, struct hash128 *ret);

/* The event id of a message: what stood in it when it was delivered, made again from its names.
 * @buf is room for it; the result is borrowed from there, or from @message_id. */
struct str delivery_event_id(struct buf *buf, bool ids_per_chat, struct str chat_id,
                             struct str message_id);

/* Appends `"bufferId":"...",`. */
void delivery_id_write(struct buf *out, struct hash128 id);
void delivery_id_format(struct hash128 id, char ret[DELIVERY_ID_CHARS]);
/* The bufferId of a frame that this program wrote; absent: it has none. */
struct str delivery_id_in(struct str frame);
