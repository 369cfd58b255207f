/* sqlite.h - the embedded store: one file, WAL, synchronous=FULL, one thread that commits in
 * groups.
 *
 *      loop thread            store thread
 *      submit ─> queue ──swap──> BEGIN; every op; COMMIT (one fsync)
 *      done() <── loop_post <──── results
 */
#pragma once
#include "store/store.h"

struct loop;

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
