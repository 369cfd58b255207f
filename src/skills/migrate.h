/* migrate.h - copies all skills with their history between sqlite and postgres, and compares both.
 *
 * Called by `bellhop store migrate`.  It blocks, so it must not run on the loop.  No other process
 * may write to either end meanwhile.  The source is never changed.
 *
 * Skills are copied in one transaction: an interrupted migration leaves nothing, and is run again.
 * A target that has skills already is only compared, and refused if they are others. */
#pragma once
#include "base/err.h"
#include "store/transfer.h"

struct skills_location {
    const char *path; /* of the file, or */
    const char *url;  /* of PostgreSQL; NULL: the file */
};

struct skills_migrated {
    uint64_t skills, versions;
    bool resumed; /* the target had them already */
};

/* BH_CANCELLED: @each stopped it.  @ret_why: 256 bytes, for people. */
enum bh_err skills_migrate(const struct skills_location *from, const struct skills_location *to,
                           transfer_cb *each, void *ctx, struct skills_migrated *ret,
                           char *ret_why) BH_MUST_USE;

/* ---- the two databases, for migrate.c only: their statements are those of transfer.h ---- */
enum {
    SKILLS_STORES,
    SKILLS_SKILLS,
    SKILLS_TAGS,
    SKILLS_VERSIONS,
    SKILLS_SIZES,
    N_SKILLS_TABLES,
    SKILLS_FINISH = N_SKILLS_TABLES * TRANSFER_STATEMENTS + TRANSFER_REST, /* after the copy */
    N_SKILLS_STATEMENTS
};
struct sqldb *skills_migrate_file(const char *path, char *ret_why); /* NULL: @ret_why */
struct sqldb *skills_migrate_server(const char *url, char *ret_why);
