/* postgres_backend.c - skills in the PostgreSQL that several nodes share.
 *
 * The same shape as in SQLite: a row per skill with its metadata, a row per version, a sum per
 * store for the change token.  Whoever writes holds the lock of these tables until the commit, on
 * all nodes, so body, history and token always move together; reads see one moment and wait for
 * nobody.  What has bytes of its own in the history keeps them; a version that repeats the bytes of
 * the one before names that one's row.  Rows of the history are added and never changed. */
#include "skills/postgres_rows.h"
#include <stdlib.h>
#include <stdio.h>
#include "base/mem.h"
#include "skills/text.h"

struct ctx {
    char *url; /* owned */
};

struct pg_conn {
    struct pg_desk *desk; /* owned */
    const struct lane_job *job;
    bool doubt;
};

static bool tell_sizes(const struct skill_backend_config *cfg, char *ret_why)
{
    struct pg_desk *d = pg_desk_new(cfg->url, &skill_pg_schema);
    int rows = pg_desk_begin(d, false) ? pg_desk_ask(d, SKILL_PG_SIZES) : -1;

    for (int i = 0; cfg->on_size != NULL && i < rows; i++)
        cfg->on_size(cfg->on_size_ctx, pg_get_bytes(d, i, 0), (uint64_t)pg_get_int(d, i, 1));
    if (rows < 0)
        snprintf(ret_why, 256, "PostgreSQL, looking at the skills: %.160s", pg_desk_why(d));
    pg_desk_free(d);
    return rows >= 0;
}

void *skill_postgres_new(const struct skill_backend_config *cfg, char *ret_why)
{
    if (!pg_desk_prepare(cfg->url, &skill_pg_schema, ret_why) || !tell_sizes(cfg, ret_why))
        return NULL;
    struct ctx *c = xcalloc(1, sizeof *c);
    c->url = xstrdup(cfg->url);
    return c;
}

static void ctx_free(void *ctx)
{
    struct ctx *c = ctx;

    free(c->url);
    free(c);
}

/* ---- connections ---- */

static void *conn_open(void *ctx, struct str key, bool writer, char *ret_why)
{
    const struct ctx *c = ctx;
    struct pg_conn *conn = xcalloc(1, sizeof *conn);

    conn->desk = pg_desk_new(c->url, &skill_pg_schema);
    return conn;
}

static void conn_close(void *conn)
{
    pg_desk_free(((struct pg_conn *)conn)->desk);
    free(conn);
}

static const char *problem(void *conn)
{
    return pg_desk_why(((struct pg_conn *)conn)->desk);
}

static bool conn_begin(void *conn, bool write, char *ret_why)
{
    struct pg_conn *c = conn;

    c->doubt = false;
    bool ok = pg_desk_begin(c->desk, write);
    if (!ok)
        snprintf(ret_why, 256, "%s", problem(c));
    return ok;
}

static bool conn_commit(void *conn, char *ret_why)
{
    struct pg_conn *c = conn;
    enum desk_end end = pg_desk_commit(c->desk);

    c->doubt = end == DESK_UNKNOWN;
    if (end != DESK_DONE)
        snprintf(ret_why, 256, "%s", problem(c));
    return end == DESK_DONE;
}

static bool conn_in_doubt(void *conn)
{
    return ((struct pg_conn *)conn)->doubt;
}

static void conn_rollback(void *conn)
{
    pg_desk_rollback(((struct pg_conn *)conn)->desk);
}

static void for_job(void *conn, const struct lane_job *job)
{
    ((struct pg_conn *)conn)->job = job;
}

static struct pg_desk *desk_of(void *conn)
{
    return ((struct pg_conn *)conn)->desk;
}

static bool must_stop(void *conn)
{
    const struct pg_conn *c = conn;
    return c->job != NULL && lane_job_must_stop(c->job);
}

/* ---- one skill ---- */

static enum skill_found head(void *conn, const struct skill_where *at, struct str name,
                             bool with_source, struct arena *arena, struct skill_head *ret_h)
{
    struct skill_pg_entry e;
    enum skill_found found = skill_pg_get(desk_of(conn), at, name, with_source, arena, &e);

    if (found == SKILL_FOUND)
        *ret_h = e.as_head;
    return found;
}

static enum skill_found load(void *conn, const struct skill_where *at, struct str name,
                             bool with_source, struct arena *arena, struct skill_row *ret_row)
{
    struct skill_pg_entry e;
    enum skill_found found = skill_pg_get(desk_of(conn), at, name, with_source, arena, &e);

    if (found == SKILL_FOUND)
        *ret_row = e.row;
    return found;
}

static enum skill_found load_version(void *conn, const struct skill_where *at, struct str name,
                                     struct str version, struct arena *arena, struct str *ret_hash,
                                     struct str *ret_source)
{
    struct pg_desk *d = desk_of(conn);

    pg_arg_bytes(d, at->tenant);
    pg_arg_bytes(d, at->ns);
    pg_arg_bytes(d, name);
    pg_arg_bytes(d, version);
    int rows = pg_desk_ask(d, SKILL_PG_OLD);
    if (rows <= 0)
        return rows < 0 ? SKILL_FAILED : SKILL_MISSING;
    *ret_hash = arena_str(arena, pg_get_bytes(d, 0, 0));
    *ret_source = arena_str(arena, pg_get_bytes(d, 0, 1));
    return SKILL_FOUND;
}

static enum skill_found versions(void *conn, const struct skill_where *at, struct str name,
                                 skill_version_cb *cb, void *ctx)
{
    struct pg_desk *d = desk_of(conn);
    struct skill_pg_entry e;
    struct arena arena = ARENA_INIT;
    enum skill_found found = skill_pg_get(d, at, name, false, &arena, &e);
    int64_t last = 0;
    int rows = SKILL_PG_PAGE;

    arena_done(&arena);
    while (found == SKILL_FOUND && rows == SKILL_PG_PAGE) {
        pg_arg_int(d, e.id);
        pg_arg_int(d, last);
        if (must_stop(conn) || (rows = pg_desk_ask(d, SKILL_PG_VERSIONS)) < 0)
            return SKILL_FAILED;
        for (int i = 0; i < rows; i++) {
            struct skill_version v = {.name = name,
                                      .content_hash = pg_get_bytes(d, i, 1),
                                      .status = (enum skill_status)pg_get_int(d, i, 2),
                                      .has_previous = !pg_get_is_null(d, i, 3),
                                      .previous = (enum skill_status)pg_get_int(d, i, 3),
                                      .changed_at = pg_get_int(d, i, 4),
                                      .changed_by = pg_get_bytes(d, i, 5)};
            last = pg_get_int(d, i, 0);
            if (!cb(ctx, &v))
                return SKILL_FOUND;
        }
    }
    return found;
}

/* ---- writing ---- */

static struct str or_absent(const struct buf *b)
{
    return b->n > 0 ? buf_str(b) : STR_NULL;
}

struct tags {
    struct arena arena;
    struct str *all; /* in the arena */
    size_t n;
};

static void tag_add(struct tags *t, struct json tag)
{
    if (json_type(tag) == JSON_STRING)
        t->all[t->n++] = arena_str(&t->arena, json_as_str(tag));
}

/* metadata_bag.tags: a list of texts, or one text. */
static void tags_of(struct str bag, struct tags *ret)
{
    struct json_parser *p = json_parser_new();
    struct json doc;

    if (bag.n > 0 && json_parse(p, bag, &doc)) {
        struct json tags = json_get(doc, "tags");
        size_t n = json_type(tags) == JSON_ARRAY ? json_count(tags) : 1;
        ret->all = arena_alloc(&ret->arena, (n + 1) * sizeof *ret->all);
        tag_add(ret, tags);
        for (struct json_iter it = {0}; json_type(tags) == JSON_ARRAY && json_next(tags, &it);)
            tag_add(ret, it.value);
    }
    json_parser_free(p);
}

/* What the skill is from now on; see the statement. */
static void skill_args(struct pg_desk *d, const struct skill_next *n, const struct tags *tags)
{
    struct str type = n->listed_type;

    pg_arg_bytes(d, n->name);
    pg_arg_int(d, n->status);
    pg_arg_bytes(d, type);
    pg_arg_bytes(d, or_absent(&n->author));
    pg_arg_int(d, n->changed_at);
    pg_arg_int(d, n->created_at);
    pg_arg_int(d, n->status_changed_at);
    pg_arg_bytes(d, str_of(n->content_hash));
    pg_arg_bytes(d, or_absent(&n->description));
    pg_arg_bytes(d, or_absent(&n->type));
    pg_arg_bytes(d, or_absent(&n->bag));
    pg_arg_bytes(d, buf_str(&n->meta));
    pg_arg_list(d, tags->all, tags->n);
}

static bool write_skill(struct pg_desk *d, const struct skill_pg_entry *e,
                        const struct skill_pg_store *s, const struct skill_next *n, int64_t *ret_id)
{
    struct tags tags = {.arena = ARENA_INIT};

    tags_of(or_absent(&n->bag), &tags);
    pg_arg_int(d, s->id);
    skill_args(d, n, &tags);
    int rows = pg_desk_ask(d, e->id != 0 ? SKILL_PG_SET : SKILL_PG_NEW);
    arena_done(&tags.arena);
    *ret_id = rows == 1 ? pg_get_int(d, 0, 0) : 0;
    return rows == 1;
}

/* The version, the token, how much the tenant has: one question. */
static bool write_version(struct pg_desk *d, const struct skill_where *at, int64_t skill,
                          const struct skill_pg_store *s, const struct skill_next *n, int64_t body)
{
    pg_arg_int(d, skill);
    pg_arg_bytes(d, str_make(n->content_hash, SKILL_VERSION_HEX));
    pg_arg_bytes(d, str_of(n->content_hash));
    pg_arg_int(d, n->status);
    if (n->has_previous)
        pg_arg_int(d, n->previous);
    else
        pg_arg_null(d);
    pg_arg_int(d, n->changed_at);
    pg_arg_bytes(d, or_absent(&n->changed_by));
    if (body != 0)
        pg_arg_int(d, body);
    else
        pg_arg_null(d);
    pg_arg_bytes(d, body != 0 ? STR_NULL : n->source.n > 0 ? buf_str(&n->source) : STR(""));
    pg_arg_int(d, s->id);
    pg_arg_bytes(d, str_make(s->sum.bytes, sizeof s->sum.bytes));
    pg_arg_int(d, (int64_t)s->n);
    pg_arg_bytes(d, at->tenant);
    pg_arg_int(d, SKILL_PG_VERSION_BYTES + (body != 0 ? 0 : (int64_t)n->source.n));
    return pg_desk_ask(d, SKILL_PG_VERSION_NEW) >= 0;
}

static bool put(void *conn, const struct skill_where *at, const struct skill_next *n)
{
    struct pg_desk *d = desk_of(conn);
    struct skill_pg_store s;
    struct skill_pg_entry old = {0};
    struct arena arena = ARENA_INIT;
    int64_t id = 0;
    bool ok = skill_pg_store_get(d, at, true, &s) == SKILL_FOUND;
    enum skill_found found = ok ? skill_pg_get(d, at, n->name, false, &arena, &old) : SKILL_FAILED;

    ok = found != SKILL_FAILED;
    if (ok) {
        if (found == SKILL_FOUND)
            skill_sum_remove(&s.sum, old.row.meta);
        skill_sum_add(&s.sum, buf_str(&n->meta));
        s.n += found == SKILL_MISSING;
        bool same = found == SKILL_FOUND && str_eq(old.row.content_hash, str_of(n->content_hash));
        ok = write_skill(d, &old, &s, n, &id) &&
             write_version(d, at, id, &s, n, same ? old.bytes_at : 0);
    }
    arena_done(&arena);
    return ok;
}

static bool drop(void *conn, const struct skill_where *at, struct str name)
{
    struct pg_desk *d = desk_of(conn);
    struct skill_pg_store s;
    struct skill_pg_entry e;
    struct arena arena = ARENA_INIT;
    bool ok = skill_pg_store_get(d, at, false, &s) == SKILL_FOUND &&
              skill_pg_get(d, at, name, false, &arena, &e) == SKILL_FOUND;

    if (ok) {
        skill_sum_remove(&s.sum, e.row.meta);
        pg_arg_int(d, e.id);
        pg_arg_int(d, s.id);
        pg_arg_bytes(d, str_make(s.sum.bytes, sizeof s.sum.bytes));
        pg_arg_int(d, (int64_t)s.n - 1);
        pg_arg_bytes(d, at->tenant);
        ok = pg_desk_ask(d, SKILL_PG_DROP) >= 0;
    }
    arena_done(&arena);
    return ok;
}

/* ---- the whole store ---- */

static enum skill_found list(void *conn, const struct skill_where *at, const struct skill_query *q,
                             skill_row_cb *cb, void *ctx)
{
    return skill_pg_list(desk_of(conn), ((struct pg_conn *)conn)->job, at, q, cb, ctx);
}

static enum skill_found bodies(void *conn, const struct skill_where *at, skill_row_cb *cb,
                               void *ctx)
{
    return skill_pg_bodies(desk_of(conn), at, cb, ctx);
}

static enum skill_found token(void *conn, const struct skill_where *at,
                              char ret_token[SKILL_TOKEN_BYTES])
{
    struct skill_pg_store s = {0};
    enum skill_found found = skill_pg_store_get(desk_of(conn), at, false, &s);

    if (found != SKILL_FAILED)
        skill_sum_token(&s.sum, s.n, ret_token);
    return found == SKILL_FAILED ? SKILL_FAILED : SKILL_FOUND;
}

static bool size_of(void *conn, struct str tenant, uint64_t *ret_bytes)
{
    struct pg_desk *d = desk_of(conn);

    pg_arg_bytes(d, tenant);
    int rows = pg_desk_ask(d, SKILL_PG_SIZE);
    *ret_bytes = rows > 0 ? (uint64_t)pg_get_int(d, 0, 0) : 0;
    return rows >= 0;
}

static bool namespaces(void *conn, struct str tenant, skill_ns_cb *cb, void *ctx)
{
    struct pg_desk *d = desk_of(conn);

    pg_arg_bytes(d, tenant);
    int rows = pg_desk_ask(d, SKILL_PG_NAMESPACES);
    for (int i = 0; i < rows; i++)
        cb(ctx, pg_get_bytes(d, i, 0));
    return rows >= 0;
}

const struct skill_backend_ops skill_postgres_ops = {
    .kind = "postgres",
    .lanes = {.open = conn_open,
              .close = conn_close,
              .begin = conn_begin,
              .commit = conn_commit,
              .in_doubt = conn_in_doubt,
              .rollback = conn_rollback,
              .problem = problem},
    .free = ctx_free,
    .for_job = for_job,
    .head = head,
    .put = put,
    .drop = drop,
    .load = load,
    .load_version = load_version,
    .versions = versions,
    .list = list,
    .bodies = bodies,
    .token = token,
    .size = size_of,
    .namespaces = namespaces,
};
