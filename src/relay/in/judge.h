/* judge.h - asking the gate about an event, and remembering what it said.
 *
 * Brings together what gate.h is handed: the facts, who can see which place (the platform's word,
 * or, where a platform has none, whether the instance was ever delivered something from there), and
 * how many bots in a row have spoken in the chat.  Decisions are kept for `bellhop why`: the newest
 * JUDGED_MAX, for a day at most, ids and reasons only, never what was said. */
#pragma once
#include "base/clock.h"
#include "core/gate.h"

struct instance;
struct judge;
struct relay;

#define JUDGED_MAX 4096
#define JUDGED_MS (24 * 3600 * 1000ll)
#define JUDGED_VERDICTS 16 /* kept per decision; the rest is only counted */

struct judge *judge_new(void);
void judge_free(struct judge *j); /* NULL is fine */

/* @ev with the route that it takes: the key the adapter gave becomes own_key. */
struct event judge_route(struct relay *r, const struct event *ev);
/* Who receives @ev, which was routed: @out has room for GATE_CANDIDATES.  Nothing is remembered. */
size_t judge_ask(struct relay *r, const struct event *ev, struct gate_verdict *out);
/* @ev enters mailboxes, as judge_ask() said: its author counts, and `why` can tell later. */
void judge_note(struct relay *r, const struct event *ev, const struct gate_verdict *verdicts,
                size_t n);
/* It was for us and for no agent; @what is a literal such as "/stop". */
void judge_consumed(struct relay *r, const struct event *ev, const char *what);

/* Was @v's instance, which receives @ev, allowed to hear what was said there before?  An open route
 * is the operator's word; else somebody linked to it must be able to read back. */
bool judge_looks_back(struct relay *r, const struct gate_verdict *v, const struct event *ev);
/* The same, and its gateway is of a generation that reads it. */
bool judge_reads_context(struct relay *r, const struct gate_verdict *v, const struct event *ev);

/* May @to be believed to see this chat of a place it was granted?  For the guard. */
bool judge_sees(struct relay *r, const struct gate_instance *to, struct str platform,
                struct str bot, struct str guild, struct str chat_id);
