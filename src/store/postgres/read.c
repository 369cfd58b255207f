/* read.c - the reading ops, each one statement and so one snapshot, and the loaders of start-up. */
#include "store/postgres/impl.h"

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
    size_t limit = s->limit != 0 && s->limit < LOOK_ROWS ? s->limit : LOOK_ROWS;
    struct result res = result_begin(s->max_bytes, limit);
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

/* A line that was lost since the last read is no news: once more on a new one. */
void pg_read_run(struct store *base, struct store_op *first)
{
    struct store_postgres *st = postgres_of(base);

    for (struct store_op *op = first; op != NULL; op = op->next) {
        enum line_end e = LINE_LOST;
        for (int i = 0; i < 2 && e == LINE_LOST; i++)
            if (line_open(&st->reader, st->url, LINE_READS))
                e = op->kind == STORE_FETCH ? fetch(st, container_of(op, struct store_fetch, op))
                                            : scan(st, container_of(op, struct store_scan, op));
        op->err = e == LINE_OK ? BH_OK : BH_UNAVAILABLE;
        worker_read(&st->worker, e == LINE_OK, st->reader.problem);
    }
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

struct load_call { /* one of the callbacks */
    store_row_cb *row;
    store_record_cb *record;
    store_key_cb *key;
    void *ctx;
};

static void each_row(const PGresult *r, void *to)
{
    struct load_call *call = to;
    struct store_row row = row_of(r);

    if ((row.flags & STORE_ROW_STAGED) != 0)
        row.frame = frame_of(r);
    call->row(call->ctx, &row);
}

enum bh_err pg_load_rows(struct store *base, store_row_cb *cb, void *ctx)
{
    struct store_postgres *st = postgres_of(base);
    struct load_call call = {.row = cb, .ctx = ctx};

    return load(st, PG_LOAD_ROWS, load_begin(st), each_row, &call);
}

static void each_record(const PGresult *r, void *to)
{
    struct load_call *call = to;

    call->record(call->ctx, column_bytes(r, 0, 0), column_bytes(r, 0, 1));
}

enum bh_err pg_load_records(struct store *base, const char *ns, struct str prefix,
                            store_record_cb *cb, void *ctx)
{
    struct store_postgres *st = postgres_of(base);
    struct load_call call = {.record = cb, .ctx = ctx};
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

static void each_key(const PGresult *r, void *to)
{
    struct load_call *call = to;

    result_keys(column_bytes(r, 0, 1), column_int(r, 0, 0), call->key, call->ctx);
}

enum bh_err pg_load_keys(struct store *base, int64_t since_ms, store_key_cb *cb, void *ctx)
{
    struct store_postgres *st = postgres_of(base);
    struct load_call call = {.key = cb, .ctx = ctx};
    struct params *p = load_begin(st);

    param_i64(p, since_ms);
    return load(st, PG_LOAD_KEYS, p, each_key, &call);
}
