/* open.c - opening and closing the embedded store: file, lock, connection, thread. */
#include "store/sqlite/impl.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>
#include "base/file.h"

static void log_prefix(const struct log *log, struct buf *out)
{
    buf_add_z(out, "store=sqlite ");
}

/* The pid in the file is for the message only; what keeps others out is the flock, which dies with
 * its process. */
int store_sqlite_lock(const char *path, char *ret_why)
{
    char name[4096], pid[24] = "";

    if (snprintf(name, sizeof name, "%s.lock", path) >= (int)sizeof name) {
        snprintf(ret_why, 256, "the path of the database is too long");
        return -1;
    }
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        snprintf(ret_why, 256, "cannot open %.160s: %s", name, strerror(errno));
        return -1;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        ssize_t n = pread(fd, pid, sizeof pid - 1, 0);
        long holder = n > 0 ? strtol(pid, NULL, 10) : 0;
        if (holder > 0)
            snprintf(ret_why, 256, "%.160s is in use by process %ld", path, holder);
        else
            snprintf(ret_why, 256, "%.160s is in use by another process", path);
        close(fd);
        return -1;
    }
    int n = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, pid, (size_t)n, 0) != n)
        log_warn(NULL, "cannot write the process id into %s: %s", name, strerror(errno));
    return fd;
}

static void conn_close(struct store_sqlite *st, struct sql_conn *c)
{
    statements_finalize(c);
    buf_done(&c->scratch);
    if (sqlite3_close(c->db) != SQLITE_OK)
        log_error(&st->log, "closing the database: %s", sqlite3_errmsg(c->db));
}

static void store_free(struct store_sqlite *st)
{
    conn_close(st, &st->reader);
    conn_close(st, &st->main); /* the last one tidies up the log */
    space_done(st);
    if (st->lock_fd >= 0)
        close(st->lock_fd); /* after the database: the lock outlives the last write */
    pthread_mutex_destroy(&st->db_lock);
    pthread_mutex_destroy(&st->read_lock);
    pthread_mutex_destroy(&st->checkpoints.lock);
    pthread_cond_destroy(&st->checkpoints.changed);
    buf_done(&st->keys);
    acked_done(&st->acked);
    free(st->path);
    free(st);
}

static void sqlite_close(struct store *base)
{
    struct store_sqlite *st = sqlite_of(base);

    worker_stop(&st->worker);
    checkpoint_stop(st);
    if (st->acked.plan != NULL)
        acked_purge(st, SIZE_MAX); /* the rest of what is being purged, then what came since */
    acked_purge(st, SIZE_MAX);
    if (sqlite3_exec(st->main.db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL) != SQLITE_OK)
        log_warn(&st->log, "final checkpoint failed: %s; the next start replays the log",
                 sqlite3_errmsg(st->main.db));
    store_free(st);
}

/* ---- the ops ---- */

static void sqlite_stats(struct store *base, struct store_stats *ret)
{
    struct store_sqlite *st = sqlite_of(base);

    worker_stats(base, ret);
    ret->bytes_on_disk = __atomic_load_n(&st->space.told_bytes, __ATOMIC_RELAXED);
    ret->free_bytes = __atomic_load_n(&st->space.told_room, __ATOMIC_RELAXED);
    ret->full = __atomic_load_n(&st->space.told_full, __ATOMIC_RELAXED);
}

static const struct store_ops sqlite_ops = {
    .name = "sqlite",
    .submit = worker_submit,
    .shrink = worker_shrink,
    .cancel = worker_cancel,
    .forget_keys = worker_forget_keys,
    .load_rows = load_rows,
    .load_records = load_records,
    .load_keys = load_keys,
    .stats = sqlite_stats,
    .close = sqlite_close,
};

static const struct worker_ops thread_ops = {
    .batch = batch_run,
    .read = read_run,
    .forget = batch_forget,
    .maintain = maintain,
    .maintain_due_us = maintain_due_us,
};

/* ---- opening ---- */

/* NOMUTEX: each connection has one thread at a time anyway. */
static bool conn_open(struct store_sqlite *st, struct sql_conn *c, char *ret_why)
{
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;

    if (sqlite3_open_v2(st->path, &c->db, flags, log_vfs()) == SQLITE_OK)
        return true;
    return bh_why(ret_why, "cannot open %.160s: %s", st->path, sqlite3_errmsg(c->db));
}

static bool reader_open(struct store_sqlite *st, char *ret_why)
{
    static const char settings[] = "PRAGMA query_only=ON;"
                                   "PRAGMA cache_size=-1000;"
                                   "PRAGMA mmap_size=0;"
                                   "PRAGMA temp_store=MEMORY;"
                                   "PRAGMA trusted_schema=OFF;";

    if (!conn_open(st, &st->reader, ret_why))
        return false;
    sqlite3_busy_timeout(st->reader.db, 5000);
    if (sqlite3_exec(st->reader.db, settings, NULL, NULL, NULL) == SQLITE_OK &&
        statements_prepare(&st->reader, true))
        return true;
    return bh_why(ret_why, "%.160s: cannot read: %s", st->path, sqlite3_errmsg(st->reader.db));
}

enum bh_err store_sqlite_open(struct loop *loop, const char *path, struct store **ret_st,
                              char *ret_why)
{
    return store_sqlite_open_with(loop, path, NULL, ret_st, ret_why);
}

enum bh_err store_sqlite_open_with(struct loop *loop, const char *path,
                                   const struct store_settings *settings, struct store **ret_st,
                                   char *ret_why)
{
    struct store_sqlite *st = xcalloc(1, sizeof *st);

    *st = (struct store_sqlite){.worker.base.ops = &sqlite_ops,
                                .log.prefix = log_prefix,
                                .path = xstrdup(path),
                                .lock_fd = -1};
    pthread_mutex_init(&st->db_lock, NULL);
    pthread_mutex_init(&st->read_lock, NULL);
    pthread_mutex_init(&st->checkpoints.lock, NULL);
    pthread_cond_init(&st->checkpoints.changed, NULL);
    acked_init(&st->acked);
    space_init(st, settings);
    st->lock_fd = store_sqlite_lock(path, ret_why);
    if (st->lock_fd < 0 || !sql_file_create(path, ret_why) || !conn_open(st, &st->main, ret_why) ||
        !schema_prepare(st, ret_why) || !reader_open(st, ret_why) || !checkpoint_start(st, ret_why))
        goto fail;
    file_sync_folder_of(path); /* the name must survive a crash too; where it cannot, SQLite cannot
                                * either */
    space_look(st, true);
    space_tell(st);
    if (!worker_start(&st->worker, &thread_ops, loop, &st->log)) {
        snprintf(ret_why, 256, "cannot start the threads of the store");
        worker_stop(&st->worker);
        goto fail;
    }
    log_info(&st->log, "open: path=%s boot=%" PRIu64, path, st->worker.base.boot);
    *ret_st = &st->worker.base;
    return BH_OK;
fail:
    checkpoint_stop(st);
    store_free(st);
    return BH_UNAVAILABLE;
}
