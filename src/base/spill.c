/* spill.c - design.  (spill.h has the contract.)
 *
 * O_TMPFILE where the file system has it; elsewhere a name that is removed at once. */
#include "base/spill.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/file.h"

static int nameless(const char *dir)
{
    char path[4096];
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return fd;
    if ((size_t)snprintf(path, sizeof path, "%s/.spill-XXXXXX", dir) >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    return fd;
}

bool spill_add(struct spill *s, const char *dir, uint64_t max_bytes, struct buf *b)
{
    if (s->bytes + b->n > max_bytes) {
        errno = EFBIG;
        return false;
    }
    if (s->fd < 0)
        s->fd = nameless(dir);
    if (s->fd < 0 || !file_write(s->fd, buf_str(b), (int64_t)s->bytes))
        return false;
    s->bytes += b->n;
    buf_reset(b);
    return true;
}

void spill_done(struct spill *s)
{
    if (s->fd >= 0)
        close(s->fd);
    *s = (struct spill)SPILL_INIT;
}
