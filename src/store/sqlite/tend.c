/* tend.c - what the write thread does beside its batches: delete settled rows, and look whether
 * writing works again. */
#include "store/sqlite/impl.h"

int64_t tend_due_us(struct store *base)
{
    const struct store_sqlite *st = sqlite_of(base);
    int64_t now = worker_now_us(), due = 0;

    if (st->acked.n > 0)
        due = now + PURGE_QUIET_MS * 1000;
    if (due != 0 && due < st->acked.retry_us)
        due = st->acked.retry_us;
    bool look = !worker_is_healthy(&st->worker) || st->space.state != SPACE_ROOMY;
    if (look && (due == 0 || due > now + PROBE_MS * 1000))
        due = now + PROBE_MS * 1000;
    return due;
}

static bool purge_some(struct store_sqlite *st, size_t max_rows)
{
    pthread_mutex_lock(&st->db_lock);
    bool ok = acked_purge(st, max_rows);
    pthread_mutex_unlock(&st->db_lock);
    st->acked.retry_us = ok ? 0 : worker_now_us() + PURGE_RETRY_MS * 1000;
    return ok;
}

/* Delete settled rows: slice by slice while it is quiet, else as many as have to go now. */
static void tend_acked(struct store_sqlite *st, bool quiet)
{
    struct acked *a = &st->acked;
    int64_t now = worker_now_us();

    if (a->n == 0)
        a->since_us = 0;
    else if (a->since_us == 0)
        a->since_us = now;
    if (a->n == 0 || now < a->retry_us)
        return;
    if (quiet) {
        size_t before = SIZE_MAX;
        while (a->n > 0 && a->n < before && !worker_has_work(&st->worker)) {
            before = a->n;
            if (!purge_some(st, PURGE_ROWS))
                break;
        }
    } else if (a->n >= PURGE_BACKLOG || now - a->since_us > PURGE_LATE_MS * 1000) {
        if (a->plan == NULL)
            a->since_us = now; /* those that come from now on wait for the next purge */
        purge_some(st, a->n / 16 > PURGE_ROWS ? a->n / 16 : PURGE_ROWS);
    }
}

/* Nobody may submit a write while we are ill: gateways are told to come back later, and so may be
 * platforms, by whoever asks /readyz. */
static void probe(struct store_sqlite *st)
{
    struct store_stats counts = {0};

    if (worker_is_healthy(&st->worker))
        return;
    pthread_mutex_lock(&st->db_lock);
    counts.commits = batch_probe(st);
    memcpy(counts.problem, st->batch_problem, sizeof counts.problem);
    pthread_mutex_unlock(&st->db_lock);
    worker_count(&st->worker, &counts);
}

/* Free pages go back to the disk while it is quiet: when room is short, or most of the file is
 * free.  True: there is more to do. */
static bool vacuum_some(struct store_sqlite *st)
{
    int64_t pages = 0, before = 0, after = 0;

    if (!sql_one_int(&st->main, "PRAGMA freelist_count", &before) || before == 0 ||
        !sql_one_int(&st->main, "PRAGMA page_count", &pages) ||
        (st->space.state == SPACE_ROOMY && (before < VACUUM_PAGES || before < pages / 2)))
        return false;
    sqlite3_exec(st->main.db, "PRAGMA incremental_vacuum(512)", NULL, NULL, NULL);
    return sql_one_int(&st->main, "PRAGMA freelist_count", &after) && after < before;
}

static void tend_space(struct store_sqlite *st, bool quiet)
{
    bool more = quiet, any = false;

    while (more && !worker_has_work(&st->worker)) {
        pthread_mutex_lock(&st->db_lock);
        more = vacuum_some(st);
        pthread_mutex_unlock(&st->db_lock);
        any |= more;
    }
    pthread_mutex_lock(&st->db_lock);
    if (any) /* the file gets smaller when the log is written back */
        sqlite3_wal_checkpoint_v2(st->main.db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    space_look(st, any);
    space_tell(st);
    pthread_mutex_unlock(&st->db_lock);
}

void tend(struct store *base, bool quiet)
{
    struct store_sqlite *st = sqlite_of(base);

    if (quiet)
        probe(st);
    tend_acked(st, quiet);
    tend_space(st, quiet);
}
