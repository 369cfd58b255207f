/* open.c - opening and closing the embedded store: file, lock, connection, thread. */
#include "store/sqlite/impl.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

static void log_prefix(const struct log *log, struct buf *out)
{
    buf_add_z(out, "store=sqlite ");
}

/* The pid in the file is for the message only; what keeps others out is the flock, which dies with
 * its process. */
static bool lock_take(struct store_sqlite *st, char *ret_why)
{
    char name[4096], pid[24] = "";

    if (snprintf(name, sizeof name, "%s.lock", st->path) >= (int)sizeof name) {
        snprintf(ret_why, 256, "the path of the database is too long");
        return false;
    }
    st->lock_fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (st->lock_fd < 0) {
        snprintf(ret_why, 256, "cannot open %.160s: %s", name, strerror(errno));
        return false;
    }
    if (flock(st->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        ssize_t n = pread(st->lock_fd, pid, sizeof pid - 1, 0);
        long holder = n > 0 ? strtol(pid, NULL, 10) : 0;
        if (holder > 0)
            snprintf(ret_why, 256, "%.160s is in use by process %ld", st->path, holder);
        else
            snprintf(ret_why, 256, "%.160s is in use by another process", st->path);
        return false;
    }
    int n = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
    if (ftruncate(st->lock_fd, 0) != 0 || pwrite(st->lock_fd, pid, (size_t)n, 0) != n)
        log_warn(&st->log, "cannot write the process id into %s: %s", name, strerror(errno));
    return true;
}

/* SQLite would create it readable by everybody; the log beside it inherits the mode. */
static bool file_create(const char *path, char *ret_why)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        snprintf(ret_why, 256, "cannot open %.160s: %s", path, strerror(errno));
        return false;
    }
    close(fd);

    char *copy = xstrdup(path);
    fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(copy);
    if (fd >= 0) {
        fsync(fd); /* the name must survive a crash too; where it cannot, SQLite cannot either */
        close(fd);
    }
    return true;
}

static void store_free(struct store_sqlite *st)
{
    statements_finalize(st);
    if (sqlite3_close(st->db) != SQLITE_OK)
        log_error(&st->log, "closing the database: %s", sqlite3_errmsg(st->db));
    if (st->lock_fd >= 0)
        close(st->lock_fd); /* after the database: the lock outlives the last write */
    buf_done(&st->keys);
    buf_done(&st->scratch);
    acked_done(&st->acked);
    leases_done(&st->leases);
    free(st->path);
    free(st);
}

static void store_sqlite_close(struct store *base)
{
    struct store_sqlite *st = sqlite_of(base);
    queue_stop(st);
    if (st->acked.plan != NULL)
        acked_purge(st, SIZE_MAX); /* the rest of what is being purged, then what came since */
    acked_purge(st, SIZE_MAX);
    if (sqlite3_exec(st->db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL) != SQLITE_OK)
        log_warn(&st->log, "final checkpoint: %s; the next start reads the log instead",
                 sqlite3_errmsg(st->db));
    store_free(st);
}

static const struct store_ops sqlite_ops = {
    .name = "sqlite",
    .submit = queue_submit,
    .shrink = queue_shrink,
    .cancel = queue_cancel,
    .fetch_free = result_free_fetch,
    .list_free = result_free_list,
    .scan_free = result_free_scan,
    .forget_keys = queue_forget_keys,
    .load_rows = load_rows,
    .load_records = load_records,
    .load_keys = load_keys,
    .stats = queue_stats,
    .close = store_sqlite_close,
};

enum bh_err store_sqlite_open(struct loop *loop, const char *path, struct store **ret_st,
                              char *ret_why)
{
    /* NOMUTEX: db_lock already keeps the connection to one thread at a time. */
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    struct store_sqlite *st = xcalloc(1, sizeof *st);

    *st = (struct store_sqlite){.base.ops = &sqlite_ops,
                                .loop = loop,
                                .log.prefix = log_prefix,
                                .path = xstrdup(path),
                                .lock_fd = -1};
    if (!lock_take(st, ret_why) || !file_create(path, ret_why))
        goto fail;
    if (sqlite3_open_v2(path, &st->db, flags, NULL) != SQLITE_OK) {
        snprintf(ret_why, 256, "cannot open %.160s: %s", path, sqlite3_errmsg(st->db));
        goto fail;
    }
    if (!schema_prepare(st, ret_why))
        goto fail;
    queue_init(st);
    if (!queue_start(st)) {
        snprintf(ret_why, 256, "cannot start the store thread");
        queue_stop(st);
        goto fail;
    }
    log_info(&st->log, "open: path=%s boot=%" PRIu64, path, st->base.boot);
    *ret_st = &st->base;
    return BH_OK;
fail:
    store_free(st);
    return BH_UNAVAILABLE;
}
