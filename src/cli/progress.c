/* progress.c - see progress.h. */
#include "cli/progress.h"
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { WIDTH = 30, EVERY_MS = 100 };

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void progress_begin(struct progress *p, const char *what)
{
    *p = (struct progress){.what = what, .tty = isatty(STDERR_FILENO) == 1};
}

void progress_show(struct progress *p, uint64_t done, uint64_t all)
{
    int64_t now = now_ms();

    if (!p->tty || now < p->shown_ms + EVERY_MS)
        return;
    p->shown_ms = now;
    unsigned part = all > 0 ? (unsigned)((double)done / (double)all * 100) : 100;
    unsigned filled = part * WIDTH / 100;
    fprintf(stderr, "\r%-24.24s [", p->what);
    for (unsigned i = 0; i < WIDTH; i++)
        fputc(i < filled ? '#' : '.', stderr);
    fprintf(stderr, "] %3u%%", part);
    fflush(stderr);
}

void progress_end(struct progress *p)
{
    if (p->tty && p->shown_ms != 0)
        fputs("\r\033[K", stderr);
}
