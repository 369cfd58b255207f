/* inbound.h - checks the signatures of LINE's webhooks and turns messages into events.  Pure.
 *
 *      where                      chat_id      chat_type  user_id
 *      a chat with one person     the user     dm         the user
 *      a group, a room            its id       group      the user; absent where LINE hides it
 *
 * An id is a letter (U: a user, C: a group, R: a room) and 32 hex digits.  In groups the bot is
 * addressed by a mention of itself.  A message that its author takes back (unsend) is deleted where
 * it still waits. */
#pragma once
#include "base/json.h"
#include "core/event.h"
#include "platform/await.h"

#define LINE_ID_CHARS 33
#define LINE_MAX_EVENTS 1000 /* of one webhook; LINE documents no limit of its own */
#define LINE_QUOTE_MAX 512   /* bytes of a quote token */

/* Is @signature the base64 of the HMAC-SHA256 of @body? */
bool line_signature_ok(struct str channel_secret, struct str body, struct str signature);

bool line_is_id(struct str id); /* of a user, a group or a room */

struct line_out { /* an event and the memory of its text and file */
    struct event ev;
    struct buf text;
    struct event_media media[1];
    struct str quote; /* a token that lets a message quote this one; absent: none */
};
/* @item is an entry of the webhook's `events`.  strs of the event are borrowed from it, from @bot
 * and from @out, which may be reused. */
enum webhook_verdict line_normalize(struct json item, struct str bot, struct line_out *out);
void line_out_done(struct line_out *out);
