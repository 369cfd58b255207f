/* fetch.c - reading rows by their ids, for one op or for several at once.
 *
 * Rows lie in order of arrival, so the rows of a hundred agents that wake up together lie on the
 * same pages.  Read one agent after the other, every page is read as often as it has rows; so
 * fetches that wait together are answered by one walk along the table. */
#include <stdlib.h>
#include "store/sqlite/impl.h"

#define SKIP_ROWS 4 /* stepping to an id this near is cheaper than searching anew */

/* ---- walking ---- */

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

/* ---- answering ---- */

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
        result_add_row(&a->r, &row, true);
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

/* ---- all of them ---- */

static int by_id(const void *x, const void *y)
{
    const struct fetch_wish *a = x, *b = y;

    return (a->id > b->id) - (a->id < b->id);
}

static size_t count(const struct store_op *first, size_t *ret_ids)
{
    size_t n = 0;

    *ret_ids = 0;
    for (const struct store_op *op = first; op != NULL; op = op->next, n++)
        *ret_ids += container_of(op, const struct store_fetch, op)->n;
    return n;
}

static void begin(struct store_sqlite *st, struct store_op *first, struct fetch_answer *answers,
                  struct fetch_wish *wishes)
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

int fetch_run(struct store_sqlite *st, struct store_op *first)
{
    size_t n_ids, n = count(first, &n_ids);
    struct fetch_answer *answers = xcalloc(n, sizeof *answers);
    struct fetch_wish *wishes = xcalloc(n_ids + 1, sizeof *wishes);

    begin(st, first, answers, wishes);
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
