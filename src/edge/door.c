/* door.c - design.  (door.h has the contract.)
 *
 * Two sources that share a slot share its budget, which refills within seconds.  That is better
 * than a table that grows with the number of attackers. */
#include "edge/door.h"
#include <stdlib.h>
#include "base/addr.h"
#include "base/bucket.h"
#include "base/config.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rand.h"

#define AT(member) offsetof(struct door_limits, member)

static const struct config_key keys[] = {
    {"webhooks.refused_per_source", CFG_NUMBER, CFG_RELOAD, AT(refusals), "50", .max = 1000000,
     .what = "Where checking a signature is expensive (Discord), or an identity provider is asked "
             "(`identity.kind`): wrongly signed requests per second that one address may send (ten "
             "times that at once) before it gets 429; 0: no limit."},
    {"webhooks.strangers", CFG_NUMBER, CFG_RELOAD, AT(strangers), "1000", .max = 1000000,
     .what =
         "In the same places: requests per second that are checked for all addresses together that "
         "sent no valid request in the last ten minutes (twice that at once); 0: no limit."},
    {0},
};
const struct config_section door_config = {.keys = keys, .size = sizeof(struct door_limits)};

enum {
    SOURCES = 8192,
    REFUSAL_BURST = 10,
    STRANGERS_BURST = 2,
    PROVED_FACTOR = 20,
    PROVED_MS = 600000,
};

struct source {
    struct bucket_level refusals;
    int64_t proved_ms; /* time of its last valid proof; 0: never */
};

struct door {
    struct hash_key key;
    struct door_limits limits;
    struct source sources[SOURCES];
    struct bucket_level strangers;
    uint64_t turned_away;
};

struct door *door_new(struct rand *rand)
{
    struct door *d = xcalloc(1, sizeof *d);

    rand_bytes(rand, &d->key, sizeof d->key);
    return d;
}

void door_free(struct door *d)
{
    free(d);
}

void door_set_limits(struct door *d, const struct door_limits *l)
{
    d->limits = *l;
}

/* ---- sources ---- */

struct door_source door_source(const struct door *d, struct str peer)
{
    struct addr a = {.n = 0};

    (void)addr_parse(str_trim(peer), &a); /* what is no address counts as a Unix socket */
    return (struct door_source){hash64(&d->key, addr_party(&a))};
}

/* ---- budgets ---- */

static struct source *source_at(struct door *d, struct door_source from)
{
    return &d->sources[from.hash % SOURCES];
}

/* The budget of refusals per second. */
static uint32_t patience(const struct door *d, const struct source *s, int64_t now_ms)
{
    bool proved = s->proved_ms != 0 && now_ms - s->proved_ms < PROVED_MS;

    return d->limits.refusals * (proved ? PROVED_FACTOR : 1);
}

bool door_admit(struct door *d, struct door_source from, int64_t now_ms)
{
    const struct source *s = source_at(d, from);
    uint32_t may = patience(d, s, now_ms), strangers = d->limits.strangers;
    struct bucket_level copy = s->refusals;

    if (bucket_take(&copy, now_ms, may, may * REFUSAL_BURST) &&
        (may > d->limits.refusals ||
         bucket_take(&d->strangers, now_ms, strangers, strangers * STRANGERS_BURST)))
        return true;
    d->turned_away++;
    return false;
}

void door_refused(struct door *d, struct door_source from, int64_t now_ms)
{
    struct source *s = source_at(d, from);
    uint32_t may = patience(d, s, now_ms);

    (void)bucket_take(&s->refusals, now_ms, may, may * REFUSAL_BURST);
}

void door_proved(struct door *d, struct door_source from, int64_t now_ms)
{
    source_at(d, from)->proved_ms = now_ms;
}

uint64_t door_turned_away(const struct door *d)
{
    return d->turned_away;
}
