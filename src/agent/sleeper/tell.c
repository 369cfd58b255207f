/* tell.c - design.  (tell.h has the contract.)  No stdio buffers: each line is one write(). */
#include "agent/sleeper/tell.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
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
