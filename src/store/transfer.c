/* transfer.c - design.  (transfer.h has the contract.)
 *
 * The comparison hashes each row and adds up the hashes, so both ends may read in different
 * orders. */
#include "store/transfer.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/arena.h"
#include "base/buf.h"
#include "base/crypto.h"
#include "base/mem.h"

enum { BATCH_ROWS = 512, BATCH_BYTES = 4 << 20, TELL_ROWS = 64 };

union cell {
    int64_t i;
    struct str s;
};
typedef bool row_cb(void *ctx, const union cell *row);

static bool is_number(char column)
{
    return column == 'i' || column == 'n';
}

bool transfer_failed(struct transfer *t, const struct transfer_end *e)
{
    if (t->why[0] == '\0')
        snprintf(t->why, 256, "%s: %.200s", e->server ? "PostgreSQL" : "SQLite", e->s->why);
    return false;
}

/* ---- reading ---- */

/* The rows of the question that was asked. */
static bool take_rows(struct transfer *t, const struct transfer_end *e, const char *columns,
                      row_cb *cb, void *ctx, size_t *ret_n)
{
    union cell row[SQLDB_MAX_ARGS];

    for (*ret_n = 0; sqldb_next(e->s); ++*ret_n) {
        for (int c = 0; columns[c] != '\0'; c++)
            if (!is_number(columns[c]))
                row[c].s = sqldb_get_str(e->s, c);
            else if (columns[c] == 'n' && sqldb_get_str(e->s, c).p == NULL)
                row[c].i = TRANSFER_NULL;
            else
                row[c].i = sqldb_get_int(e->s, c);
        if (++t->done % TELL_ROWS == 0 && t->each != NULL && !t->each(t->ctx, t->done, t->all))
            t->stopped = true;
        if (t->stopped || !cb(ctx, row))
            return false;
    }
    return e->s->ok || transfer_failed(t, e);
}

static bool each_row(struct transfer *t, const struct transfer_end *e, size_t table, row_cb *cb,
                     void *ctx)
{
    const char *columns = t->tables[table].columns;
    unsigned rest = (unsigned)t->n_tables * TRANSFER_STATEMENTS;
    unsigned read = (unsigned)table * TRANSFER_STATEMENTS + TRANSFER_READ;
    size_t n;

    if (!e->server) {
        sqldb_ints(e->s, e->hidden, e->n_hidden);
        return sqldb_ask(e->s, read) ? take_rows(t, e, columns, cb, ctx, &n)
                                     : transfer_failed(t, e);
    }
    if (!sqldb_ask(e->s, read))
        return transfer_failed(t, e);
    do
        if (!sqldb_ask(e->s, rest + TRANSFER_FETCH))
            return transfer_failed(t, e);
        else if (!take_rows(t, e, columns, cb, ctx, &n))
            return false;
    while (n > 0);
    return sqldb_ask(e->s, rest + TRANSFER_CLOSE) || transfer_failed(t, e);
}

bool transfer_count(struct transfer *t)
{
    struct sqldb *s = t->from.s;

    for (size_t i = 0; i < t->n_tables; i++) {
        if (!t->from.server)
            sqldb_ints(s, t->from.hidden, t->from.n_hidden);
        if (!sqldb_ask(s, (unsigned)i * TRANSFER_STATEMENTS + TRANSFER_COUNT) || !sqldb_next(s))
            return transfer_failed(t, &t->from);
        t->n[i] = (uint64_t)sqldb_get_int(s, 0);
        t->all += 3 * t->n[i]; /* copied once, then read on both ends */
    }
    return true;
}

/* ---- copying ---- */

struct batch {
    struct transfer *t;
    size_t table, n_columns;
    uint64_t at, skip; /* rows read, and rows that the target has */
    struct arena arena;
    union cell *rows; /* owned; BATCH_ROWS of them */
    size_t n, bytes;
};

static bool write_row(struct batch *b, const union cell *row)
{
    const char *columns = b->t->tables[b->table].columns;
    struct sqldb *s = b->t->to.s;

    for (size_t c = 0; c < b->n_columns; c++)
        if (columns[c] == 'b')
            sqldb_blob(s, row[c].s);
        else if (columns[c] == 't')
            sqldb_text(s, row[c].s);
        else
            sqldb_int_if(s, columns[c] == 'i' || row[c].i != TRANSFER_NULL, row[c].i);
    return sqldb_ask(s, (unsigned)b->table * TRANSFER_STATEMENTS + TRANSFER_WRITE);
}

static bool write_lists(struct batch *b)
{
    struct sqldb *s = b->t->to.s;

    for (size_t c = 0; c < b->n_columns; c++) {
        bool number = is_number(b->t->tables[b->table].columns[c]);
        void *list = arena_alloc(&b->arena, b->n * sizeof(union cell));
        for (size_t i = 0; i < b->n; i++)
            if (number)
                ((int64_t *)list)[i] = b->rows[i * b->n_columns + c].i;
            else
                ((struct str *)list)[i] = b->rows[i * b->n_columns + c].s;
        if (number)
            sqldb_ints(s, list, b->n);
        else
            sqldb_texts(s, list, b->n);
    }
    return sqldb_ask(s, (unsigned)b->table * TRANSFER_STATEMENTS + TRANSFER_WRITE);
}

static bool flush(struct batch *b)
{
    struct transfer *t = b->t;
    bool ok = true;

    if (b->n > 0 && t->to.server)
        ok = write_lists(b);
    for (size_t i = 0; ok && i < b->n && !t->to.server; i++)
        ok = write_row(b, &b->rows[i * b->n_columns]);
    if (!ok)
        transfer_failed(t, &t->to);
    ok = ok && (b->n == 0 || t->wrote == NULL || t->wrote(t, b->table, b->at));
    b->n = b->bytes = 0;
    arena_reset(&b->arena);
    return ok;
}

static bool copy_row(void *ctx, const union cell *row)
{
    struct batch *b = ctx;
    union cell *to = &b->rows[b->n * b->n_columns];

    b->at++;
    if (b->skip > 0) {
        b->skip--;
        return true;
    }
    for (size_t c = 0; c < b->n_columns; c++) {
        to[c] = row[c];
        if (is_number(b->t->tables[b->table].columns[c]))
            continue;
        to[c].s = arena_str(&b->arena, row[c].s);
        b->bytes += row[c].s.n;
    }
    b->n++;
    return (b->n < BATCH_ROWS && b->bytes < BATCH_BYTES) || flush(b);
}

bool transfer_copy(struct transfer *t, size_t table, uint64_t skip)
{
    struct batch b = {.t = t,
                      .table = table,
                      .n_columns = strlen(t->tables[table].columns),
                      .skip = skip,
                      .arena = ARENA_INIT};

    b.rows = xcalloc(BATCH_ROWS * b.n_columns, sizeof *b.rows);
    bool ok = each_row(t, &t->from, table, copy_row, &b) && flush(&b);
    arena_done(&b.arena);
    free(b.rows);
    return ok;
}

/* ---- comparing ---- */

struct sum {
    const char *columns;
    uint64_t n, lo, hi;
    struct buf text;
};

static bool sum_row(void *ctx, const union cell *row)
{
    struct sum *s = ctx;
    uint8_t hash[SHA256_BYTES];
    uint64_t half[2];

    buf_reset(&s->text);
    for (size_t c = 0; s->columns[c] != '\0'; c++) {
        bool number = is_number(s->columns[c]);
        uint64_t n = number ? (uint64_t)row[c].i : row[c].s.p == NULL ? UINT64_MAX : row[c].s.n;
        buf_add(&s->text, &n, sizeof n);
        if (!number)
            buf_add_str(&s->text, row[c].s);
    }
    sha256(buf_str(&s->text), hash);
    memcpy(half, hash, sizeof half);
    s->lo += half[0];
    s->hi += half[1];
    s->n++;
    return true;
}

bool transfer_compare(struct transfer *t)
{
    for (size_t i = 0; i < t->n_tables; i++) {
        struct sum a = {.columns = t->tables[i].columns}, b = a;
        bool ok = each_row(t, &t->from, i, sum_row, &a) && each_row(t, &t->to, i, sum_row, &b);
        buf_done(&a.text);
        buf_done(&b.text);
        if (!ok)
            return false;
        t->n[i] = a.n;
        if (a.n != b.n || a.lo != b.lo || a.hi != b.hi)
            return bh_why(t->why,
                          "what was moved is not what was there: %llu %s in the source, %llu in "
                          "the target%s",
                          (unsigned long long)a.n, t->tables[i].name, (unsigned long long)b.n,
                          a.n == b.n ? ", and they differ" : "");
    }
    return true;
}
