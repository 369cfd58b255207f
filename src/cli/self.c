/* self.c - see self.h. */
#include "cli/self.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/err.h"
#include "base/launch.h"

#define MAX_OUTPUT 65536

bool self_start(const char *const *args, int err, pid_t *ret_pid, int *ret_out, char *ret_why)
{
    char self[4096], *argv[16] = {self};
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    int out[2];

    self[n > 0 ? n : 0] = '\0';
    for (size_t i = 0; i < 14 && args[i] != NULL; i++)
        argv[i + 1] = (char *)(uintptr_t)args[i];
    if (pipe2(out, O_CLOEXEC) < 0)
        return bh_why(ret_why, "no pipe: %s", strerror(errno));
    int rc = launch(argv, environ, (int[]){-1, out[1], err}, ret_pid);
    close(out[1]);
    *ret_out = out[0];
    if (rc != 0)
        close(out[0]);
    return rc == 0 || bh_why(ret_why, "%.200s: %s", self, strerror(rc));
}

bool self_read(int fd, bool line, struct buf *out)
{
    char bytes[1024];
    ssize_t n = 1;

    while (n != 0 && out->n < MAX_OUTPUT && !(line && str_find(buf_str(out), '\n') >= 0)) {
        n = read(fd, bytes, sizeof bytes);
        if (n < 0 && errno != EINTR)
            return false;
        if (n > 0)
            buf_add(out, bytes, (size_t)n);
    }
    return !line || str_find(buf_str(out), '\n') >= 0;
}

static bool wait_for(pid_t pid)
{
    int status = 1;

    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status == 0;
}

bool self_run(const char *const *args, struct buf *out, char *ret_why)
{
    int fd = -1, null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    pid_t pid = -1;
    bool started = self_start(args, null, &pid, &fd, ret_why);

    if (null >= 0)
        close(null);
    if (!started)
        return false;
    self_read(fd, false, out);
    close(fd);
    return wait_for(pid) || bh_why(ret_why, "`bellhop %s` failed", args[0]);
}

void self_end(pid_t pid)
{
    kill(pid, SIGTERM);
    wait_for(pid);
}
