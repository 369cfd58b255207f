/* files.c - the filesystem backend: skills as files that people can read and edit.
 * (files.h draws them.)
 *
 * Readers answer from the index and the files while both agree and the watch reports no change.
 * Otherwise the request moves to the writer, which scans the files first.  Each write is its own
 * transaction, because files cannot be rolled back as a group. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "skills/files.h"

/* ---- the files of one directory ---- */

#define FILE_MODE 0640
#define DIR_MODE 0750
#define NAME_BYTES (SKILL_NAME_MAX + 24)

static bool failed(struct skill_dir *d, const char *doing, const char *file)
{
    snprintf(d->why, sizeof d->why, "%s %.80s: %s", doing, file, strerror(errno));
    return false;
}

static void body_name(struct str name, char ret[NAME_BYTES])
{
    snprintf(ret, NAME_BYTES, "%.*s" SKILL_BODY_SUFFIX, STR_FMT(name));
}

static void history_name(struct str name, char ret[NAME_BYTES])
{
    snprintf(ret, NAME_BYTES, "%.*s" SKILL_HISTORY_SUFFIX, STR_FMT(name));
}

static void tmp_name(struct str name, char ret[NAME_BYTES])
{
    snprintf(ret, NAME_BYTES, ".%.*s.tmp", STR_FMT(name));
}

/* ---- directories ---- */

void skill_dir_path(const char *root, const struct skill_where *at, struct buf *out)
{
    buf_add_z(out, root);
    buf_add_c(out, '/');
    file_name_add(out, at->tenant);
    if (at->ns.n == 0)
        return;
    buf_add_z(out, "/@");
    file_name_add(out, at->ns);
}

/* Creates the directory and its parent; ROOT exists. */
static bool make_dirs(const char *path)
{
    char *copy = xstrdup(path), *slash = strrchr(copy, '/');
    bool ok = mkdir(path, DIR_MODE) == 0 || errno == EEXIST;

    if (!ok && errno == ENOENT && slash != NULL) {
        *slash = '\0';
        ok = mkdir(copy, DIR_MODE) == 0 || errno == EEXIST;
        if (ok)
            file_sync_folder_of(copy);
        ok = ok && (mkdir(path, DIR_MODE) == 0 || errno == EEXIST);
    }
    if (ok)
        file_sync_folder_of(path);
    free(copy);
    return ok;
}

bool skill_dir_open(struct skill_dir *d, const char *path, bool make)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

    d->fd = open(path, flags);
    if (d->fd < 0 && errno == ENOENT && make && make_dirs(path))
        d->fd = open(path, flags);
    if (d->fd >= 0 || (errno == ENOENT && !make))
        return true;
    return failed(d, "cannot open", path);
}

void skill_dir_close(struct skill_dir *d)
{
    if (d->fd >= 0)
        close(d->fd);
    d->fd = -1;
}

static bool sync_dir(struct skill_dir *d)
{
    return fsync(d->fd) == 0 || failed(d, "cannot sync", "the directory");
}

/* ---- bodies ---- */

static int64_t ns_of(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bool read_all(int fd, size_t n, struct buf *out)
{
    char *room = buf_room(out, n + 1);
    ssize_t got = 1;
    size_t have = 0;

    while (room != NULL && have <= n && got > 0) {
        got = read(fd, room + have, n + 1 - have);
        have += got > 0 ? (size_t)got : 0;
    }
    out->n += have;
    return room != NULL && got >= 0 && have <= n; /* else it grew: the next scan sees it */
}

enum skill_found skill_file_read(struct skill_dir *d, struct str name, struct buf *out,
                                 struct stat *ret_st)
{
    char file[NAME_BYTES];
    enum skill_found found = SKILL_MISSING;

    body_name(name, file);
    int fd = d->fd >= 0 ? openat(d->fd, file, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (fd < 0) {
        if (d->fd < 0 || errno == ENOENT || errno == ELOOP || errno == EACCES)
            return SKILL_MISSING;
        failed(d, "cannot open", file);
        return SKILL_FAILED;
    }
    buf_reset(out);
    if (fstat(fd, ret_st) == 0 && S_ISREG(ret_st->st_mode) &&
        (uint64_t)ret_st->st_size <= d->max_body_bytes &&
        read_all(fd, (size_t)ret_st->st_size, out) && utf8_valid(buf_str(out)))
        found = SKILL_FOUND;
    close(fd);
    return found;
}

bool skill_file_stamp(struct skill_dir *d, struct str name, struct skill_stamp *ret_stamp)
{
    char file[NAME_BYTES];
    struct stat body, history;
    struct timespec now;

    body_name(name, file);
    if (d->fd < 0 || fstatat(d->fd, file, &body, 0) != 0)
        return failed(d, "cannot look at", file);
    history_name(name, file);
    if (fstatat(d->fd, file, &history, 0) != 0)
        history.st_size = -1;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    *ret_stamp = (struct skill_stamp){.mtime_ns = ns_of(body.st_mtim),
                                      .ino = (int64_t)body.st_ino,
                                      .size = body.st_size,
                                      .history_size = history.st_size,
                                      .seen_ns = ns_of(now)};
    return true;
}

static bool write_tmp(struct skill_dir *d, struct str name, struct str body)
{
    char file[NAME_BYTES], tmp[NAME_BYTES];

    body_name(name, file);
    tmp_name(name, tmp);
    struct stat st;
    mode_t mode = fstatat(d->fd, file, &st, 0) == 0 ? st.st_mode & 0777 : FILE_MODE;
    int fd = openat(d->fd, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, FILE_MODE);
    if (fd < 0)
        return failed(d, "cannot write", tmp);
    bool ok = fchmod(fd, mode) == 0 && file_write(fd, body, 0) && fsync(fd) == 0;
    if (!ok)
        failed(d, "cannot write", tmp);
    close(fd);
    if (!ok)
        unlinkat(d->fd, tmp, 0);
    return ok;
}

/* Appends @line at @end, the end of the last complete line.  Truncates back if the write fails. */
static bool add_line(struct skill_dir *d, struct str name, struct str line, int64_t end)
{
    char file[NAME_BYTES];

    history_name(name, file);
    int fd = openat(d->fd, file, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, FILE_MODE);
    if (fd < 0)
        return failed(d, "cannot write", file);
    bool ok = ftruncate(fd, end) == 0 && file_write(fd, line, end) && fsync(fd) == 0;
    if (!ok) {
        failed(d, "cannot write", file);
        if (ftruncate(fd, end) != 0 || (end == 0 && unlinkat(d->fd, file, 0) != 0))
            failed(d, "cannot undo a write to", file);
    }
    close(fd);
    return ok;
}

static void cut_line(struct skill_dir *d, struct str name, int64_t end)
{
    char file[NAME_BYTES];

    history_name(name, file);
    int fd = openat(d->fd, file, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0) {
        if (ftruncate(fd, end) != 0)
            failed(d, "cannot undo a write to", file);
        close(fd);
    }
}

bool skill_file_write(struct skill_dir *d, struct str name, const struct buf *body, struct str line,
                      bool fresh, struct skill_stamp *ret_stamp)
{
    char file[NAME_BYTES], tmp[NAME_BYTES];
    struct buf last = BUF_INIT;
    int64_t end = 0;

    body_name(name, file);
    tmp_name(name, tmp);
    enum skill_found found = fresh ? SKILL_MISSING : skill_history_last(d, name, &last, &end);
    buf_done(&last);
    if (found == SKILL_FAILED)
        return failed(d, "cannot read the history of", file);
    if (body != NULL && !write_tmp(d, name, buf_str(body)))
        return false;
    if (!add_line(d, name, line, end)) {
        unlinkat(d->fd, tmp, 0);
        return false;
    }
    if (body != NULL && renameat(d->fd, tmp, d->fd, file) != 0) {
        failed(d, "cannot rename", tmp);
        cut_line(d, name, end);
        unlinkat(d->fd, tmp, 0);
        return false;
    }
    return sync_dir(d) && skill_file_stamp(d, name, ret_stamp);
}

static bool remove_both(struct skill_dir *d, struct str name)
{
    char file[NAME_BYTES];

    body_name(name, file);
    if (unlinkat(d->fd, file, 0) != 0 && errno != ENOENT)
        return failed(d, "cannot remove", file);
    history_name(name, file);
    if (unlinkat(d->fd, file, 0) != 0 && errno != ENOENT)
        return failed(d, "cannot remove", file);
    return sync_dir(d);
}

/* ---- after a crash ---- */

static bool read_tmp(struct skill_dir *d, struct str name, struct buf *out)
{
    char tmp[NAME_BYTES];
    struct stat st;

    tmp_name(name, tmp);
    int fd = openat(d->fd, tmp, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return false;
    bool ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
              (uint64_t)st.st_size <= d->max_body_bytes + 256 &&
              read_all(fd, (size_t)st.st_size, out);
    close(fd);
    return ok;
}

static bool settle_tmp(struct skill_dir *d, struct str name, const struct skill_line *last)
{
    char tmp[NAME_BYTES], file[NAME_BYTES], hex[SKILL_HASH_HEX + 1] = "";
    struct buf body = BUF_INIT;
    uint8_t hash[SHA256_BYTES];

    tmp_name(name, tmp);
    body_name(name, file);
    if (read_tmp(d, name, &body) && last != NULL && !last->deleted) {
        sha256(buf_str(&body), hash);
        skill_hex(hash, sizeof hash, hex);
    }
    buf_done(&body);
    if (last != NULL && str_eq(str_of(hex), last->version.content_hash))
        return (renameat(d->fd, tmp, d->fd, file) == 0 && sync_dir(d)) ||
               failed(d, "cannot rename", tmp);
    return unlinkat(d->fd, tmp, 0) == 0 || errno == ENOENT || failed(d, "cannot remove", tmp);
}

bool skill_file_recover(struct skill_dir *d, struct str name)
{
    struct buf text = BUF_INIT;
    struct json_parser *p = json_parser_new();
    struct skill_line line;
    int64_t end;
    char tmp[NAME_BYTES];

    tmp_name(name, tmp);
    enum skill_found found = skill_history_last(d, name, &text, &end);
    bool known = found == SKILL_FOUND && skill_line_read(p, buf_str(&text), &line);
    bool ok = found != SKILL_FAILED;
    if (ok && faccessat(d->fd, tmp, F_OK, 0) == 0)
        ok = settle_tmp(d, name, known ? &line : NULL);
    if (ok && known && line.deleted)
        ok = remove_both(d, name);
    json_parser_free(p);
    buf_done(&text);
    return ok;
}

/* ---- the backend: opening ---- */

/* Takes the lock: two processes would interleave bodies and histories. */
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

static struct sqldb *index_open(const struct skill_files *f, bool writer, char *ret_why)
{
    struct buf path = BUF_INIT;

    buf_printf(&path, "%s/.index.db", f->root);
    struct sqldb *x = skill_index_open(buf_z(&path), writer, ret_why);
    buf_done(&path);
    return x;
}

/* Opens the index.  A broken index is deleted and rebuilt from the files. */
static bool index_check(const struct skill_files *f, const struct skill_backend_config *cfg,
                        char *ret_why)
{
    static const char *const parts[] = {"", "-wal", "-shm"};
    struct sqldb *x = index_open(f, true, ret_why);

    if (x == NULL) {
        log_warn(NULL, "skills: %s; rebuilding the index", ret_why);
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
        catalog_sizes(x, cfg->on_size, cfg->on_size_ctx);
    sqldb_close(x);
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

static void *files_create(const struct skill_backend_config *cfg, char *ret_why)
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
    sqldb_close(c->index);
    buf_done(&c->path);
    free(c);
}

static void *conn_open(void *ctx, struct str key, bool writer, char *ret_why)
{
    struct sqldb *index = index_open(ctx, writer, ret_why);

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
    c->index_ok = sqldb_begin(c->index, write);
    if (c->index_ok || c->writer)
        return true;
    return bh_why(ret_why, "%s", c->index->why);
}

static bool conn_commit(void *conn, char *ret_why)
{
    struct files_conn *c = conn;
    bool ok = c->index_ok && sqldb_commit(c->index);

    if (!ok && c->writer) { /* the files are written; the index catches up later */
        sqldb_rollback(c->index);
        skill_watch_spoil(c->files->watch, buf_str(&c->path));
        ok = true;
    }
    skill_dir_close(&c->dir);
    return ok;
}

static void conn_rollback(void *conn)
{
    struct files_conn *c = conn;

    sqldb_rollback(c->index);
    if (c->writer && c->path.n > 0)
        skill_watch_spoil(c->files->watch, buf_str(&c->path));
    skill_dir_close(&c->dir);
}

static const char *problem(void *conn)
{
    struct files_conn *c = conn;
    return c->dir.why[0] != '\0' ? c->dir.why : c->index->why;
}

static void for_job(void *conn, const struct db_job *job)
{
    ((struct files_conn *)conn)->index->job = job;
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
        files_sync(c, at); /* consumes our own events, so readers find it clean */
    }
    buf_done(&line);
    buf_done(&now);
    return ok;
}

static bool drop(void *conn, const struct skill_where *at, struct str name)
{
    struct files_conn *c = conn;
    BUF_LOCAL last = BUF_INIT;
    int64_t end;

    if (skill_history_last(&c->dir, name, &last, &end) == SKILL_FAILED ||
        !add_line(&c->dir, name, STR("{\"deleted\":true}\n"), end) || !remove_both(&c->dir, name))
        return false;
    files_index_drop(c, at, name);
    files_sync(c, at);
    return true;
}

/* ---- reading ---- */

/* The directory of @at did not change since its last scan, so the index is current. */
static enum skill_found may_read(struct files_conn *c, const struct skill_where *at)
{
    char token[SKILL_TOKEN_BYTES];

    if (!files_enter(c, at, false))
        return SKILL_FAILED;
    if (c->writer)
        return files_sync(c, at) && c->index_ok ? SKILL_FOUND : SKILL_FAILED;
    if (c->dir.fd >= 0)
        return skill_watch_is_clean(c->files->watch, buf_str(&c->path)) ? SKILL_FOUND : SKILL_LATER;
    enum skill_found found = catalog_token(c->index, at, token);
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
    struct buf bytes; /* the body of the latest line that had one */
    char hash[SKILL_HASH_HEX + 1];
    bool found;
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

struct files_listing {
    skill_version_cb *cb;
    void *ctx;
    struct str name;
};

static bool on_line(void *ctx, const struct skill_line *l)
{
    struct files_listing *s = ctx;
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
    struct files_listing s = {cb, ctx, name};
    enum skill_found found = load(conn, at, name, false, &arena, &row);

    arena_done(&arena);
    return found == SKILL_FOUND ? skill_history_each(&c->dir, name, on_line, &s) : found;
}

static enum skill_found list(void *conn, const struct skill_where *at, const struct skill_query *q,
                             skill_row_cb *cb, void *ctx)
{
    struct files_conn *c = conn;
    enum skill_found found = may_read(c, at);

    return found == SKILL_FOUND ? catalog_list(c->index, at, q, cb, ctx) : found;
}

struct files_reading {
    struct files_conn *c;
    skill_row_cb *cb;
    void *ctx;
    struct buf body;
};

static bool on_listed(void *ctx, const struct skill_row *row)
{
    struct files_reading *r = ctx;
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
    struct files_reading r = {.c = conn, .cb = cb, .ctx = ctx};
    enum skill_found found = list(conn, at, &q, on_listed, &r);

    buf_done(&r.body);
    return found;
}

static enum skill_found token(void *conn, const struct skill_where *at,
                              char ret_token[SKILL_TOKEN_BYTES])
{
    struct files_conn *c = conn;
    enum skill_found found = may_read(c, at);

    return found == SKILL_FOUND ? catalog_token(c->index, at, ret_token) : found;
}

/* Counts by the index: files that are not indexed yet do not count. */
static bool size_of(void *conn, struct str tenant, uint64_t *ret_bytes)
{
    struct files_conn *c = conn;

    *ret_bytes = 0;
    return !c->index_ok || catalog_size(c->index, tenant, ret_bytes);
}

static bool namespaces(void *conn, struct str tenant, skill_ns_cb *cb, void *ctx)
{
    struct files_conn *c = conn;

    return c->index_ok && catalog_namespaces(c->index, tenant, cb, ctx);
}

const struct skill_backend_ops skill_files_ops = {
    .kind = "filesystem",
    .max_group = 1,
    .jobs = {.open = conn_open,
             .close = conn_close,
             .begin = conn_begin,
             .commit = conn_commit,
             .rollback = conn_rollback,
             .problem = problem},
    .create = files_create,
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
