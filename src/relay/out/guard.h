/* guard.h - decides whether an instance may act in a chat or on a message.
 *
 *      outbound frame -> guard_admit() -> persona -> outlet -> the chat's right -> its message
 *
 * An instance may act in a chat that it received an event from, through the bot that delivered the
 * event, while the basis of that chat holds on that bot:
 *
 *      the person   who wrote there is still linked to the instance on this bot
 *      the scope    of the chat is still granted to the instance, and its people can see the chat
 *      the route    an operator's route of the chat, or of its bot, still leads to the instance
 *
 * Without an earlier event an instance may act in the direct chat of a person linked to it on this
 * bot, in a chat that lies in a granted scope and that its people can see, and, through a bot that
 * an operator gave it, in a chat whose id an operator routed to it.  Scopes in a frame, and bots in
 * a hello or a provision, are compared with the records: they can refuse an action, never allow
 * one.  tenancy/rights.h answers each of these questions.
 *
 * Editing needs more than speaking: an instance edits only messages that it sent, and reacts to, or
 * opens a thread under, messages that it sent or received.  It renames threads that it opened, that
 * hang under such a message, or that it had an event from.
 *
 * requests.c calls guard_admit() for every action.  relay_may_act() (relay.h) asks the same records
 * again before a delayed action leaves, and when a token of the vault is used.  An adapter that
 * posts into a thread named by the metadata must check itself that the thread lies in chat_id.
 */
#pragma once
#include "base/json.h"
#include "core/action.h"

struct buf;
struct event;
struct session;

/* Where an action goes; borrowed from the session, the chats and the outside. */
struct destination {
    struct str platform, bot;
    const struct outlet *outlet;
};

/* NULL: @a may go to @ret; else the reason, as the gateway reads it. */
const char *guard_admit(const struct session *s, const struct action *a, struct destination *ret);

/* ---- the basis of a chat: what chats.h stores for these questions ---- */

/* Packs what @ev says about its chat into *@out.  @owner: the author is linked to the instance.
 * @bot delivered the previous event (empty: none), @before is the previous basis (absent: none).
 * True: the new basis differs from @before; else *@out is not for use. */
bool basis_of(const struct event *ev, bool owner, struct str bot, struct str before,
              struct buf *out);
/* The chat was delivered through this bot, and the person or the route that it was delivered for
 * still counts there.  On platforms that do not tell permissions, such a basis counts as seeing the
 * chat.  A scope does not count, because its holder may claim it without an operator. */
struct known_chat;
bool basis_shows(const struct known_chat *c, struct str bot);

/* The basis in the chat's record, a JSON object.  basis_read() returns false, and leaves *@out
 * alone, when the record has none. */
void basis_write(struct buf *out, struct str basis); /* absent: writes nothing */
bool basis_read(struct json basis, struct buf *out);
struct str basis_direct(struct json basis); /* whose direct chat; empty: the chat's id tells, or
                                             * several people wrote there */
