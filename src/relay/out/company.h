/* company.h - which chats several agents share.
 *
 * For every chat, as one of our bots sees it, how many instances were heard or have spoken there;
 * 8 bytes of table for each chat, and as much room again.  What is counted is kept elsewhere
 * (chats.h, spoken.h), so nothing of it is on disk.
 */
#pragma once
#include "base/str.h"

struct company;
struct relay;

struct company *company_new(void);
void company_free(struct company *t); /* NULL is fine */

/* The name of a chat of a bot; never 0. */
uint64_t company_place(const struct relay *r, struct str platform, struct str bot,
                       struct str chat_id);
/* One instance more, or one less, in the place; each instance sees to it that it counts once. */
void company_join(struct relay *r, uint64_t place);
void company_leave(struct relay *r, uint64_t place);
void company_prefetch(const struct relay *r, uint64_t place); /* it will join in a moment */
/* How many; exact below COMPANY_MOST, and from there on it stays as it is until the next start. */
#define COMPANY_MOST 255
unsigned company_count(const struct relay *r, uint64_t place);
