/* copy.c - a copy of a database that may be in use, as it was at one moment.
 *
 * The copy runs in one read transaction, which keeps a snapshot.  Writers go on meanwhile, and the
 * copy, some pages at a time, never has to start again. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#include "base/file.h"
#include "store/sqlite/impl.h"

#define PAGES_AT_ONCE 1024
#define BOOTS_AHEAD 4096 /* starts that the copy's owner may have had since */

static int copy_pages(sqlite3 *from, sqlite3 *to, store_progress_cb *each, void *ctx)
{
    sqlite3_backup *b = sqlite3_backup_init(to, "main", from, "main");
    int rc = SQLITE_OK;

    if (b == NULL)
        return sqlite3_errcode(to);
    while (rc == SQLITE_OK) {
        rc = sqlite3_backup_step(b, PAGES_AT_ONCE);
        uint64_t all = (uint64_t)sqlite3_backup_pagecount(b);
        uint64_t left = (uint64_t)sqlite3_backup_remaining(b);
        if (each != NULL && !each(ctx, all - left, all) && rc == SQLITE_OK)
            rc = SQLITE_ABORT;
    }
    int end = sqlite3_backup_finish(b);
    return rc == SQLITE_DONE ? end : rc;
}

enum bh_err store_sqlite_copy(const char *from, const char *to, store_progress_cb *each, void *ctx,
                              char *ret_why)
{
    sqlite3 *src = NULL, *dst = NULL;
    enum bh_err err = BH_UNAVAILABLE;
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;

    if (sqlite3_open_v2(from, &src, flags, NULL) != SQLITE_OK ||
        sqlite3_busy_timeout(src, 10000) != SQLITE_OK ||
        sqlite3_exec(src, "BEGIN; SELECT count(*) FROM sqlite_schema", NULL, NULL, NULL) !=
            SQLITE_OK) {
        snprintf(ret_why, 256, "cannot read %.160s: %s", from, sqlite3_errmsg(src));
        goto out;
    }
    int fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    if (fd < 0 || sqlite3_open_v2(to, &dst, flags, NULL) != SQLITE_OK) {
        snprintf(ret_why, 256, "cannot make %.160s", to);
        goto out;
    }
    int rc = copy_pages(src, dst, each, ctx);
    if (rc != SQLITE_OK)
        snprintf(ret_why, 256, "cannot copy %.100s: %s", from, sqlite3_errstr(rc));
    else if (!file_sync(to))
        snprintf(ret_why, 256, "cannot write %.160s to the disk", to);
    else
        err = BH_OK;
out:
    sqlite3_close(dst);
    sqlite3_close(src);
    if (err == BH_OK)
        err = store_sqlite_whole(to, ret_why);
    return err;
}

enum bh_err store_sqlite_adopt(const char *path, char *ret_why)
{
    sqlite3 *db = NULL;
    int64_t version;
    char sql[128];
    enum bh_err err = store_sqlite_check(path, ret_why);

    if (err != BH_OK)
        return err;
    /* Ids made after the copy was taken must not be made again. */
    snprintf(sql, sizeof sql, "UPDATE meta SET value = value + %d WHERE name = 'boot'",
             BOOTS_AHEAD);
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK ||
        !sql_number(db, "PRAGMA user_version", &version))
        err =
            bh_err_why(BH_UNAVAILABLE, ret_why, "cannot read %.160s: %s", path, sqlite3_errmsg(db));
    else if (version > schema_version())
        err = bh_err_why(BH_REFUSED, ret_why, "%.160s was written by a newer bellhop", path);
    else if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
        err = bh_err_why(BH_UNAVAILABLE, ret_why, "cannot write %.160s: %s", path,
                         sqlite3_errmsg(db));
    sqlite3_close(db);
    return err;
}

/* ---- is a database whole? ---- */

/* The first complaint of quick_check, or none. */
static bool is_whole(sqlite3 *db, const char *path, char *ret_why)
{
    sqlite3_stmt *q = NULL;
    int rc = sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &q, NULL);

    if (rc == SQLITE_OK)
        rc = sqlite3_step(q);
    const char *says = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(q, 0) : NULL;
    bool ok = says != NULL && sqlite3_stricmp(says, "ok") == 0;
    if (!ok)
        snprintf(ret_why, 256, "%.100s is damaged: %.120s", path,
                 says != NULL ? says : sqlite3_errmsg(db));
    sqlite3_finalize(q);
    return ok;
}

static enum bh_err check(const char *path, bool ours, char *ret_why)
{
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;
    sqlite3 *db = NULL;
    int64_t id = 0;
    bool ok = false;

    if (sqlite3_open_v2(path, &db, flags, NULL) != SQLITE_OK ||
        sqlite3_busy_timeout(db, 5000) != SQLITE_OK ||
        !sql_number(db, "PRAGMA application_id", &id))
        snprintf(ret_why, 256, "cannot read %.160s: %s", path, sqlite3_errmsg(db));
    else
        ok = (!ours || schema_id_is_ours(path, id, ret_why)) && is_whole(db, path, ret_why);
    sqlite3_close(db);
    return ok ? BH_OK : BH_UNAVAILABLE;
}

enum bh_err store_sqlite_check(const char *path, char *ret_why)
{
    return check(path, true, ret_why);
}

enum bh_err store_sqlite_whole(const char *path, char *ret_why)
{
    return check(path, false, ret_why);
}
