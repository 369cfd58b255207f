/* postgres_backend.c - the backend that keeps skills in a PostgreSQL that several nodes share.
 *
 *      skill_store    tenant, namespace: the sum and the number of its skills
 *      skill          one row per name: metadata, the newest version
 *      skill_version  one row per write, oldest first
 *      skill_size     bytes per tenant, for limits.skill_bytes
 *
 * The tables have the same shape as in SQLite.  A writer holds one lock until its commit, across
 * all nodes, so body, history and token change together.  Reads use a snapshot and never wait for
 * the lock.  A version with the same body as its predecessor refers to the predecessor's row.  Rows
 * of the history are added and never changed.
 *
 * A query scans the index of names page by page.  Each page starts after the last name of the
 * previous page, and all pages read one snapshot.  The server applies all filters but the name
 * pattern.  With a pattern, the names are fetched first and matched here; then only the matching
 * rows are fetched. */
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"
#include "base/regex.h"
#include "skills/text.h"
#include "skills/backend.h"
#include "store/postgres/side.h"

/* ---- the tables, and reading them ---- */

#define SKILL_PG_PAGE 256          /* rows per page; the statements repeat it */
#define SKILL_PG_VERSION_BYTES 256 /* of a row besides its text; the statements repeat it */

enum {
    SKILL_PG_STORE,
    SKILL_PG_STORE_NEW,
    SKILL_PG_GET,
    SKILL_PG_OLD,
    SKILL_PG_VERSIONS,
    SKILL_PG_NEW,
    SKILL_PG_SET,
    SKILL_PG_VERSION_NEW,
    SKILL_PG_DROP,
    SKILL_PG_SIZE,
    SKILL_PG_SIZES,
    SKILL_PG_NAMESPACES,
    SKILL_PG_LIST,
    SKILL_PG_NAMES,
    SKILL_PG_PICK,
    SKILL_PG_BODIES,
    N_SKILL_PG_STATEMENTS
};

struct skill_pg_store {
    int64_t id;
    struct skill_sum sum;
    uint64_t n;
};

struct skill_pg_entry {   /* borrowed from the arena */
    int64_t id, bytes_at; /* @bytes_at: the version that stores the current body */
    struct skill_row row;
    struct skill_head as_head;
};

#define BODY_BYTES "4194304" /* of bodies in one result, about */

static const char *const migrations[] = {
    "CREATE TABLE skill_store (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, tenant bytea "
    "NOT NULL, ns bytea NOT NULL, sum bytea NOT NULL, n bigint NOT NULL, UNIQUE (tenant, ns)) WITH "
    "(fillfactor = 50);"
    "CREATE TABLE skill (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, store bigint NOT "
    "NULL, name bytea NOT NULL, status int NOT NULL, type bytea NOT NULL, author bytea, updated_at "
    "bigint NOT NULL, created_at bigint NOT NULL, status_changed_at bigint NOT NULL, content_hash "
    "bytea NOT NULL, description bytea, said_type bytea, bag bytea, meta bytea NOT NULL, tags "
    "bytea[] NOT NULL, bytes_at bigint NOT NULL, UNIQUE (store, name)) WITH (fillfactor = 70);"
    "CREATE TABLE skill_version (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, skill bigint "
    "NOT NULL, version bytea NOT NULL, content_hash bytea NOT NULL, status int NOT NULL, previous "
    "int, changed_at bigint NOT NULL, changed_by bytea, body bigint, source bytea);"
    "CREATE INDEX skill_version_of ON skill_version (skill, id);"
    "CREATE TABLE skill_size (tenant bytea PRIMARY KEY, bytes bigint NOT NULL) WITH (fillfactor = "
    "50);",
};

#define OF_STORE "skill_store t JOIN skill s ON s.store = t.id WHERE t.tenant = $1 AND t.ns = $2"
#define META "name, meta, content_hash, status, created_at, updated_at, status_changed_at"
#define FILTERS \
    " store = $1 AND name > $2 AND ($3::bigint IS NULL OR (1 << status) & $3::bigint::int <> 0) " \
    "AND ($4::bytea IS NULL OR type = $4) AND ($5::bytea IS NULL OR author = $5) AND ($6::bigint " \
    "IS NULL OR updated_at >= $6) AND ($7::bytea[] = '{}' OR tags @> $7) ORDER BY name LIMIT $8"

static const char *const statements[N_SKILL_PG_STATEMENTS] = {
    [SKILL_PG_STORE] = "SELECT id, sum, n FROM skill_store WHERE tenant = $1 AND ns = $2",
    [SKILL_PG_STORE_NEW] = "INSERT INTO skill_store (tenant, ns, sum, n) VALUES ($1, $2, $3, 0) "
                           "RETURNING id",
    [SKILL_PG_GET] = "SELECT s.id, s.bytes_at, " META ", author, bag, description, said_type, CASE "
                     "WHEN $4::bool THEN (SELECT source FROM skill_version v WHERE v.id = "
                     "s.bytes_at) END FROM " OF_STORE " AND s.name = $3",
    [SKILL_PG_OLD] = "SELECT v.content_hash, (SELECT source FROM skill_version b WHERE b.id = "
                     "coalesce(v.body, v.id)) FROM skill_version v WHERE v.skill = (SELECT s.id "
                     "FROM " OF_STORE " AND s.name = $3) AND v.version = $4 ORDER BY v.id DESC "
                     "LIMIT 1",
    [SKILL_PG_VERSIONS] = "SELECT id, content_hash, status, previous, changed_at, changed_by FROM "
                          "skill_version WHERE skill = $1 AND id > $2 ORDER BY id LIMIT 256",
    [SKILL_PG_NEW] =
        "INSERT INTO skill (store, name, status, type, author, updated_at, created_at, "
        "status_changed_at, content_hash, description, said_type, bag, meta, tags, bytes_at) "
        "VALUES ($1, $2, $3::bigint, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, 0) RETURNING "
        "id",
    [SKILL_PG_SET] =
        "UPDATE skill SET status = $3::bigint, type = $4, author = $5, updated_at = $6, created_at "
        "= $7, status_changed_at = $8, content_hash = $9, description = $10, said_type = $11, bag "
        "= $12, meta = $13, tags = $14 WHERE store = $1 AND name = $2 RETURNING id",
    [SKILL_PG_VERSION_NEW] =
        "WITH v AS (INSERT INTO skill_version (skill, version, content_hash, status, previous, "
        "changed_at, changed_by, body, source) VALUES ($1, $2, $3, $4::bigint, $5::bigint, $6, $7, "
        "$8, $9) RETURNING id), s AS (UPDATE skill SET bytes_at = coalesce($8, (SELECT id FROM v)) "
        "WHERE id = $1), t AS (UPDATE skill_store SET sum = $11, n = $12 WHERE id = $10) INSERT "
        "INTO skill_size AS z VALUES ($13, $14::bigint) ON CONFLICT (tenant) DO UPDATE SET bytes = "
        "z.bytes + excluded.bytes",
    [SKILL_PG_DROP] =
        "WITH gone AS (DELETE FROM skill_version WHERE skill = $1 RETURNING 256 + "
        "coalesce(octet_length(source), 0) AS bytes), s AS (DELETE FROM skill WHERE id = $1), t AS "
        "(UPDATE skill_store SET sum = $3, n = $4 WHERE id = $2) UPDATE skill_size SET bytes = "
        "greatest(bytes - (SELECT coalesce(sum(bytes), 0) FROM gone), 0) WHERE tenant = $5",
    [SKILL_PG_SIZE] = "SELECT bytes FROM skill_size WHERE tenant = $1",
    [SKILL_PG_SIZES] = "SELECT tenant, bytes FROM skill_size",
    [SKILL_PG_NAMESPACES] = "SELECT ns FROM skill_store WHERE tenant = $1 ORDER BY ns",
    [SKILL_PG_LIST] = "SELECT " META " FROM skill WHERE" FILTERS " OFFSET $9",
    [SKILL_PG_NAMES] = "SELECT name, id FROM skill WHERE" FILTERS,
    [SKILL_PG_PICK] = "SELECT " META " FROM skill WHERE id = ANY($1::bigint[]) ORDER BY name",
    [SKILL_PG_BODIES] =
        "SELECT name, source FROM (SELECT s.name, v.source, sum(octet_length(v.source)) OVER "
        "(ORDER BY s.name) - octet_length(v.source) AS before FROM (SELECT name, bytes_at FROM "
        "skill WHERE store = $1 AND name > $2 ORDER BY name LIMIT 1024) s JOIN skill_version v ON "
        "v.id = s.bytes_at) q WHERE before < " BODY_BYTES " ORDER BY name",
};

static const struct pg_desk_schema skill_pg_schema = {
    .name = "skills",
    .migrations = migrations,
    .n_migrations = ARRAY_LEN(migrations),
    .oldest = 1,
    .statements = statements,
    .n_statements = N_SKILL_PG_STATEMENTS,
    .lock = 7094702831,
};

static enum skill_found skill_pg_store_get(struct pg_desk *d, const struct skill_where *at,
                                           bool make, struct skill_pg_store *ret)
{
    *ret = (struct skill_pg_store){0};
    pg_arg_bytes(d, at->tenant);
    pg_arg_bytes(d, at->ns);
    int rows = pg_desk_ask(d, SKILL_PG_STORE);
    if (rows > 0) {
        struct str sum = pg_get_bytes(d, 0, 1);
        ret->id = pg_get_int(d, 0, 0);
        ret->n = (uint64_t)pg_get_int(d, 0, 2);
        if (sum.n == sizeof ret->sum.bytes)
            memcpy(ret->sum.bytes, sum.p, sum.n);
        return SKILL_FOUND;
    }
    if (rows < 0 || !make)
        return rows < 0 ? SKILL_FAILED : SKILL_MISSING;
    pg_arg_bytes(d, at->tenant);
    pg_arg_bytes(d, at->ns);
    pg_arg_bytes(d, str_make(ret->sum.bytes, sizeof ret->sum.bytes));
    if (pg_desk_ask(d, SKILL_PG_STORE_NEW) != 1)
        return SKILL_FAILED;
    ret->id = pg_get_int(d, 0, 0);
    return SKILL_FOUND;
}

/* The columns of META, from @c on. */
static struct skill_row row_at(const struct pg_desk *d, int row, int c)
{
    return (struct skill_row){.name = pg_get_bytes(d, row, c),
                              .meta = pg_get_bytes(d, row, c + 1),
                              .content_hash = pg_get_bytes(d, row, c + 2),
                              .status = (enum skill_status)pg_get_int(d, row, c + 3),
                              .created_at = pg_get_int(d, row, c + 4),
                              .updated_at = pg_get_int(d, row, c + 5),
                              .status_changed_at = pg_get_int(d, row, c + 6)};
}

static enum skill_found skill_pg_get(struct pg_desk *d, const struct skill_where *at,
                                     struct str name, bool with_source, struct arena *arena,
                                     struct skill_pg_entry *ret_e)
{
    enum { AFTER_META = 9 };

    pg_arg_bytes(d, at->tenant);
    pg_arg_bytes(d, at->ns);
    pg_arg_bytes(d, name);
    pg_arg_bool(d, with_source);
    int rows = pg_desk_ask(d, SKILL_PG_GET);
    if (rows <= 0)
        return rows < 0 ? SKILL_FAILED : SKILL_MISSING;
    struct skill_row r = row_at(d, 0, 2);
    r.name = arena_str(arena, r.name);
    r.meta = arena_str(arena, r.meta);
    r.content_hash = arena_str(arena, r.content_hash);
    r.source = arena_str(arena, pg_get_bytes(d, 0, AFTER_META + 4));
    struct skill_head h = {.status = r.status,
                           .content_hash = r.content_hash,
                           .author = arena_str(arena, pg_get_bytes(d, 0, AFTER_META)),
                           .bag = arena_str(arena, pg_get_bytes(d, 0, AFTER_META + 1)),
                           .description = arena_str(arena, pg_get_bytes(d, 0, AFTER_META + 2)),
                           .type = arena_str(arena, pg_get_bytes(d, 0, AFTER_META + 3)),
                           .source = r.source,
                           .created_at = r.created_at,
                           .updated_at = r.updated_at,
                           .status_changed_at = r.status_changed_at};
    *ret_e = (struct skill_pg_entry){pg_get_int(d, 0, 0), pg_get_int(d, 0, 1), r, h};
    return with_source && r.source.p == NULL ? SKILL_FAILED : SKILL_FOUND;
}

/* ---- queries ---- */

struct postgres_walk {
    struct pg_desk *d;
    const struct lane_job *job;
    int64_t store;
    const struct skill_query *q;
    skill_row_cb *cb;
    void *ctx;
    struct buf last;     /* the next page starts after this name */
    uint64_t skip, left; /* of what matches */
    int64_t *ids;        /* owned; of names that matched the pattern */
    bool done;
};

static void filter_args(struct postgres_walk *w, int64_t limit)
{
    const struct skills_filter *f = w->q->f;

    pg_arg_int(w->d, w->store);
    pg_arg_bytes(w->d, w->last.n > 0 ? buf_str(&w->last) : STR(""));
    if (f->by_status)
        pg_arg_int(w->d, f->statuses);
    else
        pg_arg_null(w->d);
    pg_arg_bytes(w->d, f->type);
    pg_arg_bytes(w->d, f->author);
    if (f->by_since)
        pg_arg_int(w->d, f->since);
    else
        pg_arg_null(w->d);
    pg_arg_list(w->d, f->tags, f->n_tags);
    pg_arg_int(w->d, limit);
}

static void go_on_behind(struct postgres_walk *w, struct str name)
{
    buf_reset(&w->last);
    buf_add_str(&w->last, name);
}

static void give_rows(struct postgres_walk *w, int rows)
{
    for (int i = 0; i < rows && !w->done; i++) {
        struct skill_row row = row_at(w->d, i, 0);
        w->left--;
        w->done = !w->cb(w->ctx, &row) || w->left == 0;
    }
}

/* False: it failed. */
static bool page_plain(struct postgres_walk *w)
{
    int64_t limit = w->left < SKILL_PG_PAGE ? (int64_t)w->left : SKILL_PG_PAGE;

    filter_args(w, limit);
    pg_arg_int(w->d, w->skip <= INT64_MAX ? (int64_t)w->skip : INT64_MAX);
    int rows = pg_desk_ask(w->d, SKILL_PG_LIST);
    if (rows < 0)
        return false;
    w->skip = 0;
    if (rows > 0)
        go_on_behind(w, pg_get_bytes(w->d, rows - 1, 0));
    give_rows(w, rows);
    w->done |= rows < limit;
    return true;
}

static bool page_pattern(struct postgres_walk *w)
{
    enum { NAMES = 16 * SKILL_PG_PAGE };
    size_t n = 0;
    int i, rows;

    filter_args(w, NAMES);
    if ((rows = pg_desk_ask(w->d, SKILL_PG_NAMES)) < 0)
        return false;
    for (i = 0; i < rows && n < SKILL_PG_PAGE && n < w->left; i++) {
        struct str name = pg_get_bytes(w->d, i, 0);
        if (!regex_found(w->q->pattern, name))
            continue;
        if (w->skip > 0)
            w->skip--;
        else
            w->ids[n++] = pg_get_int(w->d, i, 1);
    }
    w->done = i == rows && rows < NAMES;
    bool last = w->done;
    if (i > 0)
        go_on_behind(w, pg_get_bytes(w->d, i - 1, 0));
    if (n == 0)
        return true;
    pg_arg_ints(w->d, w->ids, n);
    if ((rows = pg_desk_ask(w->d, SKILL_PG_PICK)) < 0)
        return false;
    w->done = false;
    give_rows(w, rows);
    w->done |= last;
    return true;
}

static enum skill_found skill_pg_list(struct pg_desk *d, const struct lane_job *job,
                                      const struct skill_where *at, const struct skill_query *q,
                                      skill_row_cb *cb, void *ctx)
{
    struct skill_pg_store s;
    int64_t ids[SKILL_PG_PAGE];
    enum skill_found found = skill_pg_store_get(d, at, false, &s);
    struct postgres_walk w = {.d = d,
                              .job = job,
                              .store = s.id,
                              .q = q,
                              .cb = cb,
                              .ctx = ctx,
                              .skip = q->f->offset,
                              .left = q->f->by_limit ? q->f->limit : UINT64_MAX,
                              .ids = ids};

    while (found == SKILL_FOUND && !w.done && w.left > 0) {
        bool stop = job != NULL && lane_job_must_stop(job);
        if (stop || !(q->pattern != NULL ? page_pattern(&w) : page_plain(&w)))
            found = SKILL_FAILED;
    }
    buf_done(&w.last);
    return found;
}

static enum skill_found skill_pg_bodies(struct pg_desk *d, const struct skill_where *at,
                                        skill_row_cb *cb, void *ctx)
{
    struct skill_pg_store s;
    enum skill_found found = skill_pg_store_get(d, at, false, &s);
    struct buf last = BUF_INIT;

    while (found == SKILL_FOUND) {
        pg_arg_int(d, s.id);
        pg_arg_bytes(d, last.n > 0 ? buf_str(&last) : STR(""));
        int rows = pg_desk_ask(d, SKILL_PG_BODIES);
        bool go_on = rows > 0;
        if (rows < 0)
            found = SKILL_FAILED;
        for (int i = 0; i < rows && go_on; i++) {
            struct skill_row row = {.name = pg_get_bytes(d, i, 0), .source = pg_get_bytes(d, i, 1)};
            go_on = cb(ctx, &row);
        }
        if (!go_on)
            break;
        buf_reset(&last);
        buf_add_str(&last, pg_get_bytes(d, rows - 1, 0));
    }
    buf_done(&last);
    return found;
}

/* ---- the backend ---- */

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

/* Writes the skill's new current row; see the statement. */
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

/* Writes the version, the token and the tenant's size in one round trip. */
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
