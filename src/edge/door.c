/* door.c - design.  (door.h has the contract.)
 *
 * A slot that two sources share is stricter for both and opens again within seconds, which is
 * better than a table that grows with the number of attackers. */
#include "edge/door.h"
#include <arpa/inet.h>
#include <stdlib.h>
#include "base/bucket.h"
#include "base/config.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rand.h"

#define AT(member) offsetof(struct door_limits, member)

static const struct config_key keys[] = {
    {"webhooks.refused_per_source", CFG_NUMBER, CFG_RELOAD, AT(refusals), "50", .max = 1000000,
     .what = "Webhooks with a wrong signature that one address may send per second (ten times that "
             "at once) before it is told to wait; 0 is no limit."},
    {"webhooks.requests_per_bot", CFG_NUMBER, CFG_RELOAD, AT(requests), "2000", .max = 1000000,
     .what = "Webhooks per second (twice that at once) whose signature is looked at, per bot; 0 is "
             "no limit."},
    {0},
};
const struct config_section door_config = {.keys = keys, .size = sizeof(struct door_limits)};

enum { SOURCES = 8192, BOTS = 1024, REFUSAL_BURST = 10, REQUEST_BURST = 2 };

struct door {
    struct hash_key key;
    struct door_limits limits;
    struct bucket_level sources[SOURCES], bots[BOTS];
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

/* ---- who ---- */

struct address {
    uint8_t bytes[16];
    size_t n; /* 4, 16, or 0: none */
};

static struct address read_address(struct str text)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    struct address a = {.n = 0};
    char z[64];

    text = str_trim(text);
    if (text.n == 0 || text.n >= sizeof z)
        return a;
    memcpy(z, text.p, text.n);
    z[text.n] = '\0';
    if (inet_pton(AF_INET, z, a.bytes) == 1)
        a.n = 4;
    else if (inet_pton(AF_INET6, z, a.bytes) == 1)
        a.n = 16;
    if (a.n == 16 && memcmp(a.bytes, mapped, sizeof mapped) == 0) { /* IPv4 on an IPv6 socket */
        memmove(a.bytes, a.bytes + 12, 4);
        a.n = 4;
    }
    return a;
}

struct door_source door_source(const struct door *d, struct str peer)
{
    struct address a = read_address(peer);

    return (struct door_source){hash64(&d->key, str_make(a.bytes, a.n == 16 ? 8 : a.n))};
}

/* ---- how often ---- */

static bool has_any(const struct bucket_level *b, int64_t now_ms, uint32_t per_second,
                    uint32_t burst)
{
    struct bucket_level copy = *b;

    return bucket_take(&copy, now_ms, per_second, burst);
}

bool door_admit(struct door *d, struct door_source from, struct str bot, int64_t now_ms)
{
    struct bucket_level *b = &d->bots[hash64(&d->key, bot) % BOTS];
    uint32_t refusals = d->limits.refusals, requests = d->limits.requests;

    if (has_any(&d->sources[from.hash % SOURCES], now_ms, refusals, refusals * REFUSAL_BURST) &&
        bucket_take(b, now_ms, requests, requests * REQUEST_BURST))
        return true;
    d->turned_away++;
    return false;
}

void door_refused(struct door *d, struct door_source from, int64_t now_ms)
{
    uint32_t refusals = d->limits.refusals;

    (void)bucket_take(&d->sources[from.hash % SOURCES], now_ms, refusals, refusals * REFUSAL_BURST);
}

uint64_t door_turned_away(const struct door *d)
{
    return d->turned_away;
}
