/* interrupt.h - stopping a running turn, from either side.
 *
 * A gateway's `interrupt` goes to the instance that last received that session key in the same
 * tenant, as `interrupt_inbound`.  A person's "/stop"
 * is a message like any other, and before it, past the window, an `interrupt_inbound` for every
 * instance the message goes to: gateways whose session keys are not the ones we think of stop by
 * the text, the others at once.  The text, and whatever is behind it, follows INTERRUPT_HOLD_MS
 * later: released gateways that meet a command while its turn still runs answer it inside their
 * reader, and then read nothing for half a minute.
 *
 * Which chat of which instance received which key last is remembered for the newest keys, and after
 * a restart known from the records of the chats (chats.h).  Of a key nobody remembers, a tenant
 * with a single instance is still served, others are not.
 *
 * Interrupts go past the window, so they have a bound of their own: until the gateway shows that it
 * reads (an ack, a pong), or INTERRUPTS_UNREAD_MS have passed, it gets one for each key, and
 * INTERRUPTS_UNREAD in all.  What is left out is no loss where a person said it: the text arrives
 * as a message. */
#pragma once
#include "core/contract.h"
#include "core/event.h"

struct known_chat;
struct instance;
struct interrupts;
struct relay;
struct session;

#define INTERRUPTS_UNREAD 32
#define INTERRUPTS_UNREAD_MS 2000
#define INTERRUPT_HOLD_MS CONTRACT_STOP_HOLD_MS

struct interrupts *interrupts_new(struct relay *r);
void interrupts_load(struct relay *r);      /* at start, after the chats */
void interrupts_free(struct interrupts *t); /* NULL is fine */

/* The name of a session of @i: the same whoever runs it in this tenant, also after a restart. */
uint64_t interrupt_key(const struct instance *i, struct str session_key);
/* An event of session @key went to the instance of @chat, and to no other one if @alone. */
void interrupt_note(struct known_chat *chat, uint64_t key, bool alone);
void interrupt_forget(struct relay *r, const struct known_chat *chat, uint64_t key);
void interrupt_read(struct instance *i); /* its receiver has read what it was sent */
/* Stops who runs it when @ev is a person's /stop that was not seen before.  True: nobody gets
 * it as a message.  @ret_is_stop: it is a /stop, which waits behind nothing. */
bool interrupt_on_stop(struct relay *r, const struct event *ev, bool *ret_is_stop);
void interrupt_from_gateway(struct session *s, struct str session_key);
