/* tell.c - design.  (tell.h has the contract.)  No stdio buffers: each line is one write(). */
#include "agent/sleeper/tell.h"
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

int64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

__attribute__((format(printf, 3, 0))) static void write_line(int fd, const char *prefix,
                                                             const char *fmt, va_list args)
{
    char line[2400];
    int n = snprintf(line, sizeof line, "%s", prefix);

    n += vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, args);
    if (n > (int)sizeof line - 2)
        n = sizeof line - 2;
    line[n++] = '\n';
    if (write(fd, line, (size_t)n) < 0)
        return; /* nobody reads it: nothing to do about that */
}

void say(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    write_line(STDOUT_FILENO, "sleeper: ", fmt, args);
    va_end(args);
}

void warn(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    write_line(STDERR_FILENO, "sleeper: ", fmt, args);
    va_end(args);
}

void notify(const char *what)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};

    if (path == NULL || (*path != '/' && *path != '@') || strlen(path) >= sizeof to.sun_path)
        return;
    memcpy(to.sun_path, path, strlen(path));
    if (*path == '@')
        to.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    sendto(fd, what, strlen(what), MSG_NOSIGNAL, (struct sockaddr *)&to,
           (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path)));
    close(fd);
}
