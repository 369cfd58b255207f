/* log_limit.h - rate limit for one kind of log line: at most one per ten seconds. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define LOG_LIMIT_MS 10000

struct log_limit { /* zeroed: the first line passes */
    int64_t next_ms;
    uint64_t skipped;
};

/* True: log the line now; @ret_skipped lines were suppressed since the last one. */
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
