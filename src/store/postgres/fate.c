/* fate.c - finds out, on a connection of its own, whether a commit without an answer happened. */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include "base/rand.h"
#include "store/postgres/impl.h"

void pg_mark_next(struct pg_mark *m)
{
    struct rand r = RAND_SYSTEM;

    if (m->writer == 0)
        m->writer = (int64_t)(rand_u64(&r) >> 1) + 1;
    m->n++;
    m->xact[0] = '\0';
}

void pg_mark_read(struct pg_mark *m, const PGresult *r)
{
    snprintf(m->xact, sizeof m->xact, "%.*s", STR_FMT(column_bytes(r, 0, 0)));
}

/* False: the connection was lost.  @ret is empty when there is no row, or the server
 * refused @sql. */
static bool ask_word(struct pg_line *l, const char *sql, char ret[32])
{
    line_begin(l, LINE_OPEN_MS);
    line_word(l, sql, ret, 32);
    return l->pg != NULL;
}

/* Two queries: the second one sees every transaction that had ended when the first was answered.  A
 * transaction id that the server does not know was lost in a crash of the server, so that
 * transaction has ended too. */
static enum pg_fate ask_fate(struct pg_line *l, const struct pg_mark *m)
{
    char sql[128], word[32], mine[32];

    snprintf(sql, sizeof sql, "SELECT pg_xact_status('%.30s'::xid8)", m->xact);
    if (!ask_word(l, sql, word) || strcmp(word, "in progress") == 0)
        return FATE_OPEN;
    snprintf(sql, sizeof sql, "SELECT coalesce(max(n), 0)::text FROM fate WHERE writer = %" PRId64,
             m->writer);
    if (!ask_word(l, sql, word) || word[0] == '\0')
        return FATE_OPEN;
    snprintf(mine, sizeof mine, "%" PRId64, m->n);
    return strcmp(word, mine) == 0 ? FATE_DONE : FATE_UNDONE;
}

/* Repeats the query while the server still runs the transaction in its old session. */
enum pg_fate pg_find_fate(const char *url, const struct pg_mark *m, int64_t ms)
{
    int64_t until = thread_now_us() + ms * 1000;
    enum pg_fate fate = FATE_OPEN;
    struct pg_line l = {0};

    for (;;) {
        l.retry_us = 0;
        fate = line_open(&l, url, LINE_PLAIN) ? ask_fate(&l, m) : FATE_OPEN;
        if (fate != FATE_OPEN || thread_now_us() >= until)
            break;
        struct timespec pause = {.tv_nsec = 50 * 1000000};
        nanosleep(&pause, NULL);
    }
    line_close(&l);
    return fate == FATE_OPEN ? FATE_UNKNOWN : fate;
}
