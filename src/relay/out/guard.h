/* guard.h - may this instance act on this chat or message: the one place that says so.
 *
 * An instance may act in a chat that it was delivered something from, as long as what connected
 * them does (ground.h), and through the bot it came by.  Elsewhere: in a chat whose very id an
 * operator routed to it, that is the direct chat of somebody linked to it, both through a bot of
 * its own; or that lies in a place it was granted and its people can see.  What a frame says about
 * scopes is held against the records, and so is what a hello says about bots: they can refuse,
 * never grant.
 *
 *      outbound frame -> guard_admit() -> who it speaks as -> may_speak() -> which outlet serves it
 *
 * Speaking in a chat is one right, touching what stands there another: an instance may edit what it
 * sent itself and nothing else, whoever else speaks through the same bot; and react to, or open a
 * thread under, what it sent or was delivered.
 *
 * Adapters that post to somewhere else than chat_id (a thread named in the metadata) check that it
 * lies inside that chat.
 */
#pragma once
#include "core/action.h"

struct instance;
struct outlet;
struct session;

/* Where an action goes; borrowed from the session, the chats and the outside. */
struct destination {
    struct str platform, bot;
    const struct outlet *outlet;
};

/* NULL: @a may go to @ret; else why not, as it is told to the gateway. */
const char *guard_admit(const struct session *s, const struct action *a, struct destination *ret);

/* May the instance do this to @a's message?  Asked when it may speak in the chat.  NULL: yes; else
 * why not. */
const char *may_touch(struct instance *i, const struct action *a, const struct destination *to);

/* Whose chat is it?  The records answer; the action's own scope only says which record to look at.
 */
bool may_speak(struct instance *i, const struct action *a, const struct destination *to);
