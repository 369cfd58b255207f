/* door.h - which strangers are looked at, when looking is expensive.
 *
 * Most proofs cost a few microseconds (an HMAC, a hash, a secret to compare): everybody is looked
 * at, and nobody's webhook is refused because of what others send.  A signature with a public key
 * costs far more to check than to make up, so there the door stands before it:
 *
 *      a source that is refused again and again must wait; what it proves is never counted
 *      a source that proved itself lately may be wrong a lot more: others may share its address
 *      sources of which nothing is known share what is left of a second's time
 *
 * Memory is fixed: sources share slots by a keyed hash nobody outside can aim at. */
#pragma once
#include "base/str.h"

struct config_section;
struct door;
struct rand;

struct door_limits {    /* per second; 0: no limit */
    uint32_t refusals;  /* per source, ten times that at once */
    uint32_t strangers; /* of all sources that never proved anything, twice that at once */
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

/* May the proof of this request be looked at, which is expensive? */
bool door_admit(struct door *d, struct door_source from, int64_t now_ms);
/* It was looked at, and this is what came of it. */
void door_refused(struct door *d, struct door_source from, int64_t now_ms);
void door_proved(struct door *d, struct door_source from, int64_t now_ms);
uint64_t door_turned_away(const struct door *d); /* so far, for metrics */
