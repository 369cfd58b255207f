/* interactions.h - verifies and parses Discord's interactions: commands, buttons and forms.
 *
 * Everything here is pure; interactions.c and the tests call it.  A gateway that gets a forwarded
 * interaction uses a session key of its own: platform "relay", chat type "channel" for a guild, and
 * a thread's channel as the chat.  discord_interaction_as_forward() makes an event with that
 * session key.  discord_interaction_as_message() makes the event that a message of the same person
 * in the same chat would be. */
#pragma once
#include "base/buf.h"
#include "base/json.h"
#include "core/event.h"

enum interaction_type {
    INTERACTION_PING = 1,
    INTERACTION_COMMAND = 2,
    INTERACTION_COMPONENT = 3,
    INTERACTION_AUTOCOMPLETE = 4,
    INTERACTION_MODAL = 5,
};

struct discord_interaction { /* borrows from the JSON and from itself: not to be copied */
    int64_t type;
    struct json body;
    struct str id, application_id, token, channel_id, guild_id;
    struct str user_id, user_name, user_display_name, user_handle;
    struct str name, parent_id; /* the command's name; the channel of a thread */
    bool in_thread, by_bot;
    bool in_channel;     /* Discord says where it is, and that is no thread */
    bool in_parent;      /* set by the caller: the chat id of a thread is that of its channel */
    char numbers[6][24]; /* ids that came as numbers */
    char route_key[32];
    char event_id[32]; /* discord_interaction_event_id() */
};

/* Writes a letter and the id: no message has this one, so nobody reacts or threads under it.
 * @opens_none: given in a channel where answers to messages open threads (threads.c). */
void discord_interaction_event_id(char ret[32], struct str id, bool opens_none);

/* False: @body is not an interaction. */
bool discord_interaction_read(struct json body, struct discord_interaction *ret);
/* Writes the interaction as a text: "/name options", the button's id, or the form's fields. */
void discord_interaction_text(const struct discord_interaction *x, struct buf *out);

void discord_interaction_as_forward(struct discord_interaction *x, struct str bot,
                                    struct event *ret);
void discord_interaction_as_message(struct discord_interaction *x, struct str bot, struct str text,
                                    struct event *ret);

/* ---- signatures ----
 *
 * Discord signs timestamp and body with Ed25519; the public key is in the Developer Portal.  The
 * signature covers the timestamp, so a request that is replayed later is refused. */

#define DISCORD_SIG_WINDOW_MS 300000 /* how far the timestamp may be from the clock */

/* @public_key: 64 hex digits.  NULL: not a key. */
struct discord_sig *discord_sig_new(struct str public_key);
void discord_sig_free(struct discord_sig *s); /* NULL is fine */

/* @timestamp and @signature are the headers X-Signature-Timestamp and X-Signature-Ed25519. */
bool discord_sig_ok(struct discord_sig *s, struct str timestamp, struct str signature,
                    struct str body, int64_t wall_ms);
