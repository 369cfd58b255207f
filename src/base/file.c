/* file.c - small files, read whole.  (file.h has the contract.) */
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

bool file_read(const char *path, size_t max_bytes, struct buf *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), err = 0;
    ssize_t n = 1;

    if (fd < 0)
        return false;
    while (err == 0 && n != 0) {
        char *room = buf_room(out, 4096);
        n = room != NULL ? read(fd, room, 4096) : -1;
        if (n > 0)
            out->n += (size_t)n;
        else if (n < 0 && (room == NULL || errno != EINTR))
            err = room == NULL ? EFBIG : errno;
        if (out->n > max_bytes)
            err = EFBIG;
    }
    close(fd);
    errno = err;
    return err == 0;
}
