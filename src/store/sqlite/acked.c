/* acked.c - hides settled rows from reads, and deletes them later in bulk.
 *
 * Rows lie in order of arrival, and an agent that wakes up acks every hundredth of them: deleting
 * at once would rewrite every page of the backlog once per agent, 11 us a row.  So an ack is an
 * entry in a log (table acked: one row per transaction, the ids one behind the other) and an entry
 * in a set in memory, which hides the row from every read.  Later the rows are purged in their own
 * order, when neighbours go together: 1.5 us a row, at a time when nobody waits.
 *
 *      ack --commit--> LOGGED, hidden --purge slice--> deleted   (several slices, in order of id)
 *                                     '--after the last slice: the log up to its end goes too
 *
 * Reads run beside this on a snapshot of their own.  A row is hidden from a read when the log row
 * that settles it is in the read's snapshot: so a read sees a transaction whole, its acks too.  And
 * an id leaves the set only when no read is left whose snapshot still has the row.
 *
 * After a crash acked_recover() deletes the rows that the log names, before the first read. */
#include "store/sqlite/impl.h"
#include <assert.h>
#include <endian.h>
#include <stdlib.h>
#include "base/mem.h"

enum { FIRST_CAP = 1024 };

void acked_init(struct acked *a)
{
    *a = (struct acked){0};
    pthread_mutex_init(&a->lock, NULL);
}

/* ---- the set: linear probing, at most half full; 0 is no id.  Changed holding the lock. ---- */

static size_t home_of(const struct acked *a, uint64_t id)
{
    return (size_t)((id * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (a->cap - 1);
}

static size_t place_of(const struct acked *a, uint64_t id) /* where it is, or would be */
{
    size_t at = home_of(a, id);

    while (a->set[at].id != 0 && a->set[at].id != id)
        at = (at + 1) & (a->cap - 1);
    return at;
}

static void set_grow(struct acked *a)
{
    struct settled *old = a->set;
    size_t old_cap = a->cap;

    a->cap = old_cap != 0 ? old_cap * 2 : FIRST_CAP;
    a->set = xcalloc(a->cap, sizeof *a->set);
    for (size_t i = 0; i < old_cap; i++)
        if (old[i].id != 0)
            a->set[place_of(a, old[i].id)] = old[i];
    free(old);
}

static bool set_add(struct acked *a, uint64_t id, int64_t log) /* false: it was there */
{
    if ((a->n + 1) * 2 > a->cap)
        set_grow(a);
    size_t at = place_of(a, id);
    if (a->set[at].id == id)
        return false;
    a->set[at] = (struct settled){id, log};
    a->n++;
    return true;
}

/* Whatever was pushed past its home by the one that goes moves back. */
static void set_remove(struct acked *a, uint64_t id)
{
    size_t gap = a->cap != 0 ? place_of(a, id) : 0;

    if (a->cap == 0 || a->set[gap].id == 0)
        return;
    for (size_t at = (gap + 1) & (a->cap - 1); a->set[at].id != 0; at = (at + 1) & (a->cap - 1)) {
        size_t home = home_of(a, a->set[at].id);
        if (((at - home) & (a->cap - 1)) >= ((at - gap) & (a->cap - 1))) {
            a->set[gap] = a->set[at];
            gap = at;
        }
    }
    a->set[gap].id = 0;
    a->n--;
}

bool acked_has(const struct acked *a, uint64_t id)
{
    return a->n > 0 && a->set[place_of(a, id)].id == id;
}

/* ---- the read thread ---- */

void acked_read_begin(struct acked *a)
{
    pthread_mutex_lock(&a->lock);
    a->reads++;
    a->reading = true;
    pthread_mutex_unlock(&a->lock);
}

void acked_read_end(struct acked *a)
{
    pthread_mutex_lock(&a->lock);
    a->reading = false;
    pthread_mutex_unlock(&a->lock);
}

/* Holding the lock. */
static bool hides(const struct acked *a, uint64_t id, int64_t log_end)
{
    const struct settled *s = a->n > 0 ? &a->set[place_of(a, id)] : NULL;

    return s != NULL && s->id == id && s->log <= log_end;
}

bool acked_hides(struct acked *a, uint64_t id, int64_t log_end)
{
    pthread_mutex_lock(&a->lock);
    bool yes = hides(a, id, log_end);
    pthread_mutex_unlock(&a->lock);
    return yes;
}

void acked_hide(struct acked *a, struct fetch_wish *wishes, size_t n, int64_t log_end)
{
    pthread_mutex_lock(&a->lock);
    for (size_t i = 0; i < n; i++)
        if (hides(a, wishes[i].id, log_end))
            wishes[i].id = 0;
    pthread_mutex_unlock(&a->lock);
}

/* ---- inside a batch ---- */

void acked_add(struct acked *a, uint64_t id)
{
    uint64_t bytes = htole64(id);

    if (id == 0)
        return;
    pthread_mutex_lock(&a->lock);
    if (set_add(a, id, a->log_end + 1))
        buf_add(&a->batch, &bytes, sizeof bytes);
    pthread_mutex_unlock(&a->lock);
}

int acked_write(struct store_sqlite *st)
{
    sqlite3_stmt *q = st->main.sql[SQL_ACKED_ADD];

    if (st->acked.batch.n == 0)
        return SQLITE_OK;
    sqlite3_bind_int64(q, 1, st->acked.log_end + 1);
    sql_bind_bytes(q, 2, buf_str(&st->acked.batch));
    return sql_run(&st->main, SQL_ACKED_ADD);
}

void acked_batch_end(struct acked *a, bool committed)
{
    uint64_t id;

    if (a->batch.n == 0)
        return;
    a->log_end++; /* a number that was rolled back is not used again */
    pthread_mutex_lock(&a->lock);
    for (size_t at = 0; !committed && at + sizeof id <= a->batch.n; at += sizeof id) {
        memcpy(&id, a->batch.p + at, sizeof id);
        set_remove(a, le64toh(id));
    }
    pthread_mutex_unlock(&a->lock);
    buf_reset(&a->batch);
}

/* ---- purging ---- */

static int by_id(const void *x, const void *y)
{
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return (a > b) - (a < b);
}

/* Everything acked until now, in order; what is acked later waits for the next time. */
static void purge_plan(struct acked *a)
{
    a->plan = xmalloc(a->n * sizeof *a->plan);
    a->plan_n = a->plan_at = a->plan_left = 0;
    for (size_t i = 0; i < a->cap; i++)
        if (a->set[i].id != 0)
            a->plan[a->plan_n++] = a->set[i].id;
    assert(a->plan_n == a->n);
    qsort(a->plan, a->plan_n, sizeof *a->plan, by_id);
    a->plan_log_end = a->log_end;
}

/* What is deleted leaves the set, once the read that began before it was deleted is over. */
static void purge_release(struct acked *a)
{
    pthread_mutex_lock(&a->lock);
    while (a->plan_left < a->plan_at && (!a->reading || a->reads != a->plan_reads))
        set_remove(a, a->plan[a->plan_left++]);
    bool empty = a->n == 0;
    if (empty) {
        free(a->set);
        a->set = NULL;
        a->cap = 0;
    }
    pthread_mutex_unlock(&a->lock);
    if (a->plan_left < a->plan_n)
        return;
    free(a->plan);
    a->plan = NULL;
}

/* Each run of consecutive ids is one statement. */
static int delete_runs(struct store_sqlite *st, const uint64_t *ids, size_t n)
{
    sqlite3_stmt *q = st->main.sql[SQL_PURGE_RUN];
    int rc = SQLITE_OK;

    for (size_t i = 0; i < n && rc == SQLITE_OK;) {
        size_t end = i + 1;
        while (end < n && ids[end] == ids[end - 1] + 1)
            end++;
        sqlite3_bind_int64(q, 1, (int64_t)ids[i]);
        sqlite3_bind_int64(q, 2, (int64_t)ids[end - 1]);
        rc = sql_run(&st->main, SQL_PURGE_RUN);
        i = end;
    }
    return rc;
}

static int purge_transaction(struct store_sqlite *st, size_t n)
{
    struct acked *a = &st->acked;
    int rc = sql_run(&st->main, SQL_BEGIN_WRITE);

    if (rc == SQLITE_OK)
        rc = delete_runs(st, a->plan + a->plan_at, n);
    if (rc == SQLITE_OK && a->plan_at + n == a->plan_n) {
        sqlite3_bind_int64(st->main.sql[SQL_ACKED_FORGET], 1, a->plan_log_end);
        rc = sql_run(&st->main, SQL_ACKED_FORGET);
    }
    if (rc == SQLITE_OK)
        rc = sql_run(&st->main, SQL_COMMIT);
    if (rc != SQLITE_OK && !sqlite3_get_autocommit(st->main.db))
        sqlite3_exec(st->main.db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

bool acked_purge(struct store_sqlite *st, size_t max_rows)
{
    struct acked *a = &st->acked;

    if (a->plan == NULL) {
        if (a->n == 0)
            return true;
        purge_plan(a);
    }
    size_t n = a->plan_n - a->plan_at < max_rows ? a->plan_n - a->plan_at : max_rows;
    if (n > 0 && purge_transaction(st, n) != SQLITE_OK) {
        log_debug(&st->log, "deleting settled rows: %s; tried again later",
                  sqlite3_errmsg(st->main.db));
        return false;
    }
    a->plan_at += n;
    if (n > 0) {
        pthread_mutex_lock(&a->lock);
        a->plan_reads = a->reads;
        pthread_mutex_unlock(&a->lock);
    }
    purge_release(a);
    return true;
}

/* ---- start and end ---- */

static void recover_ids(struct acked *a, struct str ids, int64_t log)
{
    uint64_t id;

    for (; ids.n >= sizeof id; ids = str_skip(ids, sizeof id)) {
        memcpy(&id, ids.p, sizeof id);
        if (le64toh(id) != 0)
            set_add(a, le64toh(id), log);
    }
}

bool acked_recover(struct store_sqlite *st)
{
    sqlite3_stmt *q = st->main.sql[SQL_ACKED_LOAD];
    int rc;

    while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
        st->acked.log_end = sqlite3_column_int64(q, 0);
        recover_ids(&st->acked, sql_bytes(q, 1), st->acked.log_end);
    }
    sqlite3_reset(q);
    if (rc != SQLITE_DONE)
        return false;
    acked_purge(st, SIZE_MAX); /* where it fails, the rows stay hidden: again later */
    return true;
}

void acked_done(struct acked *a)
{
    buf_done(&a->batch);
    free(a->set);
    free(a->plan);
    pthread_mutex_destroy(&a->lock);
}
