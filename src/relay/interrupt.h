/* interrupt.h - stopping a running turn, from either side.
 *
 * A gateway's `interrupt` travels over the bus to whoever holds the instance that last received
 * that session key in the same tenant, and becomes `interrupt_inbound` there.  A person's "/stop"
 * is a message like any other, and before it, past the window, an `interrupt_inbound` for every
 * instance the message goes to: gateways whose session keys are not the ones we think of stop by
 * the text, the others at once.
 *
 * Which instance received which key is remembered for the newest keys only: after that, or after a
 * restart, a tenant with a single instance is still served, others are not. */
#pragma once
#include "core/event.h"

struct known_chat;
struct instance;
struct interrupts;
struct relay;
struct session;

struct interrupts *interrupts_new(struct relay *r);
void interrupts_listen(struct relay *r);    /* on the bus, until it is closed */
void interrupts_free(struct interrupts *t); /* NULL is fine */

/* An event with this key, from @chat, goes to @i. */
void interrupt_note(struct instance *i, struct known_chat *chat, struct str session_key);
/* Stops who runs it when @ev is a person's /stop that was not seen before.  True: nobody gets
 * it as a message. */
bool interrupt_on_stop(struct relay *r, const struct event *ev);
void interrupt_from_gateway(struct session *s, struct str session_key);
