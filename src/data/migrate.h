/* migrate.h - copies all entries between the files of one machine and the PostgreSQL of several.
 *
 * Called by `bellhop store migrate`.  It blocks.  No server may run on either side.  The source is
 * never changed.  A store is copied whole or not at all, so an interrupted migration can be run
 * again: it replaces what the earlier run copied. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct data_migrated {
    uint64_t stores, entries;
};

/* From the files in @dir, which need not exist, into the PostgreSQL at @url, on which no server has
 * run yet.  False: @ret_why, 256 bytes. */
bool data_migrate_in(const char *dir, const char *url, struct data_migrated *ret, char *ret_why);
/* Into @dir, which must be empty or missing. */
bool data_migrate_out(const char *url, const char *dir, struct data_migrated *ret, char *ret_why);
