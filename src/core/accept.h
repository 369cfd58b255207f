/* accept.h - the callback and the cancel handle of an event that the relay accepts. */
#pragma once
#include <stdint.h>
#include "base/err.h"
#include "base/str.h"

/* Runs later, exactly once; the adapter acknowledges the event to its platform only then.
 *
 *      BH_OK                     delivered and acked, on disk, a duplicate, or without a receiver
 *      BH_BUSY, BH_UNAVAILABLE   the platform should send the event again later
 */
typedef void accepted_cb(void *ctx, enum bh_err err);

/* Names an event whose callback has not run yet.  Cancelling stops the callback, not the event.
 * The id is a number, so cancelling after the callback ran does nothing. */
struct accept_id {
    uint32_t index, generation;
};

/* Called for each instance an event would go to. */
typedef void target_cb(void *ctx, struct str tenant, struct str instance);
