/* byline.h - puts the agent's name in front of its messages where several agents share a chat.
 *
 * The name is the displayName that the gateway was provisioned with.  An agent without a name, or
 * alone in the chat, speaks without one.  requests.h asks at every action, so names appear and
 * disappear with the other agents; asking counts the agent as a participant.
 *
 * Participants are the instances that received an event from a chat (chats.h) or spoke there
 * (spoken.h).  Those modules report joins and leaves; the counts live in memory only.
 */
#pragma once
#include "core/action.h"

struct buf;
struct destination;
struct instance;
struct participants;
struct relay;

/* The content of @a as people read it: unchanged, or with the name in front of it in @room.  An
 * edit that would become too long keeps its text and goes without the name. */
struct str byline_add(const struct instance *i, const struct destination *to,
                      const struct action *a, struct buf *room);

/* ---- how many agents share a chat ---- */

struct participants *participants_new(void);
void participants_free(struct participants *t); /* NULL is fine */

/* The key of a chat as one bot sees it; never 0. */
uint64_t participants_key(const struct relay *r, struct str platform, struct str bot,
                          struct str chat_id);
/* One instance more, or one less; the caller counts each instance once. */
void participants_join(struct relay *r, uint64_t chat);
void participants_leave(struct relay *r, uint64_t chat);
void participants_prefetch(const struct relay *r, uint64_t chat); /* before a join */
/* Exact below PARTICIPANTS_MAX; a count that reached PARTICIPANTS_MAX stays until the next start.
 */
#define PARTICIPANTS_MAX 255
unsigned participants_count(const struct relay *r, uint64_t chat);
