/* read.c - the reading ops and the loaders of start-up.  Fetches that wait together are answered by
 * one walk over the rows. */
#include "store/sqlite/impl.h"
#include <stdlib.h>

/* All but the frame. */
static struct store_row read_row(sqlite3_stmt *q)
{
    return (struct store_row){
        .id = (uint64_t)sqlite3_column_int64(q, 0),
        .box = (uint32_t)sqlite3_column_int64(q, 1),
        .row_kind = (uint8_t)sqlite3_column_int(q, 2),
        .flags = (uint8_t)sqlite3_column_int(q, 3),
        .at_ms = sqlite3_column_int64(q, 4),
        .attempts = (uint32_t)sqlite3_column_int64(q, 5),
        .parked = sqlite3_column_type(q, 6) != SQLITE_NULL ? sql_bytes(q, 6) : STR_NULL,
    };
}

/* ---- scan ---- */

/* Bind the bound where the scan begins; it ends at the first key without the prefix. */
static sqlite3_stmt *scan_begin(struct store_sqlite *st, const struct store_scan *s)
{
    BUF_LOCAL to = BUF_INIT;
    struct buf *from = &st->reader.scratch;
    bool ends;

    buf_reset(from);
    scan_bounds(s, from, &to, &ends);
    if (s->reverse) {
        buf_reset(from);
        buf_add_str(from, buf_str(&to));
    }
    enum statement which = !s->reverse ? SQL_SCAN_UP : ends ? SQL_SCAN_DOWN : SQL_SCAN_DOWN_ALL;
    sqlite3_bind_text(st->reader.sql[which], 1, s->ns, -1, SQLITE_STATIC);
    if (which != SQL_SCAN_DOWN_ALL)
        sql_bind_bytes(st->reader.sql[which], 2, buf_str(from));
    return st->reader.sql[which];
}

static int scan(struct store_sqlite *st, struct store_scan *s)
{
    sqlite3_stmt *q = scan_begin(st, s);
    struct result r = result_begin(s->max_bytes, s->limit);
    bool more = false;
    int rc;

    while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
        struct str key = sql_bytes(q, 0);
        if (!str_starts(key, s->prefix))
            break;
        more =
            !result_has_room(&r, key.n + (s->keys_only ? 0 : (size_t)sqlite3_column_bytes(q, 1)));
        if (more)
            break;
        result_add_record(&r, key, s->keys_only ? STR_NULL : sql_bytes(q, 1));
    }
    sqlite3_reset(q);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE) {
        result_drop(&r);
        return rc;
    }
    result_end_scan(&r, s, more);
    return SQLITE_OK;
}

/* ---- fetch: rows by their ids, for one op or for several at once ---- */

#define SKIP_ROWS 4 /* stepping to an id this near is cheaper than searching anew */

/* Walks the table upwards while the wanted ids are near each other, and searches when they are not.
 */
struct cursor {
    sqlite3_stmt *q;
    bool open;
    uint64_t wanted; /* the last id asked for */
    uint64_t at;     /* the row it stands on; UINT64_MAX: behind the last */
};

static int cursor_step(struct cursor *c)
{
    int rc = sqlite3_step(c->q);
    c->at = rc == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(c->q, 0) : UINT64_MAX;
    c->open = rc == SQLITE_ROW || rc == SQLITE_DONE;
    return c->open ? SQLITE_OK : rc;
}

static int cursor_seek(struct cursor *c, uint64_t id)
{
    int rc = SQLITE_OK;

    if (c->open && id > c->wanted && c->at < id && id - c->at <= SKIP_ROWS)
        while (c->at < id && rc == SQLITE_OK)
            rc = cursor_step(c);
    if (rc == SQLITE_OK && (!c->open || id < c->wanted || c->at < id)) {
        sqlite3_reset(c->q);
        sqlite3_bind_int64(c->q, 1, (int64_t)id);
        rc = cursor_step(c);
    }
    c->wanted = id;
    return rc;
}

struct fetch_answer {
    struct store_fetch *op;
    struct result r;
    bool full;
};

static void add_row(struct cursor *c, struct fetch_answer *a, const struct fetch_wish *w)
{
    struct store_row row = read_row(c->q);

    row.frame = sql_bytes(c->q, 7);
    row.frame_bytes = row.frame.n;
    a->full = !result_has_room(&a->r, row.frame.n);
    if (a->full)
        a->op->n_used = w->place;
    else
        result_add_row(&a->r, &row);
}

static int walk(struct store_sqlite *st, struct fetch_answer *answers,
                const struct fetch_wish *wishes, size_t n)
{
    struct cursor c = {.q = st->reader.sql[SQL_FETCH]};
    int rc = SQLITE_OK;

    for (size_t i = 0; i < n && rc == SQLITE_OK; i++) {
        struct fetch_answer *a = &answers[wishes[i].op];
        if (wishes[i].id == 0 || a->full)
            continue;
        rc = cursor_seek(&c, wishes[i].id);
        if (rc == SQLITE_OK && c.at == wishes[i].id)
            add_row(&c, a, &wishes[i]);
    }
    sqlite3_reset(c.q);
    return rc;
}

static int by_id(const void *x, const void *y)
{
    const struct fetch_wish *a = x, *b = y;

    return (a->id > b->id) - (a->id < b->id);
}

static void fetch_begin(struct store_sqlite *st, struct store_op *first,
                        struct fetch_answer *answers, struct fetch_wish *wishes)
{
    uint32_t n = 0;

    for (struct store_op *op = first; op != NULL; op = op->next, n++) {
        struct store_fetch *f = container_of(op, struct store_fetch, op);
        answers[n] = (struct fetch_answer){.op = f, .r = result_begin(f->max_bytes, 0)};
        f->n_used = f->n;
        for (size_t i = 0; i < f->n; i++)
            wishes[i] = (struct fetch_wish){f->ids[i], n, (uint32_t)i};
        acked_hide(&st->acked, wishes, f->n, st->log_end);
        wishes += f->n;
    }
}

static int fetch_run(struct store_sqlite *st, struct store_op *first)
{
    size_t n_ids = 0, n = 0;

    for (const struct store_op *op = first; op != NULL; op = op->next, n++)
        n_ids += container_of(op, const struct store_fetch, op)->n;
    struct fetch_answer *answers = xcalloc(n, sizeof *answers);
    struct fetch_wish *wishes = xcalloc(n_ids + 1, sizeof *wishes);

    fetch_begin(st, first, answers, wishes);
    if (n > 1)
        qsort(wishes, n_ids, sizeof *wishes, by_id);
    int rc = walk(st, answers, wishes, n_ids);
    for (size_t i = 0; i < n; i++)
        if (rc == SQLITE_OK)
            result_end_fetch(&answers[i].r, answers[i].op);
        else
            result_drop(&answers[i].r);
    free(wishes);
    free(answers);
    return rc;
}

/* ---- any of them ---- */

/* The snapshot begins with the look at the log of settled rows. */
static int snapshot_begin(struct store_sqlite *st)
{
    sqlite3_stmt *q = st->reader.sql[SQL_LOG_END];
    int rc = sql_run(&st->reader, SQL_BEGIN_READ);

    if (rc != SQLITE_OK)
        return rc;
    rc = sqlite3_step(q);
    st->log_end = rc == SQLITE_ROW ? sqlite3_column_int64(q, 0) : 0;
    sqlite3_reset(q);
    return rc == SQLITE_ROW ? SQLITE_OK : rc;
}

static void snapshot_end(struct store_sqlite *st)
{
    sql_run(&st->reader, SQL_COMMIT);
    if (!sqlite3_get_autocommit(st->reader.db))
        sqlite3_exec(st->reader.db, "ROLLBACK", NULL, NULL, NULL);
}

void read_run(struct store *base, struct store_op *first)
{
    struct store_sqlite *st = sqlite_of(base);

    pthread_mutex_lock(&st->read_lock);
    acked_read_begin(&st->acked);
    int rc = snapshot_begin(st);
    if (rc == SQLITE_OK)
        rc = first->kind == STORE_FETCH ? fetch_run(st, first)
                                        : scan(st, container_of(first, struct store_scan, op));
    for (struct store_op *op = first; op != NULL; op = op->next)
        op->err = rc == SQLITE_OK ? BH_OK : BH_UNAVAILABLE;
    worker_read(&st->worker, rc == SQLITE_OK, sqlite3_errmsg(st->reader.db));
    snapshot_end(st);
    acked_read_end(&st->acked);
    pthread_mutex_unlock(&st->read_lock);
}

/* ---- loaders ---- */

/* Two may load at the same time: who comes first has the connection of the read thread, which has
 * nothing to do while we start. */
static struct sql_conn *load_begin(struct store_sqlite *st)
{
    if (pthread_mutex_trylock(&st->read_lock) == 0) {
        acked_read_begin(&st->acked);
        return &st->reader;
    }
    pthread_mutex_lock(&st->db_lock);
    return &st->main;
}

static enum bh_err load_end(struct store_sqlite *st, struct sql_conn *c, int rc, const char *what)
{
    if (rc != SQLITE_DONE)
        log_error(&st->log, "loading %s: %s", what, sqlite3_errmsg(c->db));
    sqlite3_db_release_memory(c->db); /* of pages that are not read again */
    if (c == &st->reader) {
        acked_read_end(&st->acked);
        pthread_mutex_unlock(&st->read_lock);
    } else {
        pthread_mutex_unlock(&st->db_lock);
    }
    return rc == SQLITE_DONE ? BH_OK : BH_UNAVAILABLE;
}

static int each_row(struct store_sqlite *st, struct sql_conn *c, store_row_cb *cb, void *ctx)
{
    sqlite3_stmt *q = c->sql[SQL_LOAD_ROWS];
    int rc;

    while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
        struct store_row row = read_row(q);
        if (c == &st->main ? acked_has(&st->acked, row.id)
                           : acked_hides(&st->acked, row.id, st->log_end))
            continue;
        row.frame_bytes = (size_t)sqlite3_column_int64(q, 7);
        if ((row.flags & STORE_ROW_STAGED) != 0)
            row.frame = sql_bytes(q, 8);
        cb(ctx, &row);
    }
    sqlite3_reset(q);
    return rc;
}

enum bh_err load_rows(struct store *base, store_row_cb *cb, void *ctx)
{
    struct store_sqlite *st = sqlite_of(base);
    struct sql_conn *c = load_begin(st);
    int rc = c == &st->reader ? snapshot_begin(st) : SQLITE_OK;

    if (rc == SQLITE_OK)
        rc = each_row(st, c, cb, ctx);
    if (c == &st->reader)
        snapshot_end(st);
    return load_end(st, c, rc, "mailbox rows");
}

enum bh_err load_records(struct store *base, const char *ns, struct str prefix, store_record_cb *cb,
                         void *ctx)
{
    struct store_sqlite *st = sqlite_of(base);
    struct sql_conn *c = load_begin(st);
    sqlite3_stmt *q = c->sql[SQL_SCAN_UP];
    int rc;

    sqlite3_bind_text(q, 1, ns, -1, SQLITE_STATIC);
    sql_bind_bytes(q, 2, prefix);
    while ((rc = sqlite3_step(q)) == SQLITE_ROW && str_starts(sql_bytes(q, 0), prefix))
        cb(ctx, sql_bytes(q, 0), sql_bytes(q, 1));
    sqlite3_reset(q);
    return load_end(st, c, rc == SQLITE_ROW ? SQLITE_DONE : rc, "records");
}

enum bh_err load_keys(struct store *base, int64_t since_ms, store_key_cb *cb, void *ctx)
{
    struct store_sqlite *st = sqlite_of(base);
    struct sql_conn *c = load_begin(st);
    sqlite3_stmt *q = c->sql[SQL_LOAD_KEYS];
    int rc;

    sqlite3_bind_int64(q, 1, since_ms);
    while ((rc = sqlite3_step(q)) == SQLITE_ROW)
        result_keys(sql_bytes(q, 1), sqlite3_column_int64(q, 0), cb, ctx);
    sqlite3_reset(q);
    return load_end(st, c, rc, "deduplication keys");
}
