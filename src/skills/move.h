/* move.h - copies all skills with their history between sqlite and postgres, and verifies the copy.
 *
 *      source --skill by skill, oldest version first--> target, some skills in a transaction
 *             '---- read again and hashed, on both sides: every version, every body ----'
 *
 * Called by `bellhop store migrate`.  It blocks, so it must not run on the loop.  No other process
 * may write to either side meanwhile.  The source is never changed.
 *
 * Each skill is copied whole or not at all, so an interrupted move can be run again: a skill that
 * the target already has is compared and kept.  It is an error if such a skill differs, or if the
 * target has a skill that the source lacks. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

struct skills_place {
    const char *kind; /* "sqlite", "postgres" */
    const char *path, *url;
};

struct skills_moved {
    uint64_t skills, versions;
    uint64_t resumed; /* skills that an earlier run had copied already */
};

/* Reports progress.  Returns false to stop; a later run resumes. */
typedef bool skills_move_cb(void *ctx, uint64_t done, uint64_t all);

/* BH_CANCELLED: @each stopped it.  @ret_why: 256 bytes, for people. */
enum bh_err skills_move(const struct skills_place *from, const struct skills_place *to,
                        skills_move_cb *each, void *ctx, struct skills_moved *ret,
                        char *ret_why) BH_MUST_USE;
