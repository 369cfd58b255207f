/* files.c - the filesystem backend: skills as files that people can read and edit.
 * (files.h draws them.)
 *
 * Readers answer from the index and the files as long as these agree and nobody changed anything;
 * otherwise they hand the question to the writer, which looks at the files first.  A write is one
 * transaction of its own: files cannot be rolled back with others. */
#include "skills/files.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>
#include "base/log.h"
#include "base/mem.h"

/* ---- opening ---- */

/* Two processes would interleave bodies and histories. */
static int lock_take(const char *root, char *ret_why)
{
    struct buf path = BUF_INIT;

    buf_printf(&path, "%s/.lock", root);
    int fd = open(buf_z(&path), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        snprintf(ret_why, 256, "cannot open %.160s: %s", buf_z(&path), strerror(errno));
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        snprintf(ret_why, 256, "%.160s is in use by another process", root);
        close(fd);
        fd = -1;
    }
    buf_done(&path);
    return fd;
}

static struct skill_index *index_open(const struct skill_files *f, bool writer, char *ret_why)
{
    struct buf path = BUF_INIT;

    buf_printf(&path, "%s/.index.db", f->root);
    struct skill_index *x = skill_index_open(buf_z(&path), writer, ret_why);
    buf_done(&path);
    return x;
}

/* It can be made anew: a broken one is thrown away. */
static bool index_check(const struct skill_files *f, const struct skill_backend_config *cfg,
                        char *ret_why)
{
    static const char *const parts[] = {"", "-wal", "-shm"};
    struct skill_index *x = index_open(f, true, ret_why);

    if (x == NULL) {
        log_warn(NULL, "skills: %s; the index is made anew", ret_why);
        for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
            struct buf path = BUF_INIT;
            buf_printf(&path, "%s/.index.db%s", f->root, parts[i]);
            unlink(buf_z(&path));
            buf_done(&path);
        }
        x = index_open(f, true, ret_why);
    }
    if (x == NULL)
        return false;
    if (cfg->on_size != NULL)
        skill_index_sizes(x, cfg->on_size, cfg->on_size_ctx);
    skill_index_close(x);
    return true;
}

static void ctx_free(void *ctx)
{
    struct skill_files *f = ctx;

    skill_watch_free(f->watch);
    close(f->lock_fd);
    free(f->default_author);
    free(f->root);
    free(f);
}

void *skill_files_new(const struct skill_backend_config *cfg, char *ret_why)
{
    if (mkdir(cfg->path, 0750) != 0 && errno != EEXIST) {
        snprintf(ret_why, 256, "cannot make %.160s: %s", cfg->path, strerror(errno));
        return NULL;
    }
    if (access(cfg->path, R_OK | W_OK | X_OK) != 0) {
        snprintf(ret_why, 256, "cannot use %.160s: %s", cfg->path, strerror(errno));
        return NULL;
    }
    struct skill_files *f = xcalloc(1, sizeof *f);
    f->lock_fd = lock_take(cfg->path, ret_why);
    if (f->lock_fd < 0) {
        free(f);
        return NULL;
    }
    *f = (struct skill_files){.lock_fd = f->lock_fd,
                              .root = xstrdup(cfg->path),
                              .rules = cfg->rules,
                              .watch = skill_watch_new(),
                              .default_author = xstrdup(cfg->default_author)};
    if (index_check(f, cfg, ret_why))
        return f;
    ctx_free(f);
    return NULL;
}

static void conn_close(void *conn)
{
    struct files_conn *c = conn;

    skill_dir_close(&c->dir);
    skill_index_close(c->index);
    buf_done(&c->path);
    free(c);
}

static void *conn_open(void *ctx, struct str key, bool writer, char *ret_why)
{
    struct skill_index *index = index_open(ctx, writer, ret_why);

    if (index == NULL)
        return NULL;
    struct files_conn *c = xcalloc(1, sizeof *c);
    *c = (struct files_conn){.files = ctx, .index = index, .writer = writer};
    c->dir = (struct skill_dir){.fd = -1, .max_body_bytes = c->files->rules->max_body_bytes + 256};
    return c;
}

static bool conn_begin(void *conn, bool write, char *ret_why)
{
    struct files_conn *c = conn;

    c->dir.why[0] = '\0';
    c->index_ok = skill_index_begin(c->index, write);
    if (c->index_ok || c->writer)
        return true;
    snprintf(ret_why, 256, "%s", skill_index_problem(c->index));
    return false;
}

static bool conn_commit(void *conn, char *ret_why)
{
    struct files_conn *c = conn;
    bool ok = c->index_ok && skill_index_commit(c->index);

    if (!ok && c->writer) { /* the files are written: the index catches up later */
        skill_index_rollback(c->index);
        skill_watch_spoil(c->files->watch, buf_str(&c->path));
        ok = true;
    }
    skill_dir_close(&c->dir);
    return ok;
}

static void conn_rollback(void *conn)
{
    struct files_conn *c = conn;

    skill_index_rollback(c->index);
    if (c->writer && c->path.n > 0)
        skill_watch_spoil(c->files->watch, buf_str(&c->path));
    skill_dir_close(&c->dir);
}

static const char *problem(void *conn)
{
    struct files_conn *c = conn;
    return c->dir.why[0] != '\0' ? c->dir.why : skill_index_problem(c->index);
}

static void for_job(void *conn, const struct lane_job *job)
{
    skill_index_for_job(((struct files_conn *)conn)->index, job);
}

/* ---- writing ---- */

static struct str kept(struct arena *arena, const struct buf *b)
{
    return b->n > 0 ? arena_str(arena, buf_str(b)) : STR_NULL;
}

static enum skill_found head(void *conn, const struct skill_where *at, struct str name,
                             bool with_source, struct arena *arena, struct skill_head *ret_h)
{
    struct files_conn *c = conn;
    struct skill_next n = {0};
    enum skill_found found = SKILL_FAILED;

    if (skill_name_valid(name) && files_enter(c, at, false) && files_sync_once(c, at))
        found = files_reconcile(c, at, name, &n);
    else if (!skill_name_valid(name))
        found = SKILL_MISSING;
    if (found == SKILL_FOUND)
        *ret_h = (struct skill_head){.status = n.status,
                                     .content_hash = arena_str(arena, str_of(n.content_hash)),
                                     .author = kept(arena, &n.author),
                                     .bag = kept(arena, &n.bag),
                                     .description = kept(arena, &n.description),
                                     .type = kept(arena, &n.type),
                                     .source = arena_str(arena, buf_str(&n.source)),
                                     .created_at = n.created_at,
                                     .updated_at = n.changed_at,
                                     .status_changed_at = n.status_changed_at};
    skill_next_done(&n);
    return found;
}

static bool put(void *conn, const struct skill_where *at, const struct skill_next *n)
{
    struct files_conn *c = conn;
    struct buf line = BUF_INIT, now = BUF_INIT;
    struct skill_stamp stamp;
    struct stat st;

    if (c->dir.fd < 0 && !files_enter(c, at, true))
        return false;
    bool same = !n->created && skill_file_read(&c->dir, n->name, &now, &st) == SKILL_FOUND &&
                str_eq(buf_str(&now), buf_str(&n->source));
    skill_line_write(n, !same, &line);
    bool ok = skill_file_write(&c->dir, n->name, same ? NULL : &n->source, buf_str(&line),
                               n->created, &stamp);
    if (ok) {
        files_index_put(c, at, n, &stamp);
        files_sync(c, at); /* our own events, so that readers find nothing to ask about */
    }
    buf_done(&line);
    buf_done(&now);
    return ok;
}

static bool drop(void *conn, const struct skill_where *at, struct str name)
{
    struct files_conn *c = conn;

    if (!skill_file_delete(&c->dir, name, STR("{\"deleted\":true}\n")))
        return false;
    files_index_drop(c, at, name);
    files_sync(c, at);
    return true;
}

/* ---- reading ---- */

/* Nobody changed anything in the directory of @at: the index is right about it. */
static enum skill_found may_read(struct files_conn *c, const struct skill_where *at)
{
    char token[SKILL_TOKEN_BYTES];

    if (!files_enter(c, at, false))
        return SKILL_FAILED;
    if (c->writer)
        return files_sync(c, at) && c->index_ok ? SKILL_FOUND : SKILL_FAILED;
    if (c->dir.fd >= 0)
        return skill_watch_is_clean(c->files->watch, buf_str(&c->path)) ? SKILL_FOUND : SKILL_LATER;
    enum skill_found found = skill_index_token(c->index, at, token);
    return found == SKILL_FOUND && strcmp(token, "empty") != 0 ? SKILL_LATER : found;
}

static void row_of(const struct skill_next *n, struct arena *arena, struct skill_row *r)
{
    *r = (struct skill_row){.name = arena_str(arena, n->name),
                            .meta = arena_str(arena, buf_str(&n->meta)),
                            .content_hash = arena_str(arena, str_of(n->content_hash)),
                            .source = arena_str(arena, buf_str(&n->source)),
                            .status = n->status,
                            .created_at = n->created_at,
                            .updated_at = n->changed_at,
                            .status_changed_at = n->status_changed_at};
}

static enum skill_found load_as_writer(struct files_conn *c, const struct skill_where *at,
                                       struct str name, struct arena *arena, struct skill_row *r)
{
    struct skill_next n = {0};
    enum skill_found found =
        files_sync_once(c, at) ? files_reconcile(c, at, name, &n) : SKILL_FAILED;

    if (found == SKILL_FOUND)
        row_of(&n, arena, r);
    skill_next_done(&n);
    return found;
}

static bool has_hash(struct str body, struct str hex)
{
    uint8_t want[SHA256_BYTES], have[SHA256_BYTES];

    sha256(body, have);
    return hex_decode(hex, want, sizeof want) && memcmp(want, have, sizeof want) == 0;
}

static enum skill_found load(void *conn, const struct skill_where *at, struct str name,
                             bool with_source, struct arena *arena, struct skill_row *ret_row)
{
    struct files_conn *c = conn;
    struct buf body = BUF_INIT;
    struct stat st;

    if (!skill_name_valid(name))
        return SKILL_MISSING;
    if (!files_enter(c, at, false))
        return SKILL_FAILED;
    if (c->writer)
        return load_as_writer(c, at, name, arena, ret_row);
    if (c->dir.fd >= 0 && !skill_watch_is_seen(c->files->watch, buf_str(&c->path)))
        return SKILL_LATER;
    enum skill_found found = skill_index_get(c->index, at, name, arena, ret_row, NULL);
    enum skill_found file = skill_file_read(&c->dir, name, &body, &st);
    if (found != SKILL_FAILED && file != SKILL_FAILED) {
        if (found == SKILL_FOUND && file == SKILL_FOUND &&
            has_hash(buf_str(&body), ret_row->content_hash))
            ret_row->source = arena_str(arena, buf_str(&body));
        else if (found != SKILL_MISSING || file != SKILL_MISSING)
            found = SKILL_LATER;
    }
    buf_done(&body);
    return found;
}

struct old {
    struct str version;
    struct buf bytes; /* the last that a line had */
    char hash[SKILL_HASH_HEX + 1];
    bool found, has_bytes;
};

static bool on_old(void *ctx, const struct skill_line *l)
{
    struct old *o = ctx;

    if (l->head.source.p != NULL) {
        buf_reset(&o->bytes);
        buf_add_str(&o->bytes, l->head.source);
    }
    if (!str_starts(l->version.content_hash, o->version) || o->version.n != SKILL_VERSION_HEX)
        return true;
    snprintf(o->hash, sizeof o->hash, "%.*s", STR_FMT(l->version.content_hash));
    o->found = has_hash(buf_str(&o->bytes), l->version.content_hash);
    return !o->found;
}

static enum skill_found load_version(void *conn, const struct skill_where *at, struct str name,
                                     struct str version, struct arena *arena, struct str *ret_hash,
                                     struct str *ret_source)
{
    struct files_conn *c = conn;
    struct old o = {.version = version};
    struct skill_row row = {0};
    enum skill_found found = load(conn, at, name, true, arena, &row);

    if (found != SKILL_FOUND)
        return found;
    *ret_hash = row.content_hash;
    *ret_source = row.source;
    if (version.n == SKILL_VERSION_HEX && str_starts(row.content_hash, version))
        return SKILL_FOUND;
    found = skill_history_each(&c->dir, name, on_old, &o);
    if (found == SKILL_FOUND && !o.found)
        found = SKILL_MISSING;
    if (found == SKILL_FOUND) {
        *ret_hash = arena_str(arena, str_of(o.hash));
        *ret_source = arena_str(arena, buf_str(&o.bytes));
    }
    buf_done(&o.bytes);
    return found;
}

struct listing {
    skill_version_cb *cb;
    void *ctx;
    struct str name;
};

static bool on_line(void *ctx, const struct skill_line *l)
{
    struct listing *s = ctx;
    struct skill_version v = l->version;

    v.name = s->name;
    return s->cb(s->ctx, &v);
}

static enum skill_found versions(void *conn, const struct skill_where *at, struct str name,
                                 skill_version_cb *cb, void *ctx)
{
    struct files_conn *c = conn;
    struct arena arena = ARENA_INIT;
    struct skill_row row;
    struct listing s = {cb, ctx, name};
    enum skill_found found = load(conn, at, name, false, &arena, &row);

    arena_done(&arena);
    return found == SKILL_FOUND ? skill_history_each(&c->dir, name, on_line, &s) : found;
}

static enum skill_found list(void *conn, const struct skill_where *at, const struct skill_query *q,
                             skill_row_cb *cb, void *ctx)
{
    struct files_conn *c = conn;
    enum skill_found found = may_read(c, at);

    return found == SKILL_FOUND ? skill_index_list(c->index, at, q, cb, ctx) : found;
}

struct reading {
    struct files_conn *c;
    skill_row_cb *cb;
    void *ctx;
    struct buf body;
};

static bool on_listed(void *ctx, const struct skill_row *row)
{
    struct reading *r = ctx;
    struct skill_row with = *row;
    struct stat st;

    if (skill_file_read(&r->c->dir, row->name, &r->body, &st) != SKILL_FOUND)
        return true;
    with.source = buf_str(&r->body);
    return r->cb(r->ctx, &with);
}

static enum skill_found bodies(void *conn, const struct skill_where *at, skill_row_cb *cb,
                               void *ctx)
{
    const struct skills_filter everything = {0};
    const struct skill_query q = {&everything, NULL};
    struct reading r = {.c = conn, .cb = cb, .ctx = ctx};
    enum skill_found found = list(conn, at, &q, on_listed, &r);

    buf_done(&r.body);
    return found;
}

static enum skill_found token(void *conn, const struct skill_where *at,
                              char ret_token[SKILL_TOKEN_BYTES])
{
    struct files_conn *c = conn;
    enum skill_found found = may_read(c, at);

    return found == SKILL_FOUND ? skill_index_token(c->index, at, ret_token) : found;
}

/* By the index: what lies there unseen is counted when it is seen. */
static bool size_of(void *conn, struct str tenant, uint64_t *ret_bytes)
{
    struct files_conn *c = conn;

    *ret_bytes = 0;
    return !c->index_ok || skill_index_size(c->index, tenant, ret_bytes);
}

static bool namespaces(void *conn, struct str tenant, skill_ns_cb *cb, void *ctx)
{
    struct files_conn *c = conn;

    return c->index_ok && skill_index_namespaces(c->index, tenant, cb, ctx);
}

const struct skill_backend_ops skill_files_ops = {
    .kind = "filesystem",
    .max_group = 1,
    .lanes = {.open = conn_open,
              .close = conn_close,
              .begin = conn_begin,
              .commit = conn_commit,
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
