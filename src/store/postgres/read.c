/* read.c - the reading ops, each one statement and so one snapshot, and the loaders of start-up. */
#include "store/postgres/impl.h"
#include <endian.h>

/* Columns 0 to 7 of the statements that answer with rows. */
static struct store_row row_of(const PGresult *r)
{
    return (struct store_row){
        .id = (uint64_t)column_int(r, 0, 0),
        .box = (uint32_t)column_int(r, 0, 1),
        .row_kind = (uint8_t)column_int(r, 0, 2),
        .flags = (uint8_t)column_int(r, 0, 3),
        .at_ms = column_int(r, 0, 4),
        .attempts = (uint32_t)column_int(r, 0, 5),
        .parked = column_bytes(r, 0, 6),
        .frame_bytes = (size_t)column_int(r, 0, 7),
    };
}

/* A frame that is empty is there; one that was not asked for is absent. */
static struct str frame_of(const PGresult *r)
{
    struct str s = column_bytes(r, 0, 8);
    return s.p != NULL && s.n == 0 ? STR("") : s;
}

static void ask(struct store_postgres *st, struct pg_line *l, enum pg_statement s, struct params *p)
{
    line_begin(l, st->answer_ms);
    line_ask(l, s, p);
    if (l->pg != NULL)
        PQsetSingleRowMode(l->pg);
}

/* ---- fetch ---- */

static enum line_end fetch(struct store_postgres *st, struct store_fetch *f)
{
    struct params *p = &st->reader_params;
    struct result res = result_begin(f->max_bytes, 0);
    bool full = false;
    enum line_end e;
    PGresult *r;

    params_reset(p);
    array_begin(p, PARAM_I64);
    for (size_t i = 0; i < f->n; i++)
        array_i64(p, (int64_t)f->ids[i]);
    array_end(p);
    param_i64(p, (int64_t)res.max_bytes);
    ask(st, &st->reader, PG_FETCH, p);
    f->n_used = f->n;
    while ((e = line_row(&st->reader, &r)) == LINE_OK && r != NULL) {
        struct store_row row = row_of(r);
        row.frame = frame_of(r);
        if (!full && !result_has_room(&res, row.frame.n)) {
            full = true;
            f->n_used = (size_t)column_int(r, 0, 9) - 1;
        } else if (!full) {
            result_add_row(&res, &row);
        }
        PQclear(r);
    }
    if (e == LINE_OK)
        result_end_fetch(&res, f);
    else
        result_drop(&res);
    return e;
}

/* ---- scan ---- */

static size_t look_limit(size_t limit)
{
    return limit != 0 && limit < LOOK_ROWS ? limit : LOOK_ROWS;
}

/* From @from up to below @to, or to the end of the namespace unless @ret_ends. */
static void scan_bounds(const struct store_scan *s, struct buf *from, struct buf *to,
                        bool *ret_ends)
{
    *ret_ends = scan_prefix_end(to, s->prefix);
    buf_add_str(from, s->prefix);
    if (s->after.p == NULL)
        return;
    if (s->reverse) {
        if (!*ret_ends || str_cmp(s->after, buf_str(to)) < 0) {
            buf_reset(to);
            buf_add_str(to, s->after);
            *ret_ends = true;
        }
    } else if (str_cmp(s->after, s->prefix) >= 0) {
        buf_reset(from);
        buf_add_str(from, s->after);
        buf_add_c(from, '\0'); /* the next possible key */
    }
}

static void ask_scan(struct store_postgres *st, const struct store_scan *s,
                     const struct result *res)
{
    struct params *p = &st->reader_params;
    struct buf from = BUF_INIT, to = BUF_INIT;
    bool ends;

    scan_bounds(s, &from, &to, &ends);
    params_reset(p);
    param_bytes(p, str_of(s->ns));
    param_bytes(p, buf_str(&from));
    param_opt(p, ends ? buf_str(&to) : STR_NULL);
    param_i64(p, (int64_t)res->limit + 1);
    param_bool(p, !s->keys_only);
    param_i64(p, (int64_t)res->max_bytes);
    ask(st, &st->reader, s->reverse ? PG_SCAN_DOWN : PG_SCAN_UP, p);
    buf_done(&from);
    buf_done(&to);
}

static enum line_end scan(struct store_postgres *st, struct store_scan *s)
{
    struct result res = result_begin(s->max_bytes, look_limit(s->limit));
    bool more = false;
    enum line_end e;
    PGresult *r;

    ask_scan(st, s, &res);
    while ((e = line_row(&st->reader, &r)) == LINE_OK && r != NULL) {
        struct str key = column_bytes(r, 0, 0), value = column_bytes(r, 0, 1);
        if (value.p != NULL && value.n == 0)
            value = STR("");
        more = more || !result_has_room(&res, key.n + value.n);
        if (!more)
            result_add_record(&res, key, value);
        PQclear(r);
    }
    if (e == LINE_OK)
        result_end_scan(&res, s, more);
    else
        result_drop(&res);
    return e;
}

/* ---- any of them ---- */

static void tell(struct store_postgres *st, enum line_end e)
{
    bool ill = e != LINE_OK;

    if (ill && !st->read_ill)
        log_error(&st->log, "cannot read: %s", st->reader.problem);
    else if (!ill && st->read_ill)
        log_info(&st->log, "reading again");
    st->read_ill = ill;
}

static enum line_end run(struct store_postgres *st, struct store_op *op)
{
    if (op->kind == STORE_FETCH)
        return fetch(st, container_of(op, struct store_fetch, op));
    return scan(st, container_of(op, struct store_scan, op));
}

/* A line that was lost since the last read is no news: once more on a new one. */
static void read_one(struct store_postgres *st, struct store_op *op)
{
    enum line_end e = LINE_LOST;

    for (int i = 0; i < 2 && e == LINE_LOST; i++)
        if (line_open(&st->reader, st->url, LINE_READS))
            e = run(st, op);
    op->err = e == LINE_OK ? BH_OK : BH_UNAVAILABLE;
    tell(st, e);
}

void pg_read_run(struct store *base, struct store_op *first)
{
    for (struct store_op *op = first; op != NULL; op = op->next)
        read_one(postgres_of(base), op);
}

/* ---- loaders ---- */

typedef void each_cb(const PGresult *r, void *call);

static enum bh_err load(struct store_postgres *st, enum pg_statement s, struct params *p,
                        each_cb *each, void *call)
{
    enum line_end e = LINE_LOST;
    PGresult *r;

    if (line_open(&st->loader, st->url, LINE_READS)) {
        ask(st, &st->loader, s, p);
        while ((e = line_row(&st->loader, &r)) == LINE_OK && r != NULL) {
            line_begin(&st->loader, st->answer_ms); /* so long as it goes on */
            each(r, call);
            PQclear(r);
        }
    }
    if (e != LINE_OK)
        log_error(&st->log, "loading: %s", st->loader.problem);
    pthread_mutex_unlock(&st->db_lock);
    return e == LINE_OK ? BH_OK : BH_UNAVAILABLE;
}

static struct params *load_begin(struct store_postgres *st)
{
    pthread_mutex_lock(&st->db_lock);
    params_reset(&st->params);
    return &st->params;
}

struct row_call {
    store_row_cb *cb;
    void *ctx;
};

static void each_row(const PGresult *r, void *to)
{
    struct row_call *call = to;
    struct store_row row = row_of(r);

    if ((row.flags & STORE_ROW_STAGED) != 0)
        row.frame = frame_of(r);
    call->cb(call->ctx, &row);
}

enum bh_err pg_load_rows(struct store *base, store_row_cb *cb, void *ctx)
{
    struct store_postgres *st = postgres_of(base);
    struct row_call call = {cb, ctx};

    return load(st, PG_LOAD_ROWS, load_begin(st), each_row, &call);
}

struct record_call {
    store_record_cb *cb;
    void *ctx;
};

static void each_record(const PGresult *r, void *to)
{
    struct record_call *call = to;

    call->cb(call->ctx, column_bytes(r, 0, 0), column_bytes(r, 0, 1));
}

enum bh_err pg_load_records(struct store *base, const char *ns, struct str prefix,
                            store_record_cb *cb, void *ctx)
{
    struct store_postgres *st = postgres_of(base);
    struct record_call call = {cb, ctx};
    struct params *p = load_begin(st);
    struct buf end = BUF_INIT;
    bool bounded = scan_prefix_end(&end, prefix);

    param_bytes(p, str_of(ns));
    param_bytes(p, prefix);
    param_bool(p, !bounded);
    param_bytes(p, buf_str(&end));
    enum bh_err err = load(st, PG_LOAD_RECORDS, p, each_record, &call);
    buf_done(&end);
    return err;
}

struct key_call {
    store_key_cb *cb;
    void *ctx;
};

static void each_key(const PGresult *r, void *to)
{
    struct key_call *call = to;
    struct str keys = column_bytes(r, 0, 1);
    uint64_t words[2];

    for (; keys.n >= sizeof words; keys = str_skip(keys, sizeof words)) {
        memcpy(words, keys.p, sizeof words);
        call->cb(call->ctx, (struct hash128){.lo = le64toh(words[0]), .hi = le64toh(words[1])},
                 column_int(r, 0, 0));
    }
}

enum bh_err pg_load_keys(struct store *base, int64_t since_ms, store_key_cb *cb, void *ctx)
{
    struct store_postgres *st = postgres_of(base);
    struct key_call call = {cb, ctx};
    struct params *p = load_begin(st);

    param_i64(p, since_ms);
    return load(st, PG_LOAD_KEYS, p, each_key, &call);
}
