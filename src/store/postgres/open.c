/* open.c - start and end of the PostgreSQL store. */
#include "store/postgres/impl.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/mem.h"

static void log_prefix(const struct log *log, struct buf *out)
{
    buf_add_z(out, "store: ");
}

static void store_free(struct store_postgres *st)
{
    line_close(&st->main);
    line_close(&st->reader);
    line_close(&st->loader);
    params_done(&st->params);
    params_done(&st->reader_params);
    free(st->asked);
    free(st->kvs);
    buf_done(&st->keys);
    pthread_mutex_destroy(&st->db_lock);
    secret_wipe(st->url, strlen(st->url)); /* it has the password */
    free(st->url);
    free(st);
}

static void postgres_close(struct store *base)
{
    struct store_postgres *st = postgres_of(base);

    worker_stop(&st->worker);
    store_free(st);
}

/* ---- the ops ---- */

static void postgres_stats(struct store *base, struct store_stats *ret)
{
    struct store_postgres *st = postgres_of(base);

    worker_stats(base, ret);
    ret->bytes_on_disk = __atomic_load_n(&st->told_bytes, __ATOMIC_RELAXED);
    ret->free_bytes = -1;
}

static const struct store_ops postgres_ops = {
    .name = "postgres",
    .submit = worker_submit,
    .shrink = worker_shrink,
    .cancel = worker_cancel,
    .forget_keys = worker_forget_keys,
    .load_rows = pg_load_rows,
    .load_records = pg_load_records,
    .load_keys = pg_load_keys,
    .stats = postgres_stats,
    .close = postgres_close,
};

static const struct worker_ops thread_ops = {
    .batch = pg_batch_run,
    .read = pg_read_run,
    .forget = pg_batch_forget,
    .maintain = pg_batch_maintain,
    .maintain_due_us = pg_batch_maintain_due_us,
};

/* ---- opening ---- */

static bool reach(struct store_postgres *st, struct pg_line *l, enum line_use use, char *ret_why)
{
    if (line_open(l, st->url, use))
        return true;
    return bh_why(ret_why, "PostgreSQL cannot be reached: %.180s", l->problem);
}

static bool prepare(struct store_postgres *st, char *ret_why)
{
    if (!pq_late_load(ret_why) || !reach(st, &st->loader, LINE_PLAIN, ret_why))
        return false;
    bool ok = pg_schema_prepare(st, ret_why);
    line_close(&st->loader); /* the next one is opened with its statements */
    return ok && reach(st, &st->main, LINE_WRITES, ret_why) &&
           reach(st, &st->reader, LINE_READS, ret_why);
}

static enum bh_err open_it(struct loop *loop, const char *url, int64_t answer_ms, bool looking,
                           struct store **ret_st, char *ret_why)
{
    struct store_postgres *st = xcalloc(1, sizeof *st);
    enum bh_err err = BH_UNAVAILABLE;

    *st =
        (struct store_postgres){.worker.base = {.ops = &postgres_ops, .shared = true},
                                .log.prefix = log_prefix,
                                .url = xstrdup(url),
                                .looking = looking,
                                .answer_ms = answer_ms > 0 ? answer_ms : STORE_POSTGRES_ANSWER_MS};
    pthread_mutex_init(&st->db_lock, NULL);
    if (!prepare(st, ret_why)) {
        err = st->empty ? BH_NOT_FOUND : err;
        goto fail;
    }
    if (looking) /* a lease that nobody ever holds */
        store_guard(&st->worker.base, STR("nobody"), UINT64_MAX);
    if (!worker_start(&st->worker, &thread_ops, loop, &st->log)) {
        snprintf(ret_why, 256, "cannot start the threads of the store");
        worker_stop(&st->worker);
        goto fail;
    }
    if (!looking)
        log_info(&st->log, "open: PostgreSQL boot=%" PRIu64, st->worker.base.boot);
    *ret_st = &st->worker.base;
    return BH_OK;
fail:
    store_free(st);
    return err;
}

enum bh_err store_postgres_open(struct loop *loop, const char *url, int64_t answer_ms,
                                struct store **ret_st, char *ret_why)
{
    return open_it(loop, url, answer_ms, false, ret_st, ret_why);
}

enum bh_err store_postgres_look(struct loop *loop, const char *url, struct store **ret_st,
                                char *ret_why)
{
    return open_it(loop, url, 0, true, ret_st, ret_why);
}
