/* progress.h - a bar for what takes its time, on stderr, and only where a person looks. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *what; /* borrowed */
    bool tty;
    int64_t shown_ms; /* when it was last drawn */
};

void progress_begin(struct progress *p, const char *what);
void progress_show(struct progress *p, uint64_t done,
                   uint64_t all);      /* ten times a second at most */
void progress_end(struct progress *p); /* the bar goes away */
