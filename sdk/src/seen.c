/* seen.c - design.  (seen.h has the contract.)
 *
 * In memory: two maps over the same entries, and a list in order of eviction.  Pending entries are
 * never evicted; the socket thread bounds their number.
 *
 * On disk: appending one line is one write(), so a crash can tear only the last line, and a torn
 * line has no newline.  A file with too many lines is rewritten to a new file and renamed.  The
 * lock is on the inode: after locking, the library checks that the name still refers to that
 * inode. */
#include "seen.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/percent.h"

static struct str number_key(const struct seen_entry *e)
{
    return str_make(&e->number, sizeof e->number);
}

void seen_init(struct seen *l, size_t keep)
{
    *l = (struct seen){.by_id = MAP_INIT, .by_number = MAP_INIT, .keep = keep};
    list_init(&l->settled);
}

void seen_done(struct seen *l)
{
    void *e;

    for (size_t pos = 0; map_next(&l->by_id, &pos, &e);)
        free(e);
    map_done(&l->by_id);
    map_done(&l->by_number);
}

struct seen_entry *seen_find(const struct seen *l, struct str id)
{
    return map_get(&l->by_id, id);
}

struct seen_entry *seen_add(struct seen *l, struct str id, uint64_t socket)
{
    assert(id.n <= SEEN_ID_MAX && seen_find(l, id) == NULL);
    struct seen_entry *e = xcalloc(1, sizeof *e + id.n + 1);
    list_init(&e->link);
    e->number = ++l->last_number;
    e->socket = socket;
    e->state = SEEN_PENDING;
    e->id_bytes = id.n;
    memcpy(e->id, id.p, id.n);
    map_put(&l->by_id, seen_id(e), e);
    map_put(&l->by_number, number_key(e), e);
    return e;
}

struct seen_entry *seen_pending(const struct seen *l, uint64_t number)
{
    return map_get(&l->by_number, str_make(&number, sizeof number));
}

static void drop(struct seen *l, struct seen_entry *e)
{
    map_del(&l->by_id, seen_id(e));
    list_remove(&e->link);
    free(e);
}

void seen_settle(struct seen *l, struct seen_entry *e)
{
    assert(e->state == SEEN_PENDING);
    map_del(&l->by_number, number_key(e));
    e->state = SEEN_SETTLED;
    list_append(&l->settled, &e->link);
    if (++l->n_settled > l->keep) {
        drop(l, list_first(&l->settled, struct seen_entry, link));
        l->n_settled--;
    }
}

void seen_forget(struct seen *l, struct seen_entry *e)
{
    assert(e->state == SEEN_PENDING);
    map_del(&l->by_number, number_key(e));
    drop(l, e);
}

/* ---- the file ---- */

#define HEADER "bellhop settled ids 1\n"
#define MAX_BYTES ((size_t)256 << 20) /* far more than any valid file has */
#define MIN_LINES 64                  /* a short list is not rewritten all the time */

enum outcome { GOT_IT, IS_TAKEN, FAILED };

/* ---- reading ---- */

/* Every whole line of @text, which starts after the header.  Returns the bytes they take. */
static size_t read_lines(struct seen_file *f, struct seen *l, struct str text)
{
    struct str rest = text;
    ptrdiff_t end;

    while ((end = str_find(rest, '\n')) >= 0) {
        BUF_LOCAL id = BUF_INIT;
        if (percent_decode(&id, str_make(rest.p, (size_t)end)) && id.n > 0 && id.n <= SEEN_ID_MAX &&
            seen_find(l, buf_str(&id)) == NULL)
            seen_settle(l, seen_add(l, buf_str(&id), 0));
        rest = str_skip(rest, (size_t)end + 1);
        f->n_lines++;
    }
    return text.n - rest.n;
}

static bool write_whole(int fd, struct str bytes)
{
    ssize_t n = write(fd, bytes.p, bytes.n);

    if (n >= 0 && (size_t)n != bytes.n)
        errno = ENOSPC;
    return n >= 0 && (size_t)n == bytes.n;
}

static bool load(struct seen_file *f, struct seen *l)
{
    const struct str header = STR(HEADER);
    struct buf text = BUF_INIT;
    bool ok = file_read(f->path, MAX_BYTES, &text);

    if (!ok)
        goto out;
    struct str have = buf_str(&text);
    ok = str_starts(have, header) || str_starts(header, have);
    errno = ok ? 0 : EINVAL;
    if (!ok)
        goto out;
    if (have.n < header.n) { /* new, or torn while it was created */
        f->bytes = header.n;
        ok = ftruncate(f->fd, 0) == 0 && write_whole(f->fd, header);
    } else {
        f->bytes = header.n + read_lines(f, l, str_skip(have, header.n));
        ok = ftruncate(f->fd, (off_t)f->bytes) == 0;
    }
out:
    buf_done(&text);
    return ok;
}

/* ---- the lock ---- */

static bool is_named(int fd, const char *path)
{
    struct stat a, b;

    return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_ino == b.st_ino &&
           a.st_dev == b.st_dev;
}

static enum outcome take(struct seen_file *f, struct seen *l)
{
    struct stat st;

    f->fd = open(f->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0600);
    if (f->fd < 0)
        return FAILED;
    bool regular = fstat(f->fd, &st) == 0 && S_ISREG(st.st_mode);
    bool ours = regular && flock(f->fd, LOCK_EX | LOCK_NB) == 0 && is_named(f->fd, f->path);
    if (ours && load(f, l))
        return GOT_IT;
    int why = regular ? errno : EINVAL;
    close(f->fd);
    f->fd = -1;
    errno = why;
    return regular && !ours ? IS_TAKEN : FAILED;
}

/* ---- writing ---- */

static void add_line(struct buf *out, struct str id)
{
    percent_encode(out, id);
    buf_add_c(out, '\n');
}

/* Rewrites the file from @l. */
static bool rewrite(struct seen_file *f, const struct seen *l)
{
    struct buf path = BUF_INIT, text = BUF_INIT;
    size_t n = 0;

    buf_printf(&path, "%s.new", f->path);
    buf_add_z(&text, HEADER);
    list_each (&l->settled, it, next) {
        add_line(&text, seen_id(list_entry(it, struct seen_entry, link)));
        n++;
    }
    unlink(buf_z(&path)); /* left by a process that died during a rewrite */
    int fd = open(buf_z(&path), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && !buf_failed(&text) && write_whole(fd, buf_str(&text)) &&
              flock(fd, LOCK_EX | LOCK_NB) == 0 && rename(buf_z(&path), f->path) == 0;
    if (ok) {
        close(f->fd);
        f->fd = fd;
        f->n_lines = n;
        f->bytes = text.n;
    } else if (fd >= 0) {
        close(fd);
        unlink(buf_z(&path));
    }
    buf_done(&path);
    buf_done(&text);
    return ok;
}

static bool append(struct seen_file *f, struct str id)
{
    struct buf line = BUF_INIT;

    add_line(&line, id);
    bool ok = write_whole(f->fd, buf_str(&line));
    if (ok) {
        f->bytes += line.n;
        f->n_lines++;
    } else if (ftruncate(f->fd, (off_t)f->bytes) != 0) {
        close(f->fd); /* it has half a line: it is read again before the next write */
        f->fd = -1;
    }
    buf_done(&line);
    return ok;
}

/* ---- the contract ---- */

bool seen_file_open(struct seen_file *f, const char *path, struct seen *l, char *ret_why)
{
    *f = (struct seen_file){.path = xstrdup(path), .fd = -1};
    if (take(f, l) != FAILED)
        return true;
    snprintf(ret_why, 256, "seen_file %.160s: %s", path,
             errno == EINVAL ? "this is something else, not a list of settled ids"
                             : strerror(errno));
    seen_file_done(f);
    return false;
}

void seen_file_done(struct seen_file *f)
{
    if (f->path != NULL && f->fd >= 0)
        close(f->fd);
    free(f->path);
    *f = (struct seen_file){.fd = -1};
}

bool seen_file_add(struct seen_file *f, struct seen *l, struct str id)
{
    size_t most = l->keep < MIN_LINES / 2 ? MIN_LINES : 2 * l->keep;
    bool ok;

    if (f->path == NULL)
        return true;
    if (f->fd < 0) { /* @l has @id already, so a rewrite includes it */
        enum outcome got = take(f, l);
        ok = got == IS_TAKEN || (got == GOT_IT && rewrite(f, l));
    } else {
        ok = append(f, id);
        if (ok && f->n_lines >= most && !rewrite(f, l))
            f->n_lines = l->keep; /* failed: retry after that many more lines */
    }
    bool told = f->failing;
    f->failing = !ok;
    return ok || told;
}
