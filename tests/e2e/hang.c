/* hang.c - a disk that hangs: loaded before bellhop, it keeps every sync waiting while a file is
 * there.
 *
 * HANG names the file.  Built by the test that needs it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static void wait_for_the_disk(void)
{
    const char *file = getenv("HANG");

    while (file != NULL && access(file, F_OK) == 0)
        usleep(20000);
}

int fsync(int fd)
{
    wait_for_the_disk();
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    return real(fd);
}

int fdatasync(int fd)
{
    wait_for_the_disk();
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    return real(fd);
}
