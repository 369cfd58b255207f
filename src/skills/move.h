/* move.h - all skills with their history from one backend into another, compared at the end.
 *
 *      source --skill by skill, oldest version first--> target, some skills in a transaction
 *             '---- read again and hashed, on both sides: every version, every body ----'
 *
 * A skill is moved whole or not at all, so whoever is interrupted does it again: what is there
 * already is compared and left.  What is there and differs, or is there alone, is an error.  The
 * source is not changed.  All of it blocks: for commands, not for the loop; nobody else may write
 * to either side. */
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
    uint64_t resumed; /* skills that were there from an earlier try */
};

/* Runs now and then; false: stop, to be gone on with later. */
typedef bool skills_move_cb(void *ctx, uint64_t done, uint64_t all);

/* BH_CANCELLED: @each stopped it.  @ret_why: 256 bytes, for people. */
enum bh_err skills_move(const struct skills_place *from, const struct skills_place *to,
                        skills_move_cb *each, void *ctx, struct skills_moved *ret,
                        char *ret_why) BH_MUST_USE;
