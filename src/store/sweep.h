/* sweep.h - reads all records of a namespace in small steps, repeatedly, and deletes some.
 *
 *      RESTING --now and then--> READING <--> DELETING
 *         ^--- the last record ------'
 *
 * For properties that have no index: the age of records, the bytes of a namespace.  A sweep reads
 * 128 KiB at a time and pauses between steps, so a large namespace does not slow other readers.  A
 * pass that fails starts again after the rest.
 *
 * Without a clock a sweep is one pass without pauses.  That pass sees every write submitted before
 * it.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/str.h"

struct clock;
struct store;
struct sweep; /* a handle: sweep_stop() */

struct sweep_ops {
    void (*begin)(void *ctx); /* a pass; may be NULL */
    /* Called for each record.  True: the sweep deletes the record. */
    bool (*goes)(void *ctx, struct str key, struct str value);
    /* The pass is over; @ok: it read all records.  May stop the sweep; may be NULL. */
    void (*end)(void *ctx, bool ok);
};

/* The first pass begins soon, the others @rest_ms (0: never) after the end of the one before.
 * @clock may be NULL, see above.  @st, @clock, @ops and @ctx are borrowed until sweep_stop(). */
struct sweep *sweep_start(struct store *st, struct clock *clock, const char *ns, int64_t rest_ms,
                          const struct sweep_ops *ops, void *ctx) BH_MUST_USE;
/* No callback runs afterwards.  May be called after the store was closed.  Sets *@s to NULL; a NULL
 * inside is fine. */
void sweep_stop(struct sweep **s);
