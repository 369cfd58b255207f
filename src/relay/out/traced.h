/* traced.h - finds the W3C trace that an agent's action continues.
 *
 *      accept.c: traced_note()  --> table of TRACED_SLOTS --> requests.c: traced_find()
 *
 * A message that came with a `traceparent` is delivered with it (core/event.h).  An action that
 * names no trace of its own continues the trace of the message that it replies to.  An action that
 * replies to no message continues the trace of the newest message in its chat and thread.
 *
 * The table is in memory only, and the first message with a trace allocates it.  It holds hashes,
 * no texts and no ids.  When the hashes of two messages fall on one slot, the newer message keeps
 * the slot.  A trace is forgotten after TRACED_MS. */
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
