/* traced.h - the W3C traces of messages that agents may be answering.
 *
 *      accept.c: traced_note()  --> table of TRACED_SLOTS --> requests.c: traced_find()
 *
 * A message that came with a `traceparent` is delivered with it (core/event.h).  An action that
 * names no trace of its own continues the trace of the message that it replies to; one that replies
 * to none, the trace of the newest message of its chat and thread.
 *
 * The table is in memory only, is allocated by the first message that has a trace, and holds no
 * text and no id, only hashes.  Two messages whose hashes fall on one slot share it: the newer one
 * stays.  A trace is forgotten after TRACED_MS. */
#pragma once
#include "base/hash.h"
#include "core/action.h"
#include "core/caller.h"

#define TRACED_SLOTS 4096u
#define TRACED_MS 600000

struct event;
struct instance;
struct traced; /* NULL: no message had a trace yet */

/* @ev was delivered to @i.  The caller skips it while there is no table and @ev has no trace. */
void traced_note(struct instance *i, const struct event *ev);
/* The trace that @a of @i continues, on the bot that the guard chose; absent: none.  Borrowed until
 * the next traced_note(). */
struct str traced_find(const struct instance *i, struct str platform, struct str bot,
                       const struct action *a);
