/* outcomes.h - remembers how the last actions ended, for `bellhop why --action`.
 *
 * The senders of all bots write into one ring in memory.  The ring never holds the text of a
 * message. */
#pragma once
#include "core/action.h"

#define OUTCOMES_MAX 4096

struct jw;
struct outcomes;

struct outcome { /* borrowed for the call */
    const char *platform, *bot;
    const struct action_from *from;
    enum action_op op;
    struct str chat, message_id;
    uint64_t number; /* of its record (outgoing.h); 0: none */
    const char *how; /* "done", "refused", "failed" or "unknown": a literal */
    const char *why;
    int64_t asked_ms, ended_ms; /* wall clock */
    uint32_t attempts;
    bool queued; /* the gateway was told "queued" */
};

struct outcomes *outcomes_new(size_t max);
void outcomes_free(struct outcomes *o); /* NULL is fine */
/* Copies @x into the ring.  @o NULL: does nothing. */
void outcomes_note(struct outcomes *o, const struct outcome *x);
/* Writes at most @limit outcomes, newest first, an object each.  @id: a gateway's requestId or the
 * number of a record; absent or empty: all outcomes. */
void outcomes_write(const struct outcomes *o, struct str id, size_t limit, struct jw *w);
