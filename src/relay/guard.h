/* guard.h - may this instance act on this chat or message: the one place that says so.
 *
 * An instance may act in a chat that it was delivered something from, whose very id is routed to
 * it, that lies in a place it was granted and its people can see, or that is the direct chat of
 * somebody linked to it.  What the frame says about scopes is held against the records: it can
 * refuse, never grant.
 *
 *      outbound frame -> guard_admit() -> who it speaks as -> may_speak() -> which outlet serves it
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

/* Whose chat is it?  The records answer; the action's own scope only says which record to look at.
 * @to names platform and bot. */
bool may_speak(struct instance *i, const struct action *a, const struct destination *to);
