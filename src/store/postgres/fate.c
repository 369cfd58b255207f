/* fate.c - a commit whose answer was lost: did it happen?  Asked on a line of its own. */
#include <stdio.h>
#include <time.h>
#include "store/postgres/impl.h"

static enum pg_fate ask_fate(struct pg_line *l, const char *xact)
{
    enum pg_fate fate = FATE_UNKNOWN;
    char sql[96];
    PGresult *r = NULL;

    snprintf(sql, sizeof sql, "SELECT pg_xact_status('%.30s'::xid8)", xact);
    line_begin(l, LINE_OPEN_MS);
    if (line_text(l, sql, &r) != LINE_OK || r == NULL)
        return FATE_OPEN;
    struct str says = PQntuples(r) > 0 ? column_bytes(r, 0, 0) : STR_NULL;
    fate = str_eq(says, STR("committed"))     ? FATE_DONE
           : str_eq(says, STR("aborted"))     ? FATE_UNDONE
           : str_eq(says, STR("in progress")) ? FATE_OPEN
                                              : FATE_UNKNOWN;
    PQclear(r);
    return fate;
}

/* The old session may still be at it: then ask again. */
enum pg_fate pg_find_fate(const char *url, const char *xact)
{
    int64_t until = worker_now_us() + COMMIT_LOOKUP_MS * 1000;
    enum pg_fate fate = FATE_OPEN;
    struct pg_line l = {0};

    for (;;) {
        l.retry_us = 0;
        fate = line_open(&l, url, LINE_PLAIN) ? ask_fate(&l, xact) : FATE_OPEN;
        if (fate != FATE_OPEN || worker_now_us() >= until)
            break;
        struct timespec pause = {.tv_nsec = 50 * 1000000};
        nanosleep(&pause, NULL);
    }
    line_close(&l);
    return fate == FATE_OPEN ? FATE_UNKNOWN : fate;
}
