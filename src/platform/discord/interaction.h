/* interaction.h - a Discord interaction (a command, a button, a form), read.
 *
 * Pure.  The gateway's side reads what we forward in a way of its own: as platform "relay", a
 * guild as chat type "channel", a thread as its channel.  discord_interaction_as_forward() makes
 * the event that has the very same session key; discord_interaction_as_message() makes the one
 * an ordinary message of the same person at the same place would be. */
#pragma once
#include "base/json.h"
#include "core/event.h"

enum interaction_type {
    INTERACTION_PING = 1,
    INTERACTION_COMMAND = 2,
    INTERACTION_COMPONENT = 3,
    INTERACTION_AUTOCOMPLETE = 4,
    INTERACTION_MODAL = 5,
};

struct discord_interaction { /* strs are borrowed from the JSON or from this: not to be copied */
    int64_t type;
    struct json body;
    struct str id, application_id, token, channel_id, guild_id;
    struct str user_id, user_name, user_display_name, user_handle;
    struct str name, parent_id; /* the command's name; the channel of a thread */
    bool in_thread, by_bot;
    bool in_parent; /* set by whoever read it: a thread's messages have its channel for a chat */
    char numbers[6][24]; /* ids that came as numbers */
    char route_key[32];
};

/* False: not an interaction. */
bool discord_interaction_read(struct json body, struct discord_interaction *ret);
/* What a person would have typed: "/name options", the button's id, the form's fields. */
void discord_interaction_text(const struct discord_interaction *x, struct buf *out);
bool discord_interaction_is_stop(const struct discord_interaction *x);

void discord_interaction_as_forward(struct discord_interaction *x, struct str bot,
                                    struct event *ret);
void discord_interaction_as_message(struct discord_interaction *x, struct str bot, struct str text,
                                    struct event *ret);
