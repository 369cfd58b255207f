/* spill.h - text that may grow long: in memory at first, then in a file without a name.
 *
 * A caller that writes a list checks after each item whether to spill, and sends the file a block
 * at a time.  So a list of any length costs a quarter of a megabyte of memory.  The file has no
 * name and is freed with its last descriptor. */
#pragma once
#include "base/buf.h"

enum { SPILL_BYTES = 256 * 1024 }; /* spill beyond this */

struct spill {
    int fd; /* owned; -1: nothing was spilled */
    uint64_t bytes;
};
#define SPILL_INIT \
    { \
        .fd = -1 \
    }

/* Moves the contents of @b to the end of the file; the first call creates the file in the folder
 * @dir.  False: errno says why (EFBIG: longer than @max_bytes), and @b is unchanged. */
bool spill_add(struct spill *s, const char *dir, uint64_t max_bytes, struct buf *b);
/* Drops the contents; the spill can be used again. */
void spill_done(struct spill *s);
