/* rand.c - the system's generator, or splitmix64 when a run must be repeatable.
 *
 * The seeded generator is for tests and simulations only: it keeps no secret. */
#include "base/rand.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define STEP 0x9e3779b97f4a7c15ULL

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

static void system_bytes(char *p, size_t n)
{
    while (n > 0) {
        ssize_t got = getrandom(p, n, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            abort(); /* going on with guessable secrets would be worse */
        p += got;
        n -= (size_t)got;
    }
}

struct rand rand_seeded(uint64_t seed)
{
    uint64_t state = mix(seed + STEP);

    return (struct rand){.state = state != 0 ? state : STEP};
}

void rand_bytes(struct rand *r, void *p, size_t n)
{
    if (r->state == 0) {
        system_bytes(p, n);
        return;
    }
    for (char *to = p; n > 0;) {
        r->state += STEP;
        if (r->state == 0) /* zero means the system's generator: step over it */
            r->state += STEP;
        uint64_t v = mix(r->state);
        size_t part = n < sizeof v ? n : sizeof v;
        memcpy(to, &v, part);
        to += part;
        n -= part;
    }
}

uint64_t rand_u64(struct rand *r)
{
    uint64_t v;

    rand_bytes(r, &v, sizeof v);
    return v;
}

uint64_t rand_below(struct rand *r, uint64_t n)
{
    assert(n > 0);
    return (uint64_t)(((unsigned __int128)rand_u64(r) * n) >> 64);
}
