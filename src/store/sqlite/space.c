/* space.c - watches the free disk space, and keeps a reserve so that acks and deletes always work.
 *
 * A full disk refuses all writes, acks and deletes too, so a full store could never free space by
 * itself.  So new messages never get the last part of the disk.  A file without content (the
 * ballast) holds space that no other program can take; deleting the ballast lets acks, deletes and
 * the purge go on.
 *
 *      ROOMY --less than the reserve--> SHORT --a write met a full disk--> FULL --again--> DRY
 *        ^                                |  rows and bulk are refused     |  the ballast  |  all
 *        |                                |                                |  is gone      |  that
 *        '--the reserve is there again, and the ballast--------------------'---------------'  grows
 *
 * Free pages inside the database count as room, because the next rows go there, but the write-ahead
 * log needs room on the disk itself.  The same states apply to a configured maximum size. */
#include "store/sqlite/impl.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define LOOK_US 500000
#define MIB (UINT64_C(1) << 20)
#define LOG_MIB 4 /* the write-ahead log wants at least this much of the disk */

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- measuring ---- */

static bool disk_look(const struct store_sqlite *st, uint64_t *ret_free, uint64_t *ret_total)
{
    char *copy = xstrdup(st->path);
    struct statvfs v;
    bool ok = statvfs(dirname(copy), &v) == 0;

    free(copy);
    if (ok) {
        *ret_free = (uint64_t)v.f_bavail * v.f_frsize;
        *ret_total = (uint64_t)v.f_blocks * v.f_frsize;
    }
    return ok;
}

/* ---- the ballast ---- */

static void ballast_name(const struct store_sqlite *st, char ret[4096])
{
    snprintf(ret, 4096, "%s.reserve", st->path);
}

static bool fill(int fd, uint64_t bytes)
{
    static const char zeros[65536];

    if (posix_fallocate(fd, 0, (off_t)bytes) == 0)
        return true;
    for (uint64_t at = 0; at < bytes; at += sizeof zeros)
        if (pwrite(fd, zeros, sizeof zeros, (off_t)at) != (ssize_t)sizeof zeros)
            return false;
    return true;
}

static void ballast_drop(struct store_sqlite *st)
{
    char name[4096];

    ballast_name(st, name);
    unlink(name);
    st->space.ballast = 0;
}

static void ballast_lay(struct store_sqlite *st, uint64_t bytes)
{
    char name[4096];

    ballast_name(st, name);
    int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    bool ok = fd >= 0 && fill(fd, bytes) && ftruncate(fd, (off_t)bytes) == 0;
    if (fd >= 0)
        close(fd);
    st->space.ballast = bytes;
    if (!ok)
        ballast_drop(st);
}

/* The log is gone, which left room: keep some of it for the next start. */
void space_done(struct store_sqlite *st)
{
    if (st->space.ballast == 0 && st->space.reserve > 0)
        ballast_lay(st, st->space.reserve / 2);
    if (st->space.ballast == 0 && st->space.reserve > 0)
        ballast_lay(st, MIB);
}

/* ---- the watch ---- */

static const char *const names[] = {"roomy", "short", "full", "dry"};

static void set_pages(struct store_sqlite *st, uint64_t bytes)
{
    char sql[64];

    if (st->space.max_bytes == 0)
        return;
    snprintf(sql, sizeof sql, "PRAGMA max_page_count=%" PRIu64, bytes / 4096);
    sqlite3_exec(st->main.db, sql, NULL, NULL, NULL);
}

static void enter(struct store_sqlite *st, enum space_state next)
{
    struct space *s = &st->space;

    if (s->state == next)
        return;
    if (next == SPACE_ROOMY)
        log_info(&st->log, "there is room again: free_mib=%" PRIu64, s->room / MIB);
    else if (s->state == SPACE_ROOMY)
        log_error(
            &st->log,
            "%s is nearly full: new messages are refused until there is room: free_mib=%" PRIu64
            " reserve_mib=%" PRIu64,
            s->max_bytes != 0 ? "the database" : "the disk", s->room / MIB, s->reserve / MIB);
    log_debug(&st->log, "space: %s -> %s", names[s->state], names[next]);
    s->state = next;
    __atomic_store_n(&s->told_full, next != SPACE_ROOMY, __ATOMIC_RELAXED);
}

/* How much there is for rows, and whether the log has what it needs. */
static bool measure(struct store_sqlite *st)
{
    struct space *s = &st->space;
    int64_t page = 4096, pages = 0, unused = 0;
    uint64_t disk = 0, total = 0;

    if (!disk_look(st, &disk, &total))
        return true; /* nothing known: SQLite will say */
    s->reserve = min_u64(s->wanted, total / 8);
    if (s->max_bytes != 0)
        s->reserve = min_u64(s->reserve, s->max_bytes / 8);
    s->room = disk;
    s->disk = disk;
    if (s->max_bytes == 0 && disk > 2 * s->reserve)
        return true;
    sql_number(st->main.db, "PRAGMA page_size", &page);
    sql_number(st->main.db, "PRAGMA page_count", &pages);
    sql_number(st->main.db, "PRAGMA freelist_count", &unused);
    uint64_t used = (uint64_t)((pages - unused) * page);
    s->room = disk + (uint64_t)(unused * page);
    if (s->max_bytes != 0)
        s->room = min_u64(s->room, s->max_bytes > used ? s->max_bytes - used : 0);
    return disk >= min_u64(LOG_MIB * MIB, s->reserve / 4);
}

static int64_t file_bytes(const char *path, const char *suffix)
{
    char name[4096];
    struct stat s;

    snprintf(name, sizeof name, "%s%s", path, suffix);
    return stat(name, &s) == 0 ? s.st_size : 0;
}

void space_tell(struct store_sqlite *st)
{
    int64_t bytes = file_bytes(st->path, "") + file_bytes(st->path, "-wal");

    __atomic_store_n(&st->space.told_bytes, bytes, __ATOMIC_RELAXED);
}

void space_look(struct store_sqlite *st, bool now)
{
    struct space *s = &st->space;
    int64_t now_us = thread_now_us();

    if (!now && now_us < s->look_us && s->written <= s->reserve / 8)
        return;
    s->written = 0;
    s->look_us = now_us + LOOK_US;
    bool log_fits = measure(st);
    __atomic_store_n(&s->told_room, (int64_t)s->room, __ATOMIC_RELAXED);
    uint64_t enough = s->state == SPACE_ROOMY ? s->reserve : s->reserve + s->reserve / 4;
    if (log_fits && s->room >= enough) {
        /* The ballast is laid while there is more than the reserve, or on the way back. */
        if (s->reserve > 1 && s->ballast == 0 && s->disk > s->reserve + s->reserve / 2)
            ballast_lay(st, s->reserve / 2);
        set_pages(st, s->max_bytes);
        enter(st, SPACE_ROOMY);
    } else if (s->state == SPACE_ROOMY) {
        enter(st, SPACE_SHORT);
    }
}

bool space_hit(struct store_sqlite *st)
{
    struct space *s = &st->space;

    if (s->state == SPACE_DRY)
        return false;
    if (s->state == SPACE_FULL) {
        enter(st, SPACE_DRY);
        return true;
    }
    ballast_drop(st);
    set_pages(st, s->max_bytes + s->reserve / 2);
    enter(st, SPACE_FULL);
    return true;
}

bool space_is_out(struct store_sqlite *st, int rc)
{
    int why = sqlite3_system_errno(st->main.db);

    return (rc & 0xff) == SQLITE_FULL ||
           ((rc & 0xff) == SQLITE_IOERR && (why == ENOSPC || why == EDQUOT));
}

/* ---- who may ---- */

static bool grows(const struct store_tx *t)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->items[i].verb == KV_PUT || t->items[i].verb == KV_INSERT)
            return true;
    return false;
}

static bool may(struct store_sqlite *st, struct store_op *op)
{
    bool dry = st->space.state == SPACE_DRY;
    struct store_append *a = container_of(op, struct store_append, op);
    const struct store_tx *t = container_of(op, const struct store_tx, op);

    if (op->kind == STORE_APPEND)
        return (a->replaces != 0 && !dry) || !worker_take_append(a);
    if (op->kind == STORE_TX)
        return !t->bulk && !(dry && grows(t));
    return true;
}

bool space_may(struct store_sqlite *st, struct store_op *op)
{
    if (op->kind == STORE_APPEND)
        st->space.written += container_of(op, struct store_append, op)->frame.n;
    if (st->space.state == SPACE_ROOMY || may(st, op))
        return true;
    op->err = BH_BUSY;
    return false;
}

/* ---- start ---- */

void space_init(struct store_sqlite *st, const struct store_settings *settings)
{
    struct space *s = &st->space;
    uint64_t disk, total;
    char name[4096];

    s->wanted = settings != NULL ? settings->reserve : 0;
    s->max_bytes = settings != NULL ? settings->max_bytes : 0;
    ballast_name(st, name);
    if (access(name, F_OK) == 0)
        s->ballast = 1; /* laid in an earlier life; whatever its size */
    if (disk_look(st, &disk, &total) && disk < LOG_MIB * MIB)
        ballast_drop(st); /* so that opening finds room */
}
