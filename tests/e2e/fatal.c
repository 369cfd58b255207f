/* fatal.c - a process that is killed at one of its steps to disk, for LD_PRELOAD.
 *
 * FATAL_AT says which: of all calls that change a file or its name, so many happen.  Built by
 * test_backup.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void step(void)
{
    static _Atomic int steps;
    const char *at = getenv("FATAL_AT");

    if (at != NULL && atomic_fetch_add(&steps, 1) == atoi(at))
        kill(getpid(), SIGKILL);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pwrite64(int fd, const void *p, size_t n, off64_t at)
{
    step();
    return NEXT(pwrite64)(fd, p, n, at);
}
int fdatasync(int fd)
{
    step();
    return NEXT(fdatasync)(fd);
}
int fsync(int fd)
{
    step();
    return NEXT(fsync)(fd);
}
int rename(const char *from, const char *to)
{
    step();
    return NEXT(rename)(from, to);
}
int link(const char *from, const char *to)
{
    step();
    return NEXT(link)(from, to);
}
int unlink(const char *path)
{
    step();
    return NEXT(unlink)(path);
}
