/* judge.h - asks the gate who receives an event, and records its decisions.
 *
 * The judge collects the inputs of core/gate.h: the facts, who can see a chat, and how many bots in
 * a row have spoken there.  The platform says who can see a chat; where a platform cannot, an
 * instance sees the chats that it has deliveries from.
 *
 * Decisions are kept in memory for `bellhop why`: the newest JUDGED_MAX, shown for a day.  They
 * hold ids and reasons, never texts. */
#pragma once
#include "core/gate.h"

struct relay;

#define JUDGED_MAX 4096
#define JUDGED_MS (24 * 3600 * 1000ll)
#define JUDGED_VERDICTS 16 /* kept per decision; others are only counted */

struct judge *judge_new(void);
void judge_free(struct judge *j); /* NULL is fine */

/* A copy of @ev with its route_key chosen from the facts; the adapter's key becomes own_key. */
struct event judge_route(struct relay *r, const struct event *ev);
/* The gate's verdicts on the routed event @ev; @out has room for GATE_CANDIDATES. */
size_t judge_ask(struct relay *r, const struct event *ev, struct gate_verdict *out);
/* @ev is being delivered: records the decision for `why`.  @counts: and its author in the streak.
 */
void judge_note(struct relay *r, const struct event *ev, const struct gate_verdict *verdicts,
                size_t n, bool counts);
/* Records that bellhop consumed @ev as a command; @what is a literal such as "/stop". */
void judge_consumed(struct relay *r, const struct event *ev, const char *what);

/* May the instance of @v get messages from before @ev?  Yes on an open route, which an operator
 * set; else a person linked to the instance must be able to read the chat's history. */
bool judge_looks_back(struct relay *r, const struct gate_verdict *v, const struct event *ev);
/* judge_looks_back(), and the gateway is of the newer generation, which understands context. */
bool judge_reads_context(struct relay *r, const struct gate_verdict *v, const struct event *ev);

/* For the guard: can a person who is linked to @to on this bot see this place?  Of @place,
 * platform, bot, scope_id, chat_id and thread_id are read. */
enum gate_sight judge_sees(struct relay *r, const struct gate_instance *to,
                           const struct event *place);
