/* journal_disk.h - keeps the journal (core/journal.h) on disk for a bounded time, and searches it.
 *
 *      loop:    journal --a second later, or at once when a block is full--> copy --.
 *      thread:                                write, expire <---------------------'
 *      loop:    journal_disk_find() --> thread: filters, then blocks --> found(): the records
 *
 * The files are `why-<block>.log` in a folder of their own.  A file is a row of blocks of 64 KiB;
 * the head of a block has a Bloom filter of the ids in it, so a search reads 2 KiB of a block that
 * cannot match.  The first search that meets a block reads all of it and makes its filter.  Old
 * files are deleted whole: those past the time, then those beyond the bytes.
 *
 * The journal never delays a message.  A crash loses its last second; a disk that is slower than
 * the traffic, or full, costs records, which are counted and logged.
 *
 * One thread writes and searches, in the order of the calls: a search sees everything that was
 * recorded before it.
 */
#pragma once
#include "core/journal.h"
#include "store/erasure.h"

struct loop;
struct journal_disk;

struct journal_settings { /* `why:` in the configuration, owned by it */
    int64_t keep_ms;
    uint64_t max_bytes;
};
extern const struct config_section journal_config;

struct journal_disk_env {
    struct loop *loop;       /* borrowed */
    struct journal *journal; /* borrowed; nothing is written to it yet */
    const char *dir;         /* created; copied */
    struct hash_key key;     /* of the filters: the store's, so that they tell nobody an id */
    int64_t keep_ms;         /* > 0 */
    uint64_t max_bytes, spare_bytes; /* @spare_bytes of the disk stay free */
};
/* Blocks: reads the names and sizes of the files. */
enum bh_err journal_disk_open(const struct journal_disk_env *env, struct journal_disk **ret,
                              char *ret_why) BH_MUST_USE;
/* Writes what is left.  Searches under way find nothing any more: their callbacks do not run.
 * NULL is fine. */
void journal_disk_close(struct journal_disk *d);
void journal_disk_set(struct journal_disk *d, int64_t keep_ms, uint64_t max_bytes); /* reload */

struct journal_hit {
    uint64_t pos;
    struct journal_record rec;
};
struct journal_found {              /* borrowed for the call */
    const struct journal_hit *hits; /* events and actions, newest first */
    size_t n_hits;
    const struct journal_hit *steps; /* of the deliveries of these events, oldest first */
    size_t n_steps;
    uint64_t next; /* search on from here: @before; 0: that was everything */
};
typedef void journal_found_cb(void *ctx, const struct journal_found *f);
/* @q is copied.  @before 0: from the newest.  At most JOURNAL_LIMIT hits.  False: too many searches
 * wait, or too many of the tenant that asks; @cb does not run. */
#define JOURNAL_LIMIT 200u
bool journal_disk_find(struct journal_disk *d, const struct journal_query *q, uint64_t before,
                       size_t limit, journal_found_cb *cb, void *ctx) BH_MUST_USE;

struct journal_stats {
    uint64_t bytes, records_bytes; /* on disk now; written since the start */
    uint64_t dropped_blocks, thinned, failed;
};
void journal_disk_stats(struct journal_disk *d, struct journal_stats *ret);

extern const struct eraser journal_eraser; /* ctx is the journal_disk */
