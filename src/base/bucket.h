/* bucket.h - a token bucket: at most so many per second, with room for a burst.
 *
 *      if (!bucket_take(&b, now_ms, 50, 200)) refuse();      // 50 per second, 200 at once
 *
 * A zeroed bucket is full.  The bucket counts in thousandths of a token, so slow rates add up
 * too. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct bucket_level {
    int64_t at_ms;   /* time of the last refill; 0: never */
    int64_t missing; /* thousandths of a token below full */
};

/* Takes one token; false: the bucket is empty.  @per_second 0: no limit. */
static inline bool bucket_take(struct bucket_level *b, int64_t now_ms, uint32_t per_second,
                               uint32_t burst)
{
    if (per_second == 0)
        return true;
    if (now_ms > b->at_ms) {
        int64_t gone_ms = now_ms - b->at_ms;
        /* After a day any bucket is full; without this bound the product could overflow. */
        int64_t back = gone_ms > 86400000 ? b->missing : gone_ms * (int64_t)per_second;
        b->missing = back < b->missing ? b->missing - back : 0;
        b->at_ms = now_ms;
    }
    if (b->missing + 1000 > (int64_t)burst * 1000)
        return false;
    b->missing += 1000;
    return true;
}

/* Gives back the token that was taken last. */
static inline void bucket_give(struct bucket_level *b)
{
    b->missing = b->missing > 1000 ? b->missing - 1000 : 0;
}
