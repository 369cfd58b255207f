/* log_limit.h - a log line that must not flood: at most one per ten seconds. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define LOG_LIMIT_MS 10000

struct log_limit { /* zeroed: the first line passes */
    int64_t next_ms;
    uint64_t skipped;
};

/* True: log it now, and say that @ret_skipped were not. */
static inline bool log_limit_passes(struct log_limit *l, int64_t now_ms, uint64_t *ret_skipped)
{
    if (now_ms < l->next_ms) {
        l->skipped++;
        return false;
    }
    *ret_skipped = l->skipped;
    l->skipped = 0;
    l->next_ms = now_ms + LOG_LIMIT_MS;
    return true;
}
