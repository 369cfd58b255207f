/* sql_backend.c - the skills of a database: what the sqlite and postgres backends share.
 *
 * The catalog has the metadata.  Every version is a row of the table of versions.  A version with
 * the same body as its predecessor refers to the row that has the body.  Rows of the history are
 * added and never changed. */
#include "skills/sql_backend.h"
#include <stdio.h>
#include <stdlib.h>

/* ---- connections ---- */

static bool told(const struct sqldb *s, bool ok, char *ret_why)
{
    if (!ok)
        snprintf(ret_why, 256, "%s", s->why);
    return ok;
}

static bool sql_begin(void *conn, bool write, char *ret_why)
{
    return told(conn, sqldb_begin(conn, write), ret_why);
}

static bool sql_commit(void *conn, char *ret_why)
{
    return told(conn, sqldb_commit(conn), ret_why);
}

static bool sql_in_doubt(void *conn)
{
    return ((const struct sqldb *)conn)->doubt;
}

static void sql_rollback(void *conn)
{
    sqldb_rollback(conn);
}

static const char *sql_problem(void *conn)
{
    return ((const struct sqldb *)conn)->why;
}

static void sql_close(void *conn)
{
    sqldb_close(conn);
}

static void sql_for_job(void *conn, const struct db_job *job)
{
    ((struct sqldb *)conn)->job = job;
}

/* ---- one skill ---- */

static enum skill_found sql_head(void *conn, const struct skill_where *at, struct str name,
                                 bool with_source, struct arena *arena, struct skill_head *ret_h)
{
    struct catalog_entry *e = arena_alloc(arena, sizeof *e);
    enum skill_found found = catalog_get(conn, at, name, with_source, arena, e);

    if (found != SKILL_FOUND)
        return found;
    *ret_h = e->as_head;
    ret_h->kept = e;
    return with_source && e->row.source.p == NULL ? SKILL_FAILED : SKILL_FOUND;
}

static enum skill_found sql_load(void *conn, const struct skill_where *at, struct str name,
                                 bool with_source, struct arena *arena, struct skill_row *ret_row)
{
    struct catalog_entry e;
    enum skill_found found = catalog_get(conn, at, name, with_source, arena, &e);

    if (found != SKILL_FOUND)
        return found;
    *ret_row = e.row;
    return with_source && e.row.source.p == NULL ? SKILL_FAILED : SKILL_FOUND;
}

static enum skill_found sql_load_version(void *conn, const struct skill_where *at, struct str name,
                                         struct str version, struct arena *arena,
                                         struct str *ret_hash, struct str *ret_source)
{
    struct sqldb *s = conn;

    sqldb_text(s, at->tenant);
    sqldb_text(s, at->ns);
    sqldb_text(s, name);
    sqldb_text(s, version);
    enum skill_found found = catalog_ask(s, SQL_OLD);
    if (found != SKILL_FOUND)
        return found;
    *ret_hash = arena_str(arena, sqldb_get_str(s, 0));
    *ret_source = arena_str(arena, sqldb_get_str(s, 1));
    return SKILL_FOUND;
}

static enum skill_found sql_versions(void *conn, const struct skill_where *at, struct str name,
                                     skill_version_cb *cb, void *ctx)
{
    struct sqldb *s = conn;
    struct catalog_entry e;
    struct arena arena = ARENA_INIT;
    enum skill_found found = catalog_get(s, at, name, false, &arena, &e);
    int64_t last = 0, before = -1;

    arena_done(&arena);
    while (found == SKILL_FOUND && last > before) { /* page by page, until one is empty */
        before = last;
        sqldb_int(s, e.id);
        sqldb_int(s, last);
        sqldb_ask(s, SQL_VERSIONS);
        while (sqldb_next(s)) {
            struct skill_version v = {.name = name,
                                      .content_hash = sqldb_get_str(s, 1),
                                      .status = (enum skill_status)sqldb_get_int(s, 2),
                                      .has_previous = sqldb_get_str(s, 3).p != NULL,
                                      .previous = (enum skill_status)sqldb_get_int(s, 3),
                                      .changed_at = sqldb_get_int(s, 4),
                                      .changed_by = sqldb_get_str(s, 5)};
            last = sqldb_get_int(s, 0);
            if (!cb(ctx, &v))
                return SKILL_FOUND;
        }
        if (!s->ok || (s->job != NULL && db_job_must_stop(s->job)))
            found = SKILL_FAILED;
    }
    return found;
}

/* ---- writing ---- */

/* Writes the version, the token and the tenant's size in one question. */
static bool sql_put(void *conn, const struct skill_where *at, const struct skill_next *n)
{
    struct sqldb *s = conn;
    struct catalog_store store = {0};
    int64_t id, body;

    if (!catalog_put(s, at, n, &store, &id, &body))
        return false;
    sqldb_int(s, id);
    sqldb_text(s, str_make(n->content_hash, SKILL_VERSION_HEX));
    sqldb_text(s, str_of(n->content_hash));
    sqldb_int(s, n->status);
    sqldb_int_if(s, n->has_previous, n->previous);
    sqldb_int(s, n->changed_at);
    sqldb_text(s, n->changed_by.n > 0 ? buf_str(&n->changed_by) : STR_NULL);
    sqldb_int_if(s, body != 0, body);
    sqldb_text(s, body != 0 ? STR_NULL : n->source.n > 0 ? buf_str(&n->source) : STR(""));
    catalog_store_args(s, &store);
    sqldb_text(s, at->tenant);
    sqldb_int(s, CATALOG_VERSION_BYTES + (body != 0 ? 0 : (int64_t)n->source.n));
    return sqldb_ask(s, SQL_VERSION_NEW);
}

/* ---- the whole store ---- */

static enum skill_found sql_bodies(void *conn, const struct skill_where *at, skill_row_cb *cb,
                                   void *ctx)
{
    struct sqldb *s = conn;
    struct buf last = BUF_INIT;
    bool more = true;

    while (more) { /* page by page, until one is empty */
        sqldb_text(s, at->tenant);
        sqldb_text(s, at->ns);
        sqldb_text(s, last.n > 0 ? buf_str(&last) : STR(""));
        sqldb_ask(s, SQL_BODIES);
        bool any = false, goes_on = true;
        while (goes_on && sqldb_next(s)) {
            struct skill_row row = {.name = sqldb_get_str(s, 0), .source = sqldb_get_str(s, 1)};
            any = true;
            buf_reset(&last);
            buf_add_str(&last, row.name);
            goes_on = cb(ctx, &row);
        }
        more = any && goes_on && s->ok;
    }
    buf_done(&last);
    return s->ok ? SKILL_FOUND : SKILL_FAILED;
}

#define SQL_OPS \
    .free = free, .for_job = sql_for_job, .head = sql_head, .put = sql_put, .drop = catalog_drop, \
    .load = sql_load, .load_version = sql_load_version, .versions = sql_versions, \
    .list = catalog_list, .bodies = sql_bodies, .token = catalog_token, .size = catalog_size, \
    .namespaces = catalog_namespaces
#define SQL_JOBS(connect) \
    { \
        .open = (connect), .close = sql_close, .begin = sql_begin, .commit = sql_commit, \
        .in_doubt = sql_in_doubt, .rollback = sql_rollback, .problem = sql_problem \
    }

const struct skill_backend_ops skill_sqlite_ops = {.kind = "sqlite",
                                                   .create = skill_sqlite_new,
                                                   .jobs = SQL_JOBS(skill_sqlite_connect),
                                                   SQL_OPS};
const struct skill_backend_ops skill_postgres_ops = {.kind = "postgres",
                                                     .create = skill_postgres_new,
                                                     .jobs = SQL_JOBS(skill_postgres_connect),
                                                     SQL_OPS};
