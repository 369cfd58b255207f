/* schedule.h - wakes an agent at a later time; scheduled wakes survive a restart and never fire
 * early.
 *
 * One record per wake is in the namespace "wakeup", key <due in ms><number>, so the first record is
 * due next.  Memory holds only a timer and the bytes of each tenant.  A wake that fails is retried
 * with backoff; after too many retries, or when its agent is gone, it is logged and deleted.
 *
 * call.c adds wakes for dispatch_wake() with `when`. */
#pragma once
#include "base/str.h"
#include "store/store.h"

struct dispatch;

struct scheduled { /* a record; borrowed for the call; session and context may be absent */
    struct str tenant, agent, session, context;
    struct str key; /* schedule_add() sets it: <due in ms><number> */
    struct str id;  /* and this: its first key; stays the same when the wake is put off */
    int64_t tries;
};

struct schedule *schedule_new(struct dispatch *d); /* blocks while it counts the records */
void schedule_free(struct schedule *s);            /* NULL is fine */

/* NULL: limits.wake_bytes of the tenant or of all leaves no room for this wake. */
struct store_put *schedule_add(struct dispatch *d, int64_t due_ms, struct scheduled *s,
                               store_put_cb *done, void *ctx) BH_MUST_USE;
void schedule_not_kept(struct dispatch *d, const struct scheduled *s); /* @done got an error */
/* Writes a time such as "2026-11-15T12:00:00.000Z". */
void schedule_format(int64_t ms, char *out, size_t size);
