/* sqlite.h - the embedded store: one file, WAL, synchronous=FULL, one thread that commits in
 * groups.
 *
 *      loop thread            store thread
 *      submit ─> queue ────────> BEGIN; every op; COMMIT (one fsync)
 *      done() <── handback <──── results
 */
#pragma once
#include "store/store.h"

/* Opens or creates @path, locks it against other processes, runs missing migrations and starts the
 * threads.  Refuses a database of a newer bellhop.  @ret_why has 256 bytes. */
enum bh_err store_sqlite_open(struct loop *loop, const char *path, struct store **ret_st,
                              char *ret_why) BH_MUST_USE;
/* The same with settings; NULL: no reserve, no largest size. */
enum bh_err store_sqlite_open_with(struct loop *loop, const char *path,
                                   const struct store_settings *settings, struct store **ret_st,
                                   char *ret_why) BH_MUST_USE;

/* BH_OK: @path is a database of this store and not damaged.  Reads the whole file; a server may be
 * running on it.  @ret_why has 256 bytes. */
enum bh_err store_sqlite_check(const char *path, char *ret_why) BH_MUST_USE;
/* BH_OK: @path is a SQLite database, of any kind, and not damaged. */
enum bh_err store_sqlite_whole(const char *path, char *ret_why) BH_MUST_USE;

/* Copies one snapshot of a database that may be in use to the new file @to, syncs the copy and
 * checks it.  @each reports the pages done; false stops the copying.  Blocks: not for the loop. */
typedef bool store_progress_cb(void *ctx, uint64_t done, uint64_t all);
enum bh_err store_sqlite_copy(const char *from, const char *to, store_progress_cb *each, void *ctx,
                              char *ret_why) BH_MUST_USE;
/* Prepares a restored copy: checks it, and raises its boot number above every number that the
 * original may have used since. */
enum bh_err store_sqlite_adopt(const char *path, char *ret_why) BH_MUST_USE;

/* Takes the lock of the database at @path, as a server does.  Returns a descriptor to
 * close, or -1. */
int store_sqlite_lock(const char *path, char *ret_why);
