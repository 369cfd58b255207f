/* door.h - limits the rate of expensive signature checks.
 *
 * A public-key signature costs far more to check than to forge, so the door decides which requests
 * are checked at all:
 *
 *      each source has a budget of refused requests; requests with a valid proof cost nothing
 *      a source that proved itself in the last ten minutes has 20 times that budget, because
 *        other senders may share its address
 *      all other sources together share one budget of checks
 *
 * http/route.c asks the door before a platform checks an expensive webhook signature;
 * http/enroll_route.c asks it before another server is asked about a caller.  Cheap proofs (an
 * HMAC, a hash, a secret) are always checked, so such a webhook is never refused because of others.
 *
 * Memory is fixed: sources share 8192 slots by a hash with a secret key, so an attacker cannot
 * choose a victim's slot. */
#pragma once
#include "base/str.h"

struct rand;

struct door_limits {    /* per second; 0: no limit */
    uint32_t refusals;  /* refused requests per source; the burst is ten times that */
    uint32_t strangers; /* checks for all sources without a recent proof; burst: twice that */
};

extern const struct config_section door_config; /* fills a door_limits */

struct door *door_new(struct rand *rand);
void door_free(struct door *d); /* NULL is fine */
void door_set_limits(struct door *d, const struct door_limits *l);

/* The source of a request: its IPv4 address, or the /64 network of its IPv6 address. */
struct door_source {
    uint64_t hash;
};
struct door_source door_source(const struct door *d, struct str peer);

/* True: the expensive proof may be checked. */
bool door_admit(struct door *d, struct door_source from, int64_t now_ms);
/* The result of the check. */
void door_refused(struct door *d, struct door_source from, int64_t now_ms);
void door_proved(struct door *d, struct door_source from, int64_t now_ms);
uint64_t
door_turned_away(const struct door *d); /* requests that door_admit() refused; for metrics */
