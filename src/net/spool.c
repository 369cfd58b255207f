/* spool.c - design.  (spool.h has the contract.)
 *
 * A file begins with a block of SPOOL_HEAD bytes: a mark, and the cursor up to which its lines are
 * taken.  The cursor is written after every line, into the page cache.  Lines follow; the program
 * appends them through a descriptor with O_APPEND, which also holds an exclusive flock.
 *
 *      <dir>/1 --all taken, lock free--> deleted;  <dir>/2 ... the same;  none left --> dry()
 *
 * inotify tells when the program has printed.  Where inotify is not available, and while the lock
 * of an old file is awaited, a timer looks every LOOK_MS.
 *
 * One turn of the loop takes at most TURN_LINES lines and TURN_BYTES bytes. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* fallocate() */
#endif
#include "net/spool.h"
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/file.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/loop.h"

enum {
    SPOOL_HEAD = 4096,
    READ_BYTES = 64 * 1024,
    TURN_LINES = 256,
    TURN_BYTES = 1 << 20,
    LOOK_MS = 100,
};
#define MARK "bellhop lines 1\n"

struct spool_file {
    struct list link; /* in s->files, oldest first */
    uint64_t number;
    int fd;
    uint64_t at;     /* all before it is taken */
    uint64_t erased; /* all before it is erased */
    bool old;        /* of an earlier process */
    bool over;       /* nothing is added, as far as we know; the lock may tell otherwise */
};

struct spool {
    struct loop *loop;           /* borrowed */
    const struct spool_ops *ops; /* borrowed */
    void *ctx;
    char *dir; /* owned */
    size_t max_line;
    struct list files;
    uint64_t last; /* number */
    struct buf buf;
    size_t pos;    /* of files.first->at in @buf */
    size_t seen;   /* bytes behind @pos that have no newline */
    bool skipping; /* a line that is too long, to its end */
    bool held;     /* spool_taken() is awaited */
    size_t held_n; /* bytes of that line */
    bool running;  /* inside advance() */
    int notify;    /* inotify; -1: none */
    struct loop_fd *on_notify;
    int64_t locked_ms; /* since when the lock of the first file is awaited; 0: it is not */
    struct timer look, erase;
};

static void file_path(const struct spool *s, uint64_t number, struct buf *out)
{
    buf_printf(out, "%s/%" PRIu64, s->dir, number);
}

/* ---- one file ---- */

static void save_cursor(struct spool_file *f)
{
    uint64_t at = f->at;

    if (pwrite(f->fd, &at, sizeof at, sizeof MARK - 1) != sizeof at)
        log_warn(NULL, "cannot note which lines are taken: %s", strerror(errno));
}

static bool read_cursor(struct spool_file *f)
{
    char head[sizeof MARK - 1 + sizeof f->at];
    struct stat st;

    if (pread(f->fd, head, sizeof head, 0) != sizeof head || fstat(f->fd, &st) != 0 ||
        memcmp(head, MARK, sizeof MARK - 1) != 0)
        return false;
    memcpy(&f->at, head + sizeof MARK - 1, sizeof f->at);
    if (f->at < SPOOL_HEAD || f->at > (uint64_t)st.st_size)
        f->at = SPOOL_HEAD;
    f->erased = f->at;
    return true;
}

/* Whole blocks become holes; the rest of the last block becomes zeros. */
static void erase_taken(struct spool_file *f)
{
    static const char zeros[SPOOL_HEAD];
    uint64_t from = f->erased & ~(uint64_t)(SPOOL_HEAD - 1), to = f->at,
             whole = to & ~(uint64_t)(SPOOL_HEAD - 1);

    if (f->erased == to)
        return;
    if (whole > from)
        (void)fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from,
                        (off_t)(whole - from));
    (void)!pwrite(f->fd, zeros, (size_t)(to - whole), (off_t)whole);
    f->erased = to;
}

static struct spool_file *first(const struct spool *s)
{
    return list_is_empty(&s->files) ? NULL : list_first(&s->files, struct spool_file, link);
}

static void file_free(struct spool_file *f)
{
    list_remove(&f->link);
    close(f->fd);
    free(f);
}

static void file_delete(struct spool *s, struct spool_file *f)
{
    BUF_LOCAL path = BUF_INIT;

    file_path(s, f->number, &path);
    if (unlink(buf_z(&path)) != 0)
        log_warn(NULL, "cannot delete %s: %s", buf_z(&path), strerror(errno));
    file_free(f);
    buf_reset(&s->buf);
    s->pos = s->seen = 0;
    s->skipping = false;
}

/* ---- reading ---- */

/* The next line of @f; false: none is complete yet. */
static bool next_line(struct spool *s, struct spool_file *f, struct str *ret_line)
{
    for (;;) {
        const char *from = s->buf.p != NULL ? s->buf.p + s->pos : "";
        size_t n = s->buf.n - s->pos;
        const char *end = memchr(from + s->seen, '\n', n - s->seen);
        if (end != NULL) {
            *ret_line = str_make(from, (size_t)(end - from));
            return true;
        }
        s->seen = n;
        if (n > s->max_line || s->skipping) { /* its beginning is not needed any more */
            if (!s->skipping)
                log_warn(NULL, "dropped a line of a program: it is longer than %zu bytes",
                         s->max_line);
            s->skipping = true;
            f->at += n;
            save_cursor(f);
            buf_reset(&s->buf);
            s->pos = s->seen = n = 0;
        } else if (s->pos > 0) {
            buf_consume(&s->buf, s->pos);
            s->pos = 0;
        }
        if (n == 0 && s->buf.cap > TURN_BYTES)
            buf_done(&s->buf); /* the memory of a long line */
        char *room = buf_room(&s->buf, READ_BYTES);
        ssize_t got = room != NULL ? pread(f->fd, room, READ_BYTES, (off_t)(f->at + n)) : -1;
        if (got <= 0)
            return false;
        s->buf.n += (size_t)got;
    }
}

static void line_over(struct spool *s, struct spool_file *f, size_t n)
{
    f->at += n + 1;
    s->pos += n + 1;
    s->seen = 0;
    save_cursor(f);
    if (!timer_is_set(&s->erase))
        timer_set(loop_clock(s->loop), &s->erase, SPOOL_ERASE_MS);
}

/* @f has no complete line.  True: nothing is added to it any more. */
static bool has_ended(struct spool *s, struct spool_file *f)
{
    struct clock *clock = loop_clock(s->loop);
    struct stat st;

    if (!f->over)
        return false;
    if (flock(f->fd, LOCK_SH | LOCK_NB) != 0) {
        if (s->locked_ms == 0)
            s->locked_ms = clock_now_ms(clock);
        if (clock_now_ms(clock) - s->locked_ms < SPOOL_PATIENCE_MS) {
            timer_set(clock, &s->look, LOOK_MS);
            return false;
        }
    }
    s->locked_ms = 0;
    if (fstat(f->fd, &st) == 0 && (uint64_t)st.st_size > f->at + (s->buf.n - s->pos)) {
        timer_set(clock, &s->look, 0); /* it printed between the last read and its end */
        return false;
    }
    if (s->buf.n > s->pos)
        log_warn(NULL, "a program ended in the middle of a line, which is dropped");
    return true;
}

static void advance(struct spool *s)
{
    size_t lines = 0, bytes = 0;
    struct spool_file *f;
    struct str line;

    if (s->running)
        return;
    s->running = true;
    while (!s->held && (f = first(s)) != NULL) {
        if (lines >= TURN_LINES || bytes >= TURN_BYTES) {
            timer_set(loop_clock(s->loop), &s->look, 0);
            break;
        }
        if (next_line(s, f, &line)) {
            lines++;
            bytes += line.n;
            s->held_n = line.n;
            if (s->skipping) {
                s->skipping = false;
                line_over(s, f, line.n);
            } else if (s->ops->line(s->ctx, line, f->old)) {
                line_over(s, f, line.n);
            } else {
                s->held = true;
            }
        } else if (has_ended(s, f)) {
            file_delete(s, f);
            if (first(s) == NULL)
                s->ops->dry(s->ctx);
        } else {
            break;
        }
    }
    s->running = false;
    if (s->notify < 0 && first(s) != NULL && !s->held && !timer_is_set(&s->look))
        timer_set(loop_clock(s->loop), &s->look, LOOK_MS);
}

void spool_taken(struct spool *s)
{
    struct spool_file *f = first(s);

    assert(s->held && f != NULL);
    s->held = false;
    line_over(s, f, s->held_n);
    timer_set(loop_clock(s->loop), &s->look, 0);
}

uint64_t spool_unread(const struct spool *s)
{
    uint64_t n = 0;

    list_each (&s->files, it, nxt) {
        const struct spool_file *f = list_entry(it, struct spool_file, link);
        struct stat st;
        if (fstat(f->fd, &st) == 0 && (uint64_t)st.st_size > f->at)
            n += (uint64_t)st.st_size - f->at;
    }
    return n;
}

static void on_look(struct timer *t)
{
    advance(container_of(t, struct spool, look));
}

static void on_erase(struct timer *t)
{
    struct spool *s = container_of(t, struct spool, erase);

    if (first(s) != NULL)
        erase_taken(first(s));
}

static void on_notify(void *ctx, int events)
{
    struct spool *s = ctx;
    char many[4096] __attribute__((aligned(8)));

    while (read(s->notify, many, sizeof many) > 0)
        ;
    advance(s);
}

/* ---- writing ---- */

int spool_begin(struct spool *s)
{
    struct spool_file *f = xcalloc(1, sizeof *f);
    BUF_LOCAL path = BUF_INIT;
    char head[SPOOL_HEAD] = MARK;
    int to = -1;

    *f = (struct spool_file){.number = ++s->last, .at = SPOOL_HEAD, .erased = SPOOL_HEAD};
    file_path(s, f->number, &path);
    f->fd = open(buf_z(&path), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    memcpy(head + sizeof MARK - 1, &f->at, sizeof f->at);
    if (f->fd >= 0 && file_write(f->fd, str_make(head, sizeof head), 0))
        to = open(buf_z(&path), O_WRONLY | O_APPEND | O_CLOEXEC);
    if (to < 0 || flock(to, LOCK_EX | LOCK_NB) != 0) {
        int err = errno;
        if (to >= 0)
            close(to);
        if (f->fd >= 0)
            close(f->fd);
        free(f);
        unlink(buf_z(&path));
        errno = err;
        return -1;
    }
    list_append(&s->files, &f->link);
    timer_set(loop_clock(s->loop), &s->look, 0);
    return to;
}

bool spool_add(struct spool *s, int fd, struct str bytes)
{
    bool all = file_write(fd, bytes, FILE_END);

    advance(s);
    return all;
}

void spool_end(struct spool *s)
{
    list_each (&s->files, it, nxt)
        list_entry(it, struct spool_file, link)->over = true;
    timer_set(loop_clock(s->loop), &s->look, 0);
}

/* ---- beginning and end ---- */

static int by_number(const void *a, const void *b)
{
    const struct spool_file *const *x = a, *const *y = b;

    return ((*x)->number > (*y)->number) - ((*x)->number < (*y)->number);
}

/* Finds the files of earlier processes. */
static void find_files(struct spool *s)
{
    struct spool_file **all = NULL;
    size_t n = 0, cap = 0;
    DIR *dir = opendir(s->dir);

    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        BUF_LOCAL path = BUF_INIT;
        uint64_t number;
        if (!str_to_u64(str_of(e->d_name), &number))
            continue;
        file_path(s, number, &path);
        struct spool_file *f = xcalloc(1, sizeof *f);
        *f = (struct spool_file){.number = number, .old = true, .over = true};
        f->fd = open(buf_z(&path), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        s->last = number > s->last ? number : s->last;
        if (f->fd < 0 || !read_cursor(f)) {
            log_warn(NULL, "%s is not a file of lines, and is left alone", buf_z(&path));
            if (f->fd >= 0)
                close(f->fd);
            free(f);
            continue;
        }
        all = xgrow(all, n, &cap, sizeof(struct spool_file *));
        all[n++] = f;
    }
    if (dir != NULL)
        closedir(dir);
    if (n > 0)
        qsort(all, n, sizeof(struct spool_file *), by_number);
    for (size_t i = 0; i < n; i++)
        list_append(&s->files, &all[i]->link);
    free(all);
}

static void on_first(struct timer *t)
{
    struct spool *s = container_of(t, struct spool, look);

    s->look.fire = on_look;
    if (first(s) == NULL)
        s->ops->dry(s->ctx);
    advance(s);
}

struct spool *spool_open(struct loop *loop, const char *dir, size_t max_line,
                         const struct spool_ops *ops, void *ctx, char *ret_why)
{
    if (mkdir(dir, 0700) != 0 && errno != EEXIST) {
        snprintf(ret_why, 256, "%.150s: %s", dir, strerror(errno));
        return NULL;
    }
    struct spool *s = xcalloc(1, sizeof *s);
    *s = (struct spool){.loop = loop, .ops = ops, .ctx = ctx, .max_line = max_line};
    s->dir = xstrdup(dir);
    list_init(&s->files);
    timer_init(&s->look, on_first);
    timer_init(&s->erase, on_erase);
    s->notify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (s->notify >= 0 && inotify_add_watch(s->notify, dir, IN_MODIFY) < 0) {
        close(s->notify);
        s->notify = -1;
    }
    if (s->notify >= 0)
        s->on_notify = loop_fd_add(loop, s->notify, LOOP_READ, on_notify, s);
    find_files(s);
    timer_set(loop_clock(loop), &s->look, 0);
    return s;
}

void spool_free(struct spool *s)
{
    if (s == NULL)
        return;
    if (!list_is_empty(&s->files))
        erase_taken(first(s));
    list_each (&s->files, it, nxt)
        file_free(list_entry(it, struct spool_file, link));
    timer_stop(loop_clock(s->loop), &s->look);
    timer_stop(loop_clock(s->loop), &s->erase);
    loop_fd_free(s->on_notify);
    if (s->notify >= 0)
        close(s->notify);
    buf_done(&s->buf);
    free(s->dir);
    free(s);
}
