/* scarce.c - a machine that has run out of something, for LD_PRELOAD.
 *
 * The file SCARCE_FILE, mapped and shared with the test, says which calls fail, with what, and how
 * many of them are let pass first.  Built by test_scarce.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SOCKET, ACCEPT, OPEN, EVENTFD, PIPE, EPOLL, THREAD, MAPPING, LIBRARY, N_KINDS };

struct order {              /* as test_scarce.py writes it */
    _Atomic uint32_t kinds; /* bit set of what is scarce */
    _Atomic int32_t error;
    _Atomic int32_t pass;  /* so many calls succeed first */
    _Atomic int32_t times; /* then so many fail; -1: all */
    _Atomic uint32_t failed;
};
static struct order *order;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("SCARCE_FILE");
    int fd = path != NULL ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0) : -1;

    if (fd < 0)
        return;
    order = (struct order *)syscall(SYS_mmap, NULL, sizeof *order, PROT_READ | PROT_WRITE,
                                    MAP_SHARED, fd, 0L);
    syscall(SYS_close, fd);
}

static int fails(int kind)
{
    if (order == NULL || (order->kinds & 1u << kind) == 0)
        return 0;
    if (order->pass > 0) {
        order->pass--;
        return 0;
    }
    if (order->times == 0)
        return 0;
    if (order->times > 0)
        order->times--;
    order->failed++;
    errno = order->error;
    return 1;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int socket(int domain, int type, int protocol)
{
    return fails(SOCKET) ? -1 : (int)syscall(SYS_socket, domain, type, protocol);
}

int accept4(int fd, struct sockaddr *a, socklen_t *n, int flags)
{
    return fails(ACCEPT) ? -1 : (int)syscall(SYS_accept4, fd, a, n, flags);
}

static int do_open(int dir, const char *path, int flags, va_list args)
{
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(args, mode_t) : 0;
    return fails(OPEN) ? -1 : (int)syscall(SYS_openat, dir, path, flags, mode);
}
#define OPEN_LIKE(name, parameters, dir) \
    int name parameters \
    { \
        va_list args; \
        va_start(args, flags); \
        int fd = do_open(dir, path, flags, args); \
        va_end(args); \
        return fd; \
    }
OPEN_LIKE(open, (const char *path, int flags, ...), AT_FDCWD)
OPEN_LIKE(open64, (const char *path, int flags, ...), AT_FDCWD)
OPEN_LIKE(openat, (int at, const char *path, int flags, ...), at)
OPEN_LIKE(openat64, (int at, const char *path, int flags, ...), at)

FILE *fopen(const char *path, const char *mode)
{
    return fails(OPEN) ? NULL : NEXT(fopen)(path, mode);
}

FILE *fopen64(const char *path, const char *mode)
{
    return fails(OPEN) ? NULL : NEXT(fopen)(path, mode);
}

int eventfd(unsigned start, int flags)
{
    return fails(EVENTFD) ? -1 : (int)syscall(SYS_eventfd2, start, flags);
}

int pipe2(int fds[2], int flags)
{
    return fails(PIPE) ? -1 : (int)syscall(SYS_pipe2, fds, flags);
}

int pipe(int fds[2])
{
    return pipe2(fds, 0);
}

int socketpair(int domain, int type, int protocol, int fds[2])
{
    return fails(PIPE) ? -1 : (int)syscall(SYS_socketpair, domain, type, protocol, fds);
}

int epoll_create1(int flags)
{
    return fails(EPOLL) ? -1 : (int)syscall(SYS_epoll_create1, flags);
}

int epoll_create(int size)
{
    (void)size;
    return epoll_create1(0);
}

int pthread_create(pthread_t *id, const pthread_attr_t *attr, void *(*main)(void *), void *ctx)
{
    return fails(THREAD) ? EAGAIN : NEXT(pthread_create)(id, attr, main, ctx);
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    if (n >= 64 * 1024 && (flags & MAP_FIXED) == 0 && fails(MAPPING))
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, n, prot, flags, fd, offset);
}

void *mmap64(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    return mmap(at, n, prot, flags, fd, offset);
}

void *dlopen(const char *path, int flags)
{
    return fails(LIBRARY) ? NULL : NEXT(dlopen)(path, flags);
}
