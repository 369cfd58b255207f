/* spill.h - text that may grow long: in memory at first, then in a file without a name.
 *
 * Whoever writes a list looks after each item whether it is time to spill; whoever hands it on
 * sends the file a block at a time, so that a list of any length costs a quarter of a megabyte.
 * The file has no name and goes with its last descriptor. */
#pragma once
#include "base/buf.h"

enum { SPILL_BYTES = 256 * 1024 }; /* from here on it pays */

struct spill {
    int fd; /* owned; -1: nothing was spilled */
    uint64_t bytes;
};
#define SPILL_INIT \
    { \
        .fd = -1 \
    }

/* Move what @b holds to the end of the file, which is made in the folder @dir at first; @b is empty
 * then.  False: errno says why (EFBIG: it would be longer than @max_bytes), @b is as it was. */
bool spill_add(struct spill *s, const char *dir, uint64_t max_bytes, struct buf *b);
/* Forget it all; the spill can be used again. */
void spill_done(struct spill *s);
