/* files_disk.c - reading and writing the files of one directory.  (files.h has the contract.) */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "base/file.h"
#include "base/mem.h"
#include "skills/files.h"

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

static void sync_parent(const char *path)
{
    char *copy = xstrdup(path), *slash = strrchr(copy, '/');
    int fd = -1;

    if (slash != NULL && slash != copy) {
        *slash = '\0';
        fd = open(copy, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (fd >= 0) {
        fsync(fd); /* the new name must survive a crash */
        close(fd);
    }
    free(copy);
}

/* The directory and its parent: ROOT is there. */
static bool make_dirs(const char *path)
{
    char *copy = xstrdup(path), *slash = strrchr(copy, '/');
    bool ok = mkdir(path, DIR_MODE) == 0 || errno == EEXIST;

    if (!ok && errno == ENOENT && slash != NULL) {
        *slash = '\0';
        ok = mkdir(copy, DIR_MODE) == 0 || errno == EEXIST;
        if (ok)
            sync_parent(copy);
        ok = ok && (mkdir(path, DIR_MODE) == 0 || errno == EEXIST);
    }
    if (ok)
        sync_parent(path);
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
    return room != NULL && got >= 0 && have <= n; /* it grew meanwhile: the next look tells */
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

static bool write_all(int fd, struct str s, int64_t at)
{
    while (s.n > 0) {
        ssize_t put = pwrite(fd, s.p, s.n, at);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        s = str_skip(s, (size_t)put);
        at += put;
    }
    return true;
}

static mode_t mode_like(struct skill_dir *d, const char *file)
{
    struct stat st;
    return fstatat(d->fd, file, &st, 0) == 0 ? st.st_mode & 0777 : FILE_MODE;
}

static bool write_tmp(struct skill_dir *d, struct str name, struct str body)
{
    char file[NAME_BYTES], tmp[NAME_BYTES];

    body_name(name, file);
    tmp_name(name, tmp);
    mode_t mode = mode_like(d, file);
    int fd = openat(d->fd, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, FILE_MODE);
    if (fd < 0)
        return failed(d, "cannot write", tmp);
    bool ok = fchmod(fd, mode) == 0 && write_all(fd, body, 0) && fsync(fd) == 0;
    if (!ok)
        failed(d, "cannot write", tmp);
    close(fd);
    if (!ok)
        unlinkat(d->fd, tmp, 0);
    return ok;
}

/* Append @line at @end, where the last whole line stops.  Undone when it does not fit. */
static bool add_line(struct skill_dir *d, struct str name, struct str line, int64_t end)
{
    char file[NAME_BYTES];

    history_name(name, file);
    int fd = openat(d->fd, file, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, FILE_MODE);
    if (fd < 0)
        return failed(d, "cannot write", file);
    bool ok = ftruncate(fd, end) == 0 && write_all(fd, line, end) && fsync(fd) == 0;
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

bool skill_file_delete(struct skill_dir *d, struct str name, struct str line)
{
    struct buf last = BUF_INIT;
    int64_t end;
    enum skill_found found = skill_history_last(d, name, &last, &end);

    buf_done(&last);
    return found != SKILL_FAILED && add_line(d, name, line, end) && remove_both(d, name);
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
