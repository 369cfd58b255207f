/* judge.h - asks the gate who receives an event.
 *
 * The judge collects the inputs of core/gate.h: the facts, which people can see a chat, and how
 * many messages of bots in a row the chat had.  The platform says which people can see a chat.  If
 * the platform cannot tell, an instance sees the chats that it has deliveries from.
 *
 * Decisions are written to the journal (core/journal.h) for `bellhop why`. */
#pragma once
#include "core/gate.h"

struct relay;

struct judge *judge_new(void);
void judge_free(struct judge *j); /* NULL is fine */

/* A copy of @ev with its route_key chosen from the facts; the adapter's key becomes own_key. */
struct event judge_route(struct relay *r, const struct event *ev);
/* The gate's verdicts on the routed event @ev; @out has room for GATE_CANDIDATES. */
size_t judge_ask(struct relay *r, const struct event *ev, struct gate_verdict *out);
/* @ev is being delivered: counts its author in the streak of its chat. */
void judge_note(struct relay *r, const struct event *ev);
/* Records that bellhop consumed @ev as a command; @what is a literal such as "/stop". */
void judge_consumed(struct relay *r, const struct event *ev, const char *what);

/* May the instance of @v get messages from before @ev?  Its gateway must be of the newer
 * generation, which understands context.  Yes on an open route, which an operator set; else a
 * person linked to the instance must be able to read the chat's history. */
bool judge_reads_context(struct relay *r, const struct gate_verdict *v, const struct event *ev);

/* For the guard: can a person who is linked to @to on this bot see this place?  Of @place,
 * platform, bot, scope_id, chat_id and thread_id are read. */
enum gate_sight judge_sees(struct relay *r, const struct gate_instance *to,
                           const struct event *place);
