/* pace.h - the budget of one bot: how many requests may leave, in each chat and in all.
 *
 *      wait_ms = pace_wait_ms(p, chat, group, PACE_EDIT)   0: pace_count() and send it
 *      the platform said 429 --> pace_hit(p, chat, retry_after_ms)
 *
 * All requests of a bot share the budget: messages, edits, previews, typing and reactions.  The
 * classes are ranked.  Each class leaves a part of the bot's budget to the classes above it, so a
 * message finds room while hundreds of answers stream.
 *
 * In a chat, unfinished texts are a gap apart from every other request.  Messages and last texts
 * may come in short bursts, as platforms allow.  After a 429 on a burst that chat gets none for
 * half an hour, and after three of them no chat does.
 *
 * A 429 stops its chat for as long as the platform asked, and doubles the gaps of that chat for a
 * minute.  Other chats do not notice.
 *
 * Counts are lost when the process ends.  A process that finds unfinished work of an earlier one
 * calls pace_spent(): bursts then begin used up.  How much of group_max the earlier process used is
 * not known; if a group gets a 429, its requests wait as long as the platform asks.
 *
 * The streams of a bot own it (stream.h); an adapter that counts its other requests too calls it
 * from its write().  It sends nothing and holds no queue: it is arithmetic on a clock.  Chats
 * without a request for a minute are forgotten.
 */
#pragma once
#include "base/clock.h"
#include "base/str.h"

/* In the order of their importance. */
enum pace_class {
    PACE_SEND,   /* messages, files, questions */
    PACE_FINAL,  /* the last text of an answer */
    PACE_REACT,  /* a reaction */
    PACE_EDIT,   /* an unfinished text */
    PACE_DRAFT,  /* a preview */
    PACE_TYPING, /* shed rather than delayed */
    PACE_CLASSES,
};

struct pace_rules {       /* of a platform; 0: no such limit */
    uint32_t per_second;  /* requests of the bot that refill in a second */
    uint32_t burst;       /* requests of the bot at once.  In any second at most @per_second +
                           * @burst leave: keep the sum below the platform's limit */
    int64_t gap_ms;       /* between two requests in a chat, on average */
    int64_t draft_gap_ms; /* between two previews in a chat */
    uint32_t chat_burst;  /* messages in a chat at once, then one per gap; of last texts half */
    uint32_t group_max;   /* requests in a group within a minute; the last third is left to messages
                           * and last texts */
};

#define PACE_MAX_CHATS 65536 /* with a request in the last minute; others have no chat limits */
#define PACE_MAX_GROUP 32    /* of pace_rules.group_max */

/* @clock and @rules are borrowed. */
struct pace *pace_new(struct clock *clock, const struct pace_rules *rules);
void pace_free(struct pace *p); /* NULL is fine */
/* An earlier process may have sent all that the rules allow until a moment ago.  Every burst is
 * used up: each chat has one message at once, and its next a gap after the start. */
void pace_spent(struct pace *p);

/* How long a request of @class has to wait in @chat; absent: the limits of the whole bot only.
 * 0: it may leave now.  Counts nothing. */
int64_t pace_wait_ms(struct pace *p, struct str chat, bool group, enum pace_class class);
/* A request of @class leaves. */
void pace_count(struct pace *p, struct str chat, bool group, enum pace_class class);
/* The platform asks to wait in @chat. */
void pace_hit(struct pace *p, struct str chat, int64_t retry_after_ms);
/* Chats that the platform asked to wait in, and the shortest wait among them. */
size_t pace_n_limited(const struct pace *p, int64_t *ret_shortest_ms);
