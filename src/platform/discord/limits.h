/* limits.h - when the next request to Discord may go, learned from the headers of its answers.
 *
 * Discord counts per bucket; which route falls into which bucket it says in its answers, and a
 * bucket holds for one channel, guild or webhook (the "major" part of the path).  Routes of one
 * bucket share it.  Besides there is one limit for everything.  Pure: the caller tells the time. */
#pragma once
#include "base/str.h"

struct limits;

struct limits_headers { /* absent, -1: the answer did not say */
    struct str bucket;
    int64_t remaining, reset_after_ms;
};

struct limits *limits_new(void);
void limits_free(struct limits *l);

/* May a request of this kind go now?  0: yes, and it is counted; else how long to wait. */
int64_t limits_take(struct limits *l, struct str route, struct str major, int64_t now_ms);
/* What an answer said. */
void limits_note(struct limits *l, struct str route, struct str major, int64_t now_ms,
                 const struct limits_headers *h);
/* A 429: nothing of this kind, or nothing at all, for this long. */
void limits_hit(struct limits *l, struct str route, struct str major, int64_t now_ms,
                int64_t wait_ms, bool global);

/* Refused requests (401, 403, 429) count towards a ban of our address at 10,000 in ten minutes.  We
 * stop long before. */
#define LIMITS_MAX_REFUSED 1000
void limits_refused(struct limits *l, int64_t now_ms);
unsigned limits_refused_count(struct limits *l, int64_t now_ms); /* in the last ten minutes */
