/* sweep.h - through all records of a namespace, a little at a time, again and again.
 *
 *      RESTING --now and then--> READING <--> DELETING
 *         ^--- the last record ------'
 *
 * For what nobody indexes: records that have become too old, and how many bytes there are.  It
 * reads 128 KiB at a time with a pause in between, so it costs others little, however much there
 * is.  A pass that fails in the middle begins anew after the rest.
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
    /* What becomes of a record; true: it is deleted. */
    bool (*goes)(void *ctx, struct str key, struct str value);
    void (*end)(void *ctx); /* all of them were looked at; may be NULL */
};

/* The first pass begins soon, the others @rest_ms (0: never) after the end of the one before.
 * @st, @clock, @ops and @ctx are borrowed until sweep_stop(). */
struct sweep *sweep_start(struct store *st, struct clock *clock, const char *ns, int64_t rest_ms,
                          const struct sweep_ops *ops, void *ctx) BH_MUST_USE;
/* Nothing is called any more, also after the store was closed.  NULL inside is fine; sets it. */
void sweep_stop(struct sweep **s);
