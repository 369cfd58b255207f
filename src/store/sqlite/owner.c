/* owner.c - leases of the embedded store.
 *
 * One process has the database, so they are kept in memory and written through; their time is the
 * wall clock, which is all that two lives of this process have in common. */
#include "store/sqlite/impl.h"
#include <time.h>

static int64_t wall_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void load_row(struct store_sqlite *st, sqlite3_stmt *q)
{
    struct lease_row *row = leases_row(&st->leases, sql_bytes(q, 0));
    struct str owner = sql_bytes(q, 1);

    memset(row->owner, 0, sizeof row->owner);
    memcpy(row->owner, owner.p, owner.n < sizeof row->owner ? owner.n : sizeof row->owner - 1);
    row->epoch = (uint64_t)sqlite3_column_int64(q, 2);
    row->until_ms = sqlite3_column_int64(q, 3);
    row->under = sqlite3_column_type(q, 4) != SQLITE_NULL ? str_dup(sql_bytes(q, 4)) : NULL;
    row->under_epoch = (uint64_t)sqlite3_column_int64(q, 5);
}

bool owner_load(struct store_sqlite *st)
{
    sqlite3_stmt *q = st->main.sql[SQL_LEASE_LOAD];
    int rc;

    leases_done(&st->leases);
    st->leases = LEASES_INIT;
    while ((rc = sqlite3_step(q)) == SQLITE_ROW)
        load_row(st, q);
    sqlite3_reset(q);
    return rc == SQLITE_DONE;
}

static int write_row(struct store_sqlite *st, const struct lease_row *row)
{
    sqlite3_stmt *q = st->main.sql[SQL_LEASE_PUT];

    sqlite3_bind_text(q, 1, row->name, -1, SQLITE_STATIC);
    sqlite3_bind_text(q, 2, row->owner, -1, SQLITE_STATIC);
    sqlite3_bind_int64(q, 3, (int64_t)row->epoch);
    sqlite3_bind_int64(q, 4, row->until_ms);
    sqlite3_bind_text(q, 5, row->under, -1, SQLITE_STATIC); /* NULL stays NULL */
    sqlite3_bind_int64(q, 6, (int64_t)row->under_epoch);
    return sql_run(&st->main, SQL_LEASE_PUT);
}

int owner_run(struct store_sqlite *st, struct store_lease *l)
{
    const struct lease_row *changed;

    l->op.err = (uint8_t)leases_run(&st->leases, l, wall_ms(), &changed);
    return changed != NULL ? write_row(st, changed) : SQLITE_OK;
}

bool owner_may(struct store_sqlite *st, struct store_op *op)
{
    const struct store_fence *f = store_fence_of(op);

    if (f == NULL || f->epoch == 0 || leases_hold(&st->leases, f, wall_ms()))
        return true;
    op->err = BH_FENCED;
    return false;
}
