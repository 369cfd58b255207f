/* state_dir.c - making sure of the state directory, and the two files that say a server is there.
 */
#include "cli/state_dir.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"

static int make_parents(const char *dir)
{
    char *path = xstrdup(dir);
    int rc = 0;

    for (char *p = path + 1; rc == 0 && *p != '\0'; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        if (mkdir(path, 0755) != 0 && errno != EEXIST)
            rc = errno;
        *p = '/';
    }
    free(path);
    return rc;
}

enum bh_err state_dir_open(const char *dir, char *ret_why)
{
    struct stat st;
    int e = make_parents(dir);

    if (e == 0 && mkdir(dir, 0700) != 0 && errno != EEXIST)
        e = errno;
    if (e == 0 && stat(dir, &st) != 0)
        e = errno;
    if (e != 0) {
        snprintf(ret_why, 256, "state_dir %.160s: %s", dir, strerror(e));
        return BH_REFUSED;
    }
    if (!S_ISDIR(st.st_mode)) {
        snprintf(ret_why, 256, "state_dir %.160s is not a directory", dir);
        return BH_REFUSED;
    }
    if (access(dir, R_OK | W_OK | X_OK) != 0) {
        snprintf(ret_why, 256, "state_dir %.160s cannot be written by this user", dir);
        return BH_REFUSED;
    }
    if ((st.st_mode & 077) != 0)
        log_warn(NULL, "state_dir %s is open to other users: chmod 700 %s", dir, dir);
    return BH_OK;
}

char *state_dir_path(const char *dir, const char *name)
{
    struct buf b = BUF_INIT;

    buf_printf(&b, "%s/%s", dir, name);
    return buf_take(&b);
}

enum bh_err state_dir_write_port(const char *dir, int port, char *ret_why)
{
    char *path = state_dir_path(dir, "port"), text[16];
    int n = snprintf(text, sizeof text, "%d\n", port), fd = -1;
    bool ok = true;

    if (port > 0) {
        fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        ok = fd >= 0 && write(fd, text, (size_t)n) == n;
    }
    if (!ok)
        snprintf(ret_why, 256, "%.160s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    free(path);
    return ok ? BH_OK : BH_REFUSED;
}

void state_dir_forget(const char *dir)
{
    static const char *const names[] = {"admin.sock", "port"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char *path = state_dir_path(dir, names[i]);
        unlink(path);
        free(path);
    }
}
