/* read.c - the reading ops and the loaders of start-up.
 *
 * The results of one op live in one arena and one array, so that reading a row costs no allocation
 * of its own. */
#include "store/sqlite/impl.h"
#include <endian.h>
#include <stdlib.h>
#include "base/arena.h"

#define SKIP_ROWS 4 /* stepping to an id this near is cheaper than searching anew */

static struct arena *arena_new(void)
{
    struct arena *a = xcalloc(1, sizeof *a);
    *a = ARENA_INIT;
    return a;
}

static void arena_free(struct arena *a)
{
    if (a != NULL)
        arena_done(a);
    free(a);
}

/* ---- fetch ---- */

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
    if (rc == SQLITE_OK && (!c->open || id <= c->wanted || c->at < id)) {
        sqlite3_reset(c->q);
        sqlite3_bind_int64(c->q, 1, (int64_t)id);
        rc = cursor_step(c);
    }
    c->wanted = id;
    return rc;
}

static struct str copy_text(struct arena *a, sqlite3_stmt *q, int column)
{
    if (sqlite3_column_type(q, column) == SQLITE_NULL)
        return STR_NULL;
    return arena_str(a, sql_bytes(q, column));
}

static struct store_row row_of(sqlite3_stmt *q)
{
    return (struct store_row){
        .id = (uint64_t)sqlite3_column_int64(q, 0),
        .box = (uint32_t)sqlite3_column_int64(q, 1),
        .row_kind = (uint8_t)sqlite3_column_int(q, 2),
        .at_ms = sqlite3_column_int64(q, 3),
        .attempts = (uint32_t)sqlite3_column_int64(q, 4),
    };
}

static void fetch_add(struct store_fetch *f, size_t *cap, sqlite3_stmt *q, struct str frame)
{
    if (f->n_rows == *cap) {
        *cap = *cap == 0 ? (f->n < 64 ? f->n : 64) : *cap * 2;
        f->rows = xrealloc(f->rows, *cap * sizeof *f->rows);
    }
    struct store_row *row = &f->rows[f->n_rows++];
    *row = row_of(q);
    row->frame = arena_str(f->memory, frame);
    row->frame_bytes = frame.n;
    row->parked = copy_text(f->memory, q, 5);
}

void read_fetch(struct store_sqlite *st, struct store_fetch *f)
{
    struct cursor c = {.q = st->sql[SQL_FETCH]};
    size_t cap = 0, bytes = 0;
    int rc = SQLITE_OK;

    f->op.err = BH_OK;
    f->memory = arena_new();
    for (size_t i = 0; i < f->n; i++) {
        if (acked_has(&st->acked, f->ids[i]))
            continue;
        rc = cursor_seek(&c, f->ids[i]);
        if (rc != SQLITE_OK)
            break;
        if (c.at != f->ids[i])
            continue;
        struct str frame = sql_bytes(c.q, 6);
        bytes += frame.n;
        if (f->max_bytes > 0 && bytes > f->max_bytes && f->n_rows > 0)
            break;
        fetch_add(f, &cap, c.q, frame);
    }
    if (rc != SQLITE_OK) {
        note_problem(st, "reading rows", rc);
        read_fetch_free(f);
        f->op.err = BH_UNAVAILABLE;
    }
    sqlite3_reset(c.q);
}

void read_fetch_free(struct store_fetch *f)
{
    free(f->rows);
    arena_free(f->memory);
    f->rows = NULL;
    f->n_rows = 0;
    f->memory = NULL;
}

/* ---- scan ---- */

/* The smallest key above everything that starts with @prefix; false: there is none. */
static bool prefix_end(struct buf *out, struct str prefix)
{
    while (prefix.n > 0 && (uint8_t)prefix.p[prefix.n - 1] == 0xff)
        prefix.n--;
    if (prefix.n == 0)
        return false;
    buf_add_str(out, prefix);
    out->p[out->n - 1]++;
    return true;
}

/* Bind the bound where the scan begins; it ends at the first key without the prefix. */
static sqlite3_stmt *scan_begin(struct store_sqlite *st, const struct store_scan *s)
{
    enum statement which = s->reverse ? SQL_SCAN_DOWN : SQL_SCAN_UP;
    struct buf *bound = &st->scratch;

    buf_reset(bound);
    if (s->reverse) {
        bool bounded = prefix_end(bound, s->prefix);
        if (s->after.p != NULL && (!bounded || str_cmp(s->after, buf_str(bound)) < 0)) {
            buf_reset(bound);
            buf_add_str(bound, s->after);
            bounded = true;
        }
        if (!bounded)
            which = SQL_SCAN_DOWN_ALL;
    } else if (s->after.p != NULL && str_cmp(s->after, s->prefix) >= 0) {
        buf_add_str(bound, s->after);
        buf_add_c(bound, '\0'); /* the next possible key */
    } else {
        buf_add_str(bound, s->prefix);
    }
    sqlite3_bind_text(st->sql[which], 1, s->ns, -1, SQLITE_STATIC);
    if (which != SQL_SCAN_DOWN_ALL)
        sql_bind_bytes(st->sql[which], 2, buf_str(bound));
    return st->sql[which];
}

static void scan_add(struct store_scan *s, size_t *cap, sqlite3_stmt *q)
{
    if (s->n_records == *cap) {
        *cap = *cap == 0 ? 16 : *cap * 2;
        s->records = xrealloc(s->records, *cap * sizeof *s->records);
    }
    s->records[s->n_records++] = (struct store_record){
        .key = arena_str(s->memory, sql_bytes(q, 0)),
        .value = arena_str(s->memory, sql_bytes(q, 1)),
    };
}

void read_scan(struct store_sqlite *st, struct store_scan *s)
{
    sqlite3_stmt *q = scan_begin(st, s);
    size_t cap = 0;
    int rc = SQLITE_DONE;

    s->op.err = BH_OK;
    s->memory = arena_new();
    while ((s->limit == 0 || s->n_records < s->limit) && (rc = sqlite3_step(q)) == SQLITE_ROW &&
           str_starts(sql_bytes(q, 0), s->prefix))
        scan_add(s, &cap, q);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE) {
        note_problem(st, "reading records", rc);
        read_scan_free(s);
        s->op.err = BH_UNAVAILABLE;
    }
    sqlite3_reset(q);
}

void read_scan_free(struct store_scan *s)
{
    free(s->records);
    arena_free(s->memory);
    s->records = NULL;
    s->n_records = 0;
    s->memory = NULL;
}

/* ---- loaders ---- */

static enum bh_err load_end(struct store_sqlite *st, sqlite3_stmt *q, int rc, const char *what)
{
    if (rc != SQLITE_DONE)
        log_error(&st->log, "loading %s: %s", what, sqlite3_errmsg(st->db));
    sqlite3_reset(q);
    pthread_mutex_unlock(&st->db_lock);
    return rc == SQLITE_DONE ? BH_OK : BH_UNAVAILABLE;
}

enum bh_err load_rows(struct store *base, store_row_cb *cb, void *ctx)
{
    struct store_sqlite *st = sqlite_of(base);
    sqlite3_stmt *q = st->sql[SQL_LOAD_ROWS];
    int rc;

    pthread_mutex_lock(&st->db_lock);
    while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
        struct store_row row = row_of(q);
        if (acked_has(&st->acked, row.id))
            continue;
        if (sqlite3_column_type(q, 5) != SQLITE_NULL)
            row.parked = sql_bytes(q, 5);
        row.frame_bytes = (size_t)sqlite3_column_int64(q, 6);
        cb(ctx, &row);
    }
    return load_end(st, q, rc, "mailbox rows");
}

enum bh_err load_records(struct store *base, const char *ns, store_record_cb *cb, void *ctx)
{
    struct store_sqlite *st = sqlite_of(base);
    sqlite3_stmt *q = st->sql[SQL_SCAN_UP];
    int rc;

    pthread_mutex_lock(&st->db_lock);
    sqlite3_bind_text(q, 1, ns, -1, SQLITE_STATIC);
    sql_bind_bytes(q, 2, STR(""));
    while ((rc = sqlite3_step(q)) == SQLITE_ROW)
        cb(ctx, sql_bytes(q, 0), sql_bytes(q, 1));
    return load_end(st, q, rc, "records");
}

static void each_key(struct str bytes, int64_t at_ms, store_key_cb *cb, void *ctx)
{
    uint64_t words[2];
    for (; bytes.n >= sizeof words; bytes = str_skip(bytes, sizeof words)) {
        memcpy(words, bytes.p, sizeof words);
        cb(ctx, (struct hash128){.lo = le64toh(words[0]), .hi = le64toh(words[1])}, at_ms);
    }
}

enum bh_err load_keys(struct store *base, int64_t since_ms, store_key_cb *cb, void *ctx)
{
    struct store_sqlite *st = sqlite_of(base);
    sqlite3_stmt *q = st->sql[SQL_LOAD_KEYS];
    int rc;

    pthread_mutex_lock(&st->db_lock);
    sqlite3_bind_int64(q, 1, since_ms);
    while ((rc = sqlite3_step(q)) == SQLITE_ROW)
        each_key(sql_bytes(q, 1), sqlite3_column_int64(q, 0), cb, ctx);
    return load_end(st, q, rc, "deduplication keys");
}
