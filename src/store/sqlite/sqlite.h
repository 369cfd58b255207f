/* sqlite.h - the embedded store: one file, WAL, synchronous=FULL, one thread that commits in
 * groups.
 *
 *      loop thread            store thread
 *      submit ─> queue ────────> BEGIN; every op; COMMIT (one fsync)
 *      done() <── handback <──── results
 */
#pragma once
#include "store/store.h"

/* Open or create @path, run the migrations it lacks (refusing a database of a newer bellhop), take
 * the lock that keeps a second bellhop out, start the thread.  @ret_why has 256 bytes. */
enum bh_err store_sqlite_open(struct loop *loop, const char *path, struct store **ret_st,
                              char *ret_why) BH_MUST_USE;
/* The same with settings; NULL: no reserve, no largest size. */
enum bh_err store_sqlite_open_with(struct loop *loop, const char *path,
                                   const struct store_settings *settings, struct store **ret_st,
                                   char *ret_why) BH_MUST_USE;

/* Is the database at @path one of ours, and whole?  Reads all of it, beside a running server too.
 * @ret_why has 256 bytes. */
enum bh_err store_sqlite_check(const char *path, char *ret_why) BH_MUST_USE;
/* The same for any database that is not of this store: only that it is whole. */
enum bh_err store_sqlite_whole(const char *path, char *ret_why) BH_MUST_USE;

/* Copy a database that may be in use to the new file @to: as it is at one moment, on disk, and read
 * back.  @each runs now and then with the pages done; when it answers false the copying stops.
 * Blocks: not for the loop. */
typedef bool store_progress_cb(void *ctx, uint64_t done, uint64_t all);
enum bh_err store_sqlite_copy(const char *from, const char *to, store_progress_cb *each, void *ctx,
                              char *ret_why) BH_MUST_USE;
/* What a copy needs before it becomes the database: it is checked, and its starts are counted past
 * those that the database may have had since. */
enum bh_err store_sqlite_adopt(const char *path, char *ret_why) BH_MUST_USE;

/* Hold the lock of the database at @path, as a server does: a descriptor to close, or -1. */
int store_sqlite_lock(const char *path, char *ret_why);
