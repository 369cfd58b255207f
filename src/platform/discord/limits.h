/* limits.h - when the next request to Discord may go, learned from the headers of its answers.
 *
 * Discord counts per bucket; which route falls into which bucket it says in its answers, and a
 * bucket holds for one channel, guild or webhook (the "major" part of the path).  Routes of one
 * bucket share it.  Besides there is one limit for everything.  Pure: the caller tells the time. */
#pragma once
#include "base/str.h"

struct discord_limits;

struct discord_limits_headers { /* absent, -1: the answer did not say */
    struct str bucket;
    int64_t remaining, reset_after_ms;
};

struct discord_limits *discord_limits_new(void);
void discord_limits_free(struct discord_limits *l);

/* May a request of this kind go now?  0: yes, and it is counted; else how long to wait. */
int64_t discord_limits_take(struct discord_limits *l, struct str route, struct str major,
                            int64_t now_ms);
/* What an answer said. */
void discord_limits_note(struct discord_limits *l, struct str route, struct str major,
                         int64_t now_ms, const struct discord_limits_headers *h);
/* A 429: nothing of this kind, or nothing at all, for this long. */
void discord_limits_hit(struct discord_limits *l, struct str route, struct str major,
                        int64_t now_ms, int64_t wait_ms, bool global);

/* Refused requests (401, 403, 429) count towards a ban of our address at 10,000 in ten minutes.  We
 * stop long before. */
#define DISCORD_MAX_REFUSED 1000
void discord_limits_refused(struct discord_limits *l, int64_t now_ms);
unsigned discord_limits_refused_count(struct discord_limits *l,
                                      int64_t now_ms); /* in the last ten minutes */
