/* file.c - small files and their names.  (file.h has the contract.) */
#include "base/file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/crypto.h"
#include "base/mem.h"

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

bool file_write(int fd, struct str bytes, int64_t at)
{
    while (bytes.n > 0) {
        ssize_t n = at < 0 ? write(fd, bytes.p, bytes.n) : pwrite(fd, bytes.p, bytes.n, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        bytes = str_skip(bytes, (size_t)n);
        at += at < 0 ? 0 : n;
    }
    return true;
}

bool file_put(const char *path, int how, struct str text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | how, 0600);
    bool ok = fd >= 0 && fchmod(fd, 0600) == 0 && file_write(fd, text, 0) && fsync(fd) == 0;

    if (fd >= 0)
        close(fd);
    return ok;
}

void file_name_add(struct buf *out, struct str name)
{
    uint8_t hash[SHA256_BYTES];
    size_t start = out->n;

    for (size_t i = 0; i < name.n; i++) {
        unsigned char c = (unsigned char)name.p[i];
        if (str_has_only(str_make(&c, 1), i == 0 ? "_-" : "_-."))
            buf_add_c(out, (char)c);
        else
            buf_printf(out, "%%%02X", c);
    }
    if (out->n - start <= FILE_NAME_MAX)
        return;
    sha256(name, hash);
    out->n = start + FILE_NAME_MAX - 33;
    buf_add_c(out, '+'); /* stands in no name that was not cut */
    hex_add(out, hash, 16);
}

bool file_sync(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool ok = fd >= 0 && fsync(fd) == 0;

    if (fd >= 0)
        close(fd);
    return ok;
}

bool file_sync_folder_of(const char *path)
{
    char *copy = xstrdup(path);
    bool ok = file_sync(dirname(copy));

    free(copy);
    return ok;
}

uint64_t file_folder_bytes(const char *path)
{
    char *copy = xstrdup(path);
    DIR *d = opendir(dirname(copy));
    uint64_t sum = 0;
    struct stat st;

    free(copy);
    if (d == NULL)
        return 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            sum += (uint64_t)st.st_size;
    closedir(d);
    return sum;
}
