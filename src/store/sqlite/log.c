/* log.c - the write-ahead log: written in large pieces, and written back into the database beside
 * the commits.
 *
 * SQLite writes each page of a transaction to the log with two calls: 24 bytes of header, then the
 * page.  A group of messages is some hundred calls, which cost more than its SQL.  This VFS stands
 * before the one of the system and gathers writes of the log that follow each other.  All other
 * files are those of the system's VFS.
 *
 * Others read the log through files of their own, so it must be whole before they look: SQLite
 * publishes the frames of a transaction after it has synced the log (synchronous=FULL), and a sync
 * writes first what was gathered.  The same holds for reads, truncating and asking for the size.
 * What was gathered and never synced is part of no transaction.
 *
 * A checkpoint copies megabytes and waits for the disk; in a commit, it is what every message of
 * the next groups waits for.  So a thread with a connection of its own does it, while commits
 * append to the log.  That alone would let the log grow for ever: SQLite starts the log anew only
 * when every frame is written back, and while commits go on there is always a newer one.  So when
 * the log is long and little of it is left to copy, the write thread copies the rest between two
 * commits.
 *
 *      pages of the log, n; written back, k
 *      n - k >= STEP_PAGES                          the thread copies
 *      n >= LOG_PAGES and n - k >= REST_PAGES       the thread copies again, to catch up
 *      n >= LOG_PAGES and n - k < REST_PAGES        the write thread copies the rest: k = n
 *      n >= LOG_MAX_PAGES                           the same however much is left
 *      k = n                                        the next commit begins at the front: n = 0
 *
 * A read that takes long keeps the frames it may need; then the write thread tries again after
 * STEP_PAGES more.
 *
 * Where the disk has little room, room matters more than time: the write thread alone copies, as
 * soon as the log has LOG_PAGES. */
#include "store/sqlite/impl.h"
#include <stdlib.h>

/* ---- large pieces ---- */

enum { GATHERED_BYTES = 64 << 10 };

struct log_file {
    sqlite3_file base;  /* first: SQLite's pointer is ours */
    sqlite3_file *real; /* follows this struct in memory */
    char *bytes;        /* owned; NULL: nothing was written yet */
    int n;              /* gathered, */
    sqlite3_int64 at;   /* to be written here */
};

/* What cannot be written is dropped: SQLite rolls the transaction back. */
static int flush(struct log_file *f)
{
    int n = f->n;

    f->n = 0;
    return n > 0 ? f->real->pMethods->xWrite(f->real, f->bytes, n, f->at) : SQLITE_OK;
}

static int wal_write(sqlite3_file *base, const void *p, int n, sqlite3_int64 at)
{
    struct log_file *f = (struct log_file *)(void *)base;
    int rc = SQLITE_OK;

    if (f->n > 0 && (at != f->at + f->n || f->n + n > GATHERED_BYTES))
        rc = flush(f);
    if (rc != SQLITE_OK || n > GATHERED_BYTES)
        return rc != SQLITE_OK ? rc : f->real->pMethods->xWrite(f->real, p, n, at);
    if (f->bytes == NULL)
        f->bytes = xmalloc(GATHERED_BYTES);
    if (f->n == 0)
        f->at = at;
    memcpy(f->bytes + f->n, p, (size_t)n);
    f->n += n;
    return SQLITE_OK;
}

static int wal_read(sqlite3_file *base, void *p, int n, sqlite3_int64 at)
{
    struct log_file *f = (struct log_file *)(void *)base;
    int rc = flush(f);

    return rc != SQLITE_OK ? rc : f->real->pMethods->xRead(f->real, p, n, at);
}

static int wal_sync(sqlite3_file *base, int flags)
{
    struct log_file *f = (struct log_file *)(void *)base;
    int rc = flush(f);

    return rc != SQLITE_OK ? rc : f->real->pMethods->xSync(f->real, flags);
}

static int wal_truncate(sqlite3_file *base, sqlite3_int64 size)
{
    struct log_file *f = (struct log_file *)(void *)base;
    int rc = flush(f);

    return rc != SQLITE_OK ? rc : f->real->pMethods->xTruncate(f->real, size);
}

static int wal_size(sqlite3_file *base, sqlite3_int64 *ret)
{
    struct log_file *f = (struct log_file *)(void *)base;
    int rc = flush(f);

    return rc != SQLITE_OK ? rc : f->real->pMethods->xFileSize(f->real, ret);
}

static int wal_close(sqlite3_file *base)
{
    struct log_file *f = (struct log_file *)(void *)base;

    flush(f);
    free(f->bytes);
    return f->real->pMethods->xClose(f->real);
}

static int wal_lock(sqlite3_file *base, int level)
{
    sqlite3_file *real = ((struct log_file *)(void *)base)->real;
    return real->pMethods->xLock(real, level);
}

static int wal_unlock(sqlite3_file *base, int level)
{
    sqlite3_file *real = ((struct log_file *)(void *)base)->real;
    return real->pMethods->xUnlock(real, level);
}

static int wal_is_reserved(sqlite3_file *base, int *ret)
{
    sqlite3_file *real = ((struct log_file *)(void *)base)->real;
    return real->pMethods->xCheckReservedLock(real, ret);
}

static int wal_control(sqlite3_file *base, int op, void *arg)
{
    sqlite3_file *real = ((struct log_file *)(void *)base)->real;
    return real->pMethods->xFileControl(real, op, arg);
}

static int wal_sector(sqlite3_file *base)
{
    sqlite3_file *real = ((struct log_file *)(void *)base)->real;
    return real->pMethods->xSectorSize(real);
}

static int wal_traits(sqlite3_file *base)
{
    sqlite3_file *real = ((struct log_file *)(void *)base)->real;
    return real->pMethods->xDeviceCharacteristics(real);
}

static const sqlite3_io_methods wal_methods = {.iVersion = 1,
                                               .xClose = wal_close,
                                               .xRead = wal_read,
                                               .xWrite = wal_write,
                                               .xTruncate = wal_truncate,
                                               .xSync = wal_sync,
                                               .xFileSize = wal_size,
                                               .xLock = wal_lock,
                                               .xUnlock = wal_unlock,
                                               .xCheckReservedLock = wal_is_reserved,
                                               .xFileControl = wal_control,
                                               .xSectorSize = wal_sector,
                                               .xDeviceCharacteristics = wal_traits};

/* Where a write may damage its neighbours on a power cut, SQLite adds frames behind the sync of a
 * transaction; those would be published before they are written.  There the log is left alone. */
static int vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *ret)
{
    sqlite3_vfs *real = vfs->pAppData;
    struct log_file *f = (struct log_file *)(void *)file;

    if (!(flags & SQLITE_OPEN_WAL))
        return real->xOpen(real, name, file, flags, ret);
    *f = (struct log_file){.real = (sqlite3_file *)(void *)(f + 1)};
    int rc = real->xOpen(real, name, f->real, flags, ret);
    if (rc != SQLITE_OK)
        return rc;
    if (wal_traits(file) & SQLITE_IOCAP_POWERSAFE_OVERWRITE) {
        f->base.pMethods = &wal_methods;
        return SQLITE_OK;
    }
    f->real->pMethods->xClose(f->real);
    return real->xOpen(real, name, file, flags, ret);
}

/* A copy of the system's: of its methods only xOpen looks into the struct that is passed to it. */
static sqlite3_vfs gathering;

static void make_vfs(void)
{
    sqlite3_vfs *real = sqlite3_vfs_find(NULL);

    if (real == NULL)
        return;
    gathering = *real;
    gathering.pNext = NULL;
    gathering.zName = "bellhop";
    gathering.szOsFile += (int)sizeof(struct log_file);
    gathering.pAppData = real;
    gathering.xOpen = vfs_open;
    sqlite3_vfs_register(&gathering, 0);
}

const char *log_vfs(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, make_vfs);
    return gathering.zName;
}

/* ---- checkpoints ---- */

enum { REST_PAGES = 150, STEP_PAGES = 1000, LOG_PAGES = 4000, LOG_MAX_PAGES = 8000 };
#define TIGHT_BYTES (UINT64_C(256) << 20) /* free on the disk: less is little room */

/* Runs in every commit on the main connection. */
static int on_commit(void *ctx, sqlite3 *db, const char *name, int pages)
{
    struct store_sqlite *st = ctx;

    st->checkpoints.pages = pages;
    return SQLITE_OK;
}

static int copy_log(sqlite3 *db, int *ret_done)
{
    int pages = 0, done = 0;
    int rc = sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_PASSIVE, &pages, &done);

    *ret_done = rc == SQLITE_OK && done > 0 ? done : 0;
    return rc;
}

static void *checkpoint_main(void *arg)
{
    struct store_sqlite *st = arg;
    struct checkpoints *c = &st->checkpoints;

    pthread_mutex_lock(&c->lock);
    while (!c->stopping) {
        if (!c->wanted) {
            pthread_cond_wait(&c->changed, &c->lock);
            continue;
        }
        int done;
        pthread_mutex_unlock(&c->lock);
        int rc = copy_log(c->db, &done);
        pthread_mutex_lock(&c->lock);
        if (rc == SQLITE_OK)
            c->copied = done;
        else
            log_debug(&st->log, "checkpoint: %s; tried again later", sqlite3_errmsg(c->db));
        c->wanted = false;
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* Between two commits.  Waits for the thread, which may be copying. */
static void copy_rest(struct store_sqlite *st)
{
    struct checkpoints *c = &st->checkpoints;
    int64_t from_us = thread_now_us();
    int done;

    pthread_mutex_lock(&c->lock);
    while (c->wanted)
        pthread_cond_wait(&c->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
    pthread_mutex_lock(&st->db_lock);
    if (copy_log(st->main.db, &done) != SQLITE_OK)
        log_debug(&st->log, "checkpoint: %s; tried again later", sqlite3_errmsg(st->main.db));
    pthread_mutex_unlock(&st->db_lock);
    c->retry_pages = c->pages + STEP_PAGES;
    worker_checkpointed(&st->worker, from_us);
}

/* Lets the thread copy if there is enough to copy.  True: only a little is left. */
static bool let_copy(struct checkpoints *c)
{
    pthread_mutex_lock(&c->lock);
    int left = c->pages - (c->copied <= c->pages ? c->copied : 0);
    bool busy = c->wanted;
    if (!busy && left >= (c->pages < LOG_PAGES ? STEP_PAGES : REST_PAGES)) {
        c->wanted = true;
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
    return !busy && left < REST_PAGES;
}

void checkpoint_maintain(struct store_sqlite *st)
{
    struct checkpoints *c = &st->checkpoints;
    bool tight = st->space.state != SPACE_ROOMY || st->space.disk < TIGHT_BYTES;

    if (c->pages < c->retry_pages - STEP_PAGES)
        c->retry_pages = 0; /* the log began anew */
    if (c->pages < STEP_PAGES)
        return;
    bool little = tight || let_copy(c);
    if (c->pages >= (tight ? LOG_PAGES : c->retry_pages) &&
        (c->pages >= LOG_MAX_PAGES || (c->pages >= LOG_PAGES && little)))
        copy_rest(st);
}

bool checkpoint_start(struct store_sqlite *st, char *ret_why)
{
    struct checkpoints *c = &st->checkpoints;

    sqlite3_wal_hook(st->main.db, on_commit, st);
    if (sqlite3_open_v2(st->path, &c->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) !=
            SQLITE_OK ||
        sqlite3_exec(c->db, "PRAGMA synchronous=FULL; PRAGMA cache_size=-64; PRAGMA mmap_size=0;",
                     NULL, NULL, NULL) != SQLITE_OK)
        return bh_why(ret_why, "cannot open %.160s: %s", st->path, sqlite3_errmsg(c->db));
    c->started = thread_start(&c->thread, checkpoint_main, st, "bellhop-log");
    return c->started || bh_why(ret_why, "cannot start the threads of the store");
}

void checkpoint_stop(struct store_sqlite *st)
{
    struct checkpoints *c = &st->checkpoints;

    if (c->started) {
        pthread_mutex_lock(&c->lock);
        c->stopping = true;
        pthread_cond_broadcast(&c->changed);
        pthread_mutex_unlock(&c->lock);
        pthread_join(c->thread, NULL);
        c->started = false;
    }
    sqlite3_close(c->db);
    c->db = NULL;
}
