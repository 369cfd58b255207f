/* sql_backend.c - the skills of a database: what the sqlite and postgres backends share.
 *
 * The catalog has the metadata.  Every version is a row of the table of versions.  A version with
 * the same body as its predecessor refers to the row that has the body.  Rows of the history are
 * added and never changed. */
#include "skills/sql_backend.h"
#include <stdio.h>
#include <stdlib.h>

/* ---- connections ---- */

static bool told(const struct side *s, bool ok, char *ret_why)
{
    if (!ok)
        snprintf(ret_why, 256, "%s", s->why);
    return ok;
}

static bool sql_begin(void *conn, bool write, char *ret_why)
{
    return told(conn, side_begin(conn, write), ret_why);
}

static bool sql_commit(void *conn, char *ret_why)
{
    return told(conn, side_commit(conn), ret_why);
}

static bool sql_in_doubt(void *conn)
{
    return ((const struct side *)conn)->doubt;
}

static void sql_rollback(void *conn)
{
    side_rollback(conn);
}

static const char *sql_problem(void *conn)
{
    return ((const struct side *)conn)->why;
}

static void sql_close(void *conn)
{
    side_close(conn);
}

static void sql_for_job(void *conn, const struct db_job *job)
{
    ((struct side *)conn)->job = job;
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
    struct side *s = conn;

    side_text(s, at->tenant);
    side_text(s, at->ns);
    side_text(s, name);
    side_text(s, version);
    enum skill_found found = catalog_ask(s, SQL_OLD);
    if (found != SKILL_FOUND)
        return found;
    *ret_hash = arena_str(arena, side_get_str(s, 0));
    *ret_source = arena_str(arena, side_get_str(s, 1));
    return SKILL_FOUND;
}

static enum skill_found sql_versions(void *conn, const struct skill_where *at, struct str name,
                                     skill_version_cb *cb, void *ctx)
{
    struct side *s = conn;
    struct catalog_entry e;
    struct arena arena = ARENA_INIT;
    enum skill_found found = catalog_get(s, at, name, false, &arena, &e);
    int64_t last = 0, before = -1;

    arena_done(&arena);
    while (found == SKILL_FOUND && last > before) { /* page by page, until one is empty */
        before = last;
        side_int(s, e.id);
        side_int(s, last);
        side_ask(s, SQL_VERSIONS);
        while (side_next(s)) {
            struct skill_version v = {.name = name,
                                      .content_hash = side_get_str(s, 1),
                                      .status = (enum skill_status)side_get_int(s, 2),
                                      .has_previous = side_get_str(s, 3).p != NULL,
                                      .previous = (enum skill_status)side_get_int(s, 3),
                                      .changed_at = side_get_int(s, 4),
                                      .changed_by = side_get_str(s, 5)};
            last = side_get_int(s, 0);
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
    struct side *s = conn;
    struct catalog_store store = {0};
    int64_t id, body;

    if (!catalog_put(s, at, n, &store, &id, &body))
        return false;
    side_int(s, id);
    side_text(s, str_make(n->content_hash, SKILL_VERSION_HEX));
    side_text(s, str_of(n->content_hash));
    side_int(s, n->status);
    side_int_if(s, n->has_previous, n->previous);
    side_int(s, n->changed_at);
    side_text(s, n->changed_by.n > 0 ? buf_str(&n->changed_by) : STR_NULL);
    side_int_if(s, body != 0, body);
    side_text(s, body != 0 ? STR_NULL : n->source.n > 0 ? buf_str(&n->source) : STR(""));
    catalog_store_args(s, &store);
    side_text(s, at->tenant);
    side_int(s, CATALOG_VERSION_BYTES + (body != 0 ? 0 : (int64_t)n->source.n));
    return side_ask(s, SQL_VERSION_NEW);
}

/* ---- the whole store ---- */

static enum skill_found sql_bodies(void *conn, const struct skill_where *at, skill_row_cb *cb,
                                   void *ctx)
{
    struct side *s = conn;
    struct buf last = BUF_INIT;
    bool more = true;

    while (more) { /* page by page, until one is empty */
        side_text(s, at->tenant);
        side_text(s, at->ns);
        side_text(s, last.n > 0 ? buf_str(&last) : STR(""));
        side_ask(s, SQL_BODIES);
        bool any = false, goes_on = true;
        while (goes_on && side_next(s)) {
            struct skill_row row = {.name = side_get_str(s, 0), .source = side_get_str(s, 1)};
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

#define SHARED_OPS \
    .free = free, .for_job = sql_for_job, .head = sql_head, .put = sql_put, .drop = catalog_drop, \
    .load = sql_load, .load_version = sql_load_version, .versions = sql_versions, \
    .list = catalog_list, .bodies = sql_bodies, .token = catalog_token, .size = catalog_size, \
    .namespaces = catalog_namespaces
#define SHARED_LANES(connect) \
    { \
        .open = (connect), .close = sql_close, .begin = sql_begin, .commit = sql_commit, \
        .in_doubt = sql_in_doubt, .rollback = sql_rollback, .problem = sql_problem \
    }

const struct skill_backend_ops skill_sqlite_ops = {.kind = "sqlite",
                                                   .create = skill_sqlite_new,
                                                   .jobs = SHARED_LANES(skill_sqlite_connect),
                                                   SHARED_OPS};
const struct skill_backend_ops skill_postgres_ops = {.kind = "postgres",
                                                     .create = skill_postgres_new,
                                                     .jobs = SHARED_LANES(skill_postgres_connect),
                                                     SHARED_OPS};
