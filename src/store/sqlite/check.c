/* check.c - is a database whole?  Read all of it, and see that it is one of ours. */
#include <stdio.h>
#include "store/sqlite/impl.h"

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
    struct sql_conn c = {0};
    int64_t id = 0;
    enum bh_err err = BH_UNAVAILABLE;

    if (sqlite3_open_v2(path, &c.db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) !=
        SQLITE_OK) {
        snprintf(ret_why, 256, "cannot open %.160s: %s", path, sqlite3_errmsg(c.db));
        goto out;
    }
    sqlite3_busy_timeout(c.db, 5000);
    if (!sql_one_int(&c, "PRAGMA application_id", &id))
        snprintf(ret_why, 256, "cannot read %.160s: %s", path, sqlite3_errmsg(c.db));
    else if ((!ours || schema_id_is_ours(path, id, ret_why)) && is_whole(c.db, path, ret_why))
        err = BH_OK;
out:
    sqlite3_close(c.db);
    return err;
}

enum bh_err store_sqlite_check(const char *path, char *ret_why)
{
    return check(path, true, ret_why);
}

enum bh_err store_sqlite_whole(const char *path, char *ret_why)
{
    return check(path, false, ret_why);
}
