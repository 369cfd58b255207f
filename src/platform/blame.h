/* blame.h - whose requests a platform refuses: one tenant cannot silence a bot.
 *
 * Platforms count what they refuse (Discord bans an address for 10,000 in ten minutes), and bellhop
 * pauses a bot long before that.  So that one tenant's nonsense does not pause it for everybody, a
 * tenant that was refused BLAME_MAX times within about ten minutes is held back by itself.
 */
#pragma once
#include "base/list.h"
#include "base/map.h"
#include "base/str.h"

#define BLAME_MAX 100
#define BLAME_MS 600000

struct blame {
    struct map by_name; /* struct blamed, owned */
    struct list by_age;
};

void blame_init(struct blame *b);
void blame_done(struct blame *b);
/* The platform refused something of @tenant's. */
void blame_note(struct blame *b, struct str tenant, int64_t now_ms);
/* Is it to be held back? */
bool blame_is_full(const struct blame *b, struct str tenant, int64_t now_ms);
