/* outcomes.h - how the last actions ended, for `bellhop why --action`.
 *
 * A ring in memory, shared by all bots; the senders write it, and it never holds what was said. */
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
    uint64_t number; /* of its record in the outbox */
    const char *how; /* "done", "refused", "failed" or "unknown": a literal */
    const char *why;
    int64_t asked_ms, ended_ms; /* wall clock */
    uint32_t attempts;
    bool queued; /* its gateway was told so */
};

struct outcomes *outcomes_new(size_t max);
void outcomes_free(struct outcomes *o); /* NULL is fine */
/* @o NULL: nothing is noted. */
void outcomes_note(struct outcomes *o, const struct outcome *x);
/* Writes the outcomes called @id (the gateway's requestId, or the outbox's number; absent or empty:
 * all), newest first, at most @limit, an object each. */
void outcomes_write(const struct outcomes *o, struct str id, size_t limit, struct jw *w);
