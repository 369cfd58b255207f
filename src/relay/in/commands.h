/* commands.h - commands to bellhop itself: a person's /stop and /link, a gateway's `interrupt`.
 *
 * /link CODE, sent to a bot, links a person's account to an instance.  The message is always
 * consumed, so that a code never reaches an agent.  The author of the platform's event is the
 * person who is linked.  The answer goes to the chat of the message.
 *
 * A gateway's `interrupt` names a session key.  The relay forwards it as `interrupt_inbound` to the
 * instance of the same tenant that last received an event of that key.  A gateway may be configured
 * to build other keys than bellhop does (session_key_rules).  For such a key the relay sends the
 * interrupt to every instance of the tenant that knows the chat in the key.  That is harmless,
 * because a gateway ignores unknown keys.
 *
 * A person's /stop sends `interrupt_inbound` at once, ahead of the window, to every live recipient.
 * The text follows as a normal message, for gateways that use other session keys than bellhop
 * guesses.  The text waits INTERRUPT_HOLD_MS as a staged event, and later events of the chat wait
 * behind it (staged.h).  Without that pause, a released gateway that reads a command while the turn
 * still runs reads no more frames for half a minute.
 *
 * A /stop outside of threads also stops the thread of the person's newest message in the chat.  On
 * Slack every message begins a thread, and in email every new mail does.
 *
 * A table maps recent session keys to chats.  At start the table is rebuilt from the chats' records
 * (chats.h).  For an unknown key the interrupt goes to the tenant's only instance, if it has just
 * one.
 *
 * Interrupts bypass the window, so they have a bound of their own.  Each key is sent once, and at
 * most INTERRUPTS_UNREAD keys in all, until an ack or a pong shows that the gateway reads, or
 * INTERRUPTS_UNREAD_MS pass.  A dropped /stop still arrives as text. */
#pragma once
#include "core/contract.h"
#include "core/event.h"

struct accept;
struct frame;
struct instance;
struct known_chat;
struct relay;
struct session;

#define INTERRUPTS_UNREAD 32
#define INTERRUPTS_UNREAD_MS 2000
#define INTERRUPT_HOLD_MS CONTRACT_STOP_HOLD_MS

struct commands *commands_new(struct relay *r);
void commands_load(struct relay *r);    /* at start, after the chats */
void commands_free(struct commands *t); /* NULL is fine */

/* Carries out @ev if it is a command.  A /stop that is no duplicate interrupts its live recipients;
 * for a /link @a is held until the link is on disk or refused.  True: @ev is consumed, not
 * delivered as a message.  *@ret_stop: whether @ev is a /stop, and how its text is delivered. */
enum stop_text {
    STOP_NONE,    /* no /stop */
    STOP_AT_ONCE, /* no recipient is live: the text waits for nothing */
    STOP_HELD,    /* a turn may run: the text waits INTERRUPT_HOLD_MS */
};
bool command_take(struct relay *r, const struct event *ev, struct accept *a,
                  enum stop_text *ret_stop);

bool command_is_stop(const struct event *ev); /* the text is /stop, for this bot or another */
/* Sends @text to the chat of @ev, as an answer to its message. */
void command_tell(struct relay *r, const struct event *ev, struct str text);

/* A keyed hash of tenant and session key; the same for all instances of a tenant, and after a
 * restart. */
uint64_t interrupt_key(const struct instance *i, struct str session_key);
/* Records that an event of session @key went to the instance of @chat.  @alone: and to no other. */
void interrupt_note(struct known_chat *chat, uint64_t key, bool alone);
/* Records that @ev, a message of a person, goes to @i: a later /stop outside of threads means the
 * thread of @ev. */
void stop_note(const struct instance *i, const struct event *ev);
void interrupt_forget(struct relay *r, const struct known_chat *chat, uint64_t key);
/* The chat of @i that a session key may name; NULL: none. */
struct known_chat *interrupt_chat(const struct instance *i, struct str session_key);
void interrupt_read(struct instance *i); /* the receiver has read its interrupts */
void interrupt_from_gateway(struct session *s, const struct frame *f); /* an `interrupt` frame */
