/* accept.h - taking an event in: the answer, and how to call it off. */
#pragma once
#include <stdint.h>
#include "base/err.h"
#include "base/str.h"

/* Runs later, exactly once, and only then may the platform be told "received": BH_OK = delivered
 * and acked, or on disk (or deliberately nobody's, or a duplicate of one that is); BH_BUSY,
 * BH_UNAVAILABLE = the platform should send it again later. */
typedef void accepted_cb(void *ctx, enum bh_err err);

/* An accept whose answer has not come yet.  A number: calling off one that was answered is
 * harmless. The event itself goes on; only nobody is told. */
struct accept_id {
    uint32_t index, generation;
};

/* Somebody an event would go to. */
typedef void target_cb(void *ctx, struct str tenant, struct str instance);
