/* schedule.h - wakes for later: on disk, fired after a restart too, never early.
 *
 * A record per wake in the namespace "wakeup", key <due in ms><number>, so that the next one is
 * the first.  Only its time is in memory, and how many bytes each tenant has of them.  A wake
 * that fails is put off, a few times, and then left as mail. */
#pragma once
#include "base/str.h"
#include "store/store.h"

struct dispatch;
struct schedule;

struct scheduled { /* borrowed for the call; absent: none */
    struct str tenant, agent, session, context;
};

struct schedule *schedule_new(struct dispatch *d); /* blocks: counts them; looks for the first */
void schedule_free(struct schedule *s);            /* NULL is fine */

/* limits.wake_bytes: may its tenant have one more? */
bool schedule_has_room(struct dispatch *d, const struct scheduled *s);
void schedule_not_kept(struct dispatch *d, const struct scheduled *s); /* the store failed */
struct store_put *schedule_add(struct dispatch *d, int64_t due_ms, const struct scheduled *s,
                               store_put_cb *done, void *ctx) BH_MUST_USE;
/* "2026-11-15T12:00:00.000Z". */
void schedule_format(int64_t ms, char *out, size_t size);
