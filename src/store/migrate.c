/* migrate.c - design.  (migrate.h has the contract.)
 *
 * A file is filled in one transaction, and an unfinished file is thrown away.  PostgreSQL is filled
 * batch by batch.  From the first transaction to the last its table `meta` has a mark: the source,
 * and how many rows of each table are copied.  A server does not start on tables with that mark.  A
 * resumed migration reads the source from the beginning and skips the rows that the target has: a
 * count of rows is a cursor that fits every table. */
#include "store/migrate.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/crypto.h"
#include "base/file.h"
#include "base/mem.h"

const struct transfer_table migrate_tables[N_MIGRATED] = {
    [MIGRATED_RECORDS] = {"records", "tbb"},
    [MIGRATED_ROWS] = {"messages", "iiiiiitb"},
    [MIGRATED_SEEN] = {"deduplication records", "bi"},
};

struct migration {
    struct transfer t;
    uint8_t key[16]; /* the identity of the source, with the next one */
    int64_t boot;
    char source[64];            /* the same as text */
    uint64_t there[N_MIGRATED]; /* rows that the target has */
    uint64_t resumed;           /* of them, those that it had at first */
    int64_t *settled;           /* owned */
    int lock;                   /* of the file; -1: none */
};

static bool ask(struct migration *m, const struct transfer_end *e, unsigned statement)
{
    return sqldb_ask(e->s, statement) || transfer_failed(&m->t, e);
}

static bool read_identity(struct migration *m)
{
    const struct transfer_end *from = &m->t.from;

    if (!ask(m, from, MIGRATE_IDENTITY))
        return false;
    if (!sqldb_next(from->s) || sqldb_get_str(from->s, 0).n != sizeof m->key)
        return bh_why(m->t.why, "the source has no deduplication key: it is damaged");
    memcpy(m->key, sqldb_get_str(from->s, 0).p, sizeof m->key);
    m->boot = sqldb_get_int(from->s, 1);
    BUF_LOCAL hex = BUF_INIT;
    hex_add(&hex, m->key, sizeof m->key);
    snprintf(m->source, sizeof m->source, "%s-%lld", buf_z(&hex), (long long)m->boot);
    return true;
}

/* ---- the mark ---- */

static bool write_mark(struct migration *m)
{
    char mark[160];

    snprintf(mark, sizeof mark, "%s %llu %llu %llu", m->source, (unsigned long long)m->there[0],
             (unsigned long long)m->there[1], (unsigned long long)m->there[2]);
    sqldb_text(m->t.to.s, str_of(mark));
    return ask(m, &m->t.to, MIGRATE_MARK_SET);
}

static bool commit_and_go_on(struct migration *m)
{
    struct sqldb *s = m->t.to.s;

    return (sqldb_commit(s) && sqldb_begin(s, true)) || transfer_failed(&m->t, &m->t.to);
}

static bool on_wrote(struct transfer *t, size_t table, uint64_t done)
{
    struct migration *m = container_of(t, struct migration, t);

    m->there[table] = done;
    return write_mark(m) && commit_and_go_on(m);
}

/* An empty PostgreSQL gets a mark; one that has the mark of this source is gone on with. */
static bool begin_server(struct migration *m)
{
    struct sqldb *s = m->t.to.s;
    unsigned long long n[N_MIGRATED] = {0};
    char there[64] = "";

    m->t.wrote = on_wrote;
    if (!ask(m, &m->t.to, MIGRATE_MARK))
        return false;
    if (sqldb_next(s)) {
        BUF_LOCAL mark = BUF_INIT;
        buf_add_str(&mark, sqldb_get_str(s, 0));
        sscanf(buf_z(&mark), "%63s %llu %llu %llu", there, &n[0], &n[1], &n[2]);
        if (strcmp(there, m->source) != 0)
            return bh_why(m->t.why,
                          "another move into this PostgreSQL was begun, or the server ran since "
                          "it was: empty it (DROP SCHEMA bellhop CASCADE) and begin again");
        for (int i = 0; i < N_MIGRATED; i++)
            m->resumed += m->there[i] = n[i];
        return true;
    }
    if (!ask(m, &m->t.to, MIGRATE_IS_USED))
        return false;
    if (sqldb_next(s))
        return bh_why(m->t.why,
                      "the tables in PostgreSQL are in use already: move into an empty database, "
                      "or empty this one (DROP SCHEMA bellhop CASCADE)");
    return ask(m, &m->t.to, MIGRATE_CLEAR) && write_mark(m) && commit_and_go_on(m);
}

/* ---- the whole ---- */

static bool migrate(struct migration *m)
{
    struct transfer *t = &m->t;

    if (!sqldb_begin(t->from.s, false) || !read_identity(m))
        return transfer_failed(t, &t->from);
    if (!t->from.server) {
        if (!migrate_settled(t->from.s, &m->settled, &t->from.n_hidden))
            return transfer_failed(t, &t->from);
        t->from.hidden = m->settled;
    }
    if (!sqldb_begin(t->to.s, true))
        return transfer_failed(t, &t->to);
    if (!(t->to.server ? begin_server(m) : ask(m, &t->to, MIGRATE_CLEAR)) || !transfer_count(t))
        return false;
    for (size_t i = 0; i < N_MIGRATED; i++)
        if (!transfer_copy(t, i, m->there[i]))
            return false;
    if (!transfer_compare(t))
        return false;
    sqldb_int(t->to.s, m->boot);
    sqldb_blob(t->to.s, str_make(m->key, sizeof m->key));
    return ask(m, &t->to, MIGRATE_FINISH) && (sqldb_commit(t->to.s) || transfer_failed(t, &t->to));
}

/* Closes both ends.  NULL: one could not be opened, and @ret_why says why. */
static enum bh_err run(struct migration *m, struct migrated *ret)
{
    bool opened = m->t.from.s != NULL && m->t.to.s != NULL;

    *ret = (struct migrated){0};
    if (opened)
        m->t.why[0] = '\0';
    bool ok = opened && migrate(m);
    if (ok)
        memcpy(ret->n, m->t.n, sizeof ret->n);
    ret->resumed = m->resumed;
    if (m->t.stopped)
        snprintf(m->t.why, 256, "stopped");
    sqldb_close(m->t.to.s);
    sqldb_close(m->t.from.s);
    if (m->lock >= 0)
        close(m->lock);
    free(m->settled);
    return ok ? BH_OK : m->t.stopped ? BH_CANCELLED : BH_UNAVAILABLE;
}

static struct migration begin(transfer_cb *each, void *ctx, char *ret_why)
{
    return (struct migration){.t = {.tables = migrate_tables,
                                    .n_tables = N_MIGRATED,
                                    .each = each,
                                    .ctx = ctx,
                                    .why = ret_why},
                              .lock = -1};
}

enum bh_err store_migrate_in(const char *db, const char *url, transfer_cb *each, void *ctx,
                             struct migrated *ret, char *ret_why)
{
    struct migration m = begin(each, ctx, ret_why);

    m.t.to.server = true;
    m.t.from.s = migrate_open_file(db, false, &m.lock, ret_why);
    if (m.t.from.s != NULL)
        m.t.to.s = migrate_open_server(url, ret_why);
    return run(&m, ret);
}

enum bh_err store_migrate_out(const char *url, const char *db, transfer_cb *each, void *ctx,
                              struct migrated *ret, char *ret_why)
{
    struct migration m = begin(each, ctx, ret_why);
    BUF_LOCAL part = BUF_INIT;

    if (access(db, F_OK) == 0)
        return bh_err_why(BH_CONFLICT, ret_why, "%.180s exists already: move it away first", db);
    buf_printf(&part, "%s.part", db);
    m.t.from.server = true;
    m.t.from.s = migrate_open_server(url, ret_why);
    if (m.t.from.s != NULL)
        m.t.to.s = migrate_open_file(buf_z(&part), true, &m.lock, ret_why);
    enum bh_err err = run(&m, ret);
    BUF_LOCAL log = BUF_INIT; /* closing the file wrote it back */
    buf_printf(&log, "%s-wal", buf_z(&part));
    if (err == BH_OK && access(buf_z(&log), F_OK) == 0)
        err = bh_err_why(BH_UNAVAILABLE, ret_why, "cannot finish %.180s", buf_z(&part));
    if (err == BH_OK && (rename(buf_z(&part), db) != 0 || !file_sync_folder_of(db)))
        err = bh_err_why(BH_UNAVAILABLE, ret_why, "cannot name it %.180s", db);
    return err;
}
