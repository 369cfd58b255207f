/* door.h - how often a stranger may knock before anybody looks at their signature.
 *
 * Checking a signature costs far more than sending one, so two things are counted first: refusals
 * per source, because who is refused again and again is no platform; and requests per bot, because
 * nobody writes that much.  What platforms send is never counted against its source, so many bots
 * behind one address are fine.
 *
 * Memory is fixed: sources share slots by a keyed hash nobody outside can aim at. */
#pragma once
#include "base/str.h"

struct config_section;
struct door;
struct rand;

struct door_limits {   /* per second; 0: no limit */
    uint32_t refusals; /* per source, ten times that at once */
    uint32_t requests; /* per bot, twice that at once */
};

extern const struct config_section door_config; /* fills a door_limits */

struct door *door_new(struct rand *rand);
void door_free(struct door *d); /* NULL is fine */
void door_set_limits(struct door *d, const struct door_limits *l);

/* Who is knocking: the address, or for IPv6 the network it is from. */
struct door_source {
    uint64_t hash;
};
struct door_source door_source(const struct door *d, struct str peer);

/* May this request be looked at?  @bot is copied nowhere. */
bool door_admit(struct door *d, struct door_source from, struct str bot, int64_t now_ms);
void door_refused(struct door *d, struct door_source from, int64_t now_ms);
uint64_t door_turned_away(const struct door *d); /* so far, for metrics */
