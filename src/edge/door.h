/* door.h - rate limits in front of expensive signature checks.
 *
 * Most proofs cost a few microseconds (an HMAC, a hash, a secret to compare) and are always
 * checked, so no webhook is refused because of other senders.  A public-key signature costs far
 * more to check than to forge, so the door decides first which requests are checked:
 *
 *      a source with many refused requests must wait; requests that prove themselves never count
 *      a source that proved itself lately may fail more often: others may share its address
 *      unknown sources share the rest of a second's budget
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

/* The source of a request: its address, or for IPv6 its network. */
struct door_source {
    uint64_t hash;
};
struct door_source door_source(const struct door *d, struct str peer);

/* May the expensive proof of this request be checked? */
bool door_admit(struct door *d, struct door_source from, int64_t now_ms);
/* The result of the check. */
void door_refused(struct door *d, struct door_source from, int64_t now_ms);
void door_proved(struct door *d, struct door_source from, int64_t now_ms);
uint64_t door_turned_away(const struct door *d); /* so far, for metrics */
