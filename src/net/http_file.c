/* http_file.c - answers from a file.
 *
 *      pump: a block from the cache --> output --> flushed --> pump ...
 *              '--not in the cache--> reader's thread --> on_read --> output
 *
 * A block is read only when the one before has left, and one block per connection and turn, so a
 * fast client of a large file takes its turn like everybody else and a slow one costs one block of
 * memory.  The file is asked without waiting (RWF_NOWAIT); only what is not in the system's cache,
 * or lies on a file system that cannot tell, goes to a thread. */
#include "net/conn.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/log.h"
#include "net/http_range.h"

enum { BLOCK_BYTES = 64 * 1024, READER_THREADS = 2 };

struct file_answer {
    struct conn *conn; /* borrowed; NULL: it went while a block was being read */
    int fd;            /* owned */
    uint64_t at, left;
    bool last;    /* close the connection after it */
    bool reading; /* @work is with the readers, and so is @block */
    struct work work;
    ssize_t got; /* what the thread read; -1: nothing */
    char *block; /* owned; for the thread to read into; NULL until it has to */
};

static void destroy(struct file_answer *f)
{
    close(f->fd);
    free(f->block);
    free(f);
}

void http_file_gone(struct conn *c)
{
    struct file_answer *f = c->file;

    c->file = NULL;
    f->conn = NULL;
    if (!f->reading)
        destroy(f);
}

static void finish(struct conn *c)
{
    bool last = c->file->last;

    http_file_gone(c);
    http_finish(c, last);
}

/* ---- reading ---- */

static size_t next_bytes(const struct file_answer *f)
{
    return f->left < BLOCK_BYTES ? (size_t)f->left : BLOCK_BYTES;
}

/* A block of @n bytes is in the output, or could not be read: then the promise of so many bytes
 * cannot be held, and the end of the connection tells the client. */
static void took(struct conn *c, ssize_t n)
{
    struct file_answer *f = c->file;

    if (n <= 0) {
        log_warn(NULL, "a file could not be read to its end, %llu bytes are missing",
                 (unsigned long long)f->left);
        conn_close(c);
        return;
    }
    f->at += (uint64_t)n;
    f->left -= (uint64_t)n;
    conn_enter(c, CONN_FILE); /* the time-out is for one block */
    conn_want_write(c);       /* not now: others first */
}

static void on_thread(struct work *w)
{
    struct file_answer *f = container_of(w, struct file_answer, work);

    do
        f->got = pread(f->fd, f->block, next_bytes(f), (off_t)f->at);
    while (f->got < 0 && errno == EINTR);
}

static void on_read(struct work *w)
{
    struct file_answer *f = container_of(w, struct file_answer, work);

    f->reading = false;
    if (f->conn == NULL) {
        destroy(f);
        return;
    }
    if (f->got > 0)
        buf_add(conn_out(f->conn), f->block, (size_t)f->got);
    took(f->conn, f->got);
}

static void read_elsewhere(struct conn *c)
{
    struct file_answer *f = c->file;
    struct http_server *s = c->server;

    if (s->readers == NULL)
        s->readers = work_pool_new(s->loop, READER_THREADS);
    if (f->block == NULL)
        f->block = xmalloc(BLOCK_BYTES);
    f->got = -1;
    f->work = (struct work){.run = on_thread, .done = on_read};
    f->reading = work_start(s->readers, &f->work) == BH_OK;
    if (!f->reading)
        conn_close(c); /* no thread, or a thousand readers before us */
}

void http_file_pump(struct conn *c)
{
    struct file_answer *f = c->file;
    struct iovec block = {.iov_len = next_bytes(f)};
    ssize_t n;

    if (f->reading)
        return;
    if (f->left == 0) {
        finish(c);
        return;
    }
    block.iov_base = buf_room(conn_out(c), block.iov_len); /* it is empty: there is room */
    n = preadv2(f->fd, &block, 1, (off_t)f->at, RWF_NOWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EOPNOTSUPP || errno == EINTR)) {
        read_elsewhere(c);
        return;
    }
    c->out.n += n > 0 ? (size_t)n : 0;
    took(c, n);
}

/* ---- the answer ---- */

static bool wants_part(const struct http_file *f)
{
    if (f->range.p == NULL)
        return false;
    return f->if_range.p == NULL || (f->etag != NULL && str_eq(f->if_range, str_of(f->etag)));
}

/* The status, and the header lines that go with it. */
static int choose(const struct http_file *f, struct buf *lines, uint64_t *at, uint64_t *n)
{
    enum http_range_end end =
        wants_part(f) ? http_range_read(f->range, f->size, at, n) : RANGE_WHOLE;

    if (f->etag != NULL)
        buf_printf(lines, "ETag: %s\r\n", f->etag);
    buf_add_z(lines, "Accept-Ranges: bytes\r\n");
    if (end == RANGE_OUTSIDE) {
        *n = 0;
        buf_printf(lines, "Content-Range: bytes */%llu\r\n", (unsigned long long)f->size);
        return 416;
    }
    if (end == RANGE_PART) {
        buf_printf(lines, "Content-Range: bytes %llu-%llu/%llu\r\n", (unsigned long long)*at,
                   (unsigned long long)(*at + *n - 1), (unsigned long long)f->size);
        return 206;
    }
    *at = 0;
    *n = f->size;
    return 200;
}

void http_answer_file(struct http_server *s, struct http_id id, const struct http_answer *head,
                      const struct http_file *file)
{
    struct conn *c = http_find(s, id);
    struct file_answer *f;
    struct buf lines = BUF_INIT;
    struct http_answer a = *head;

    if (c == NULL || c->state != CONN_HANDLING) {
        close(file->fd);
        return;
    }
    f = xcalloc(1, sizeof *f);
    *f = (struct file_answer){.conn = c, .fd = file->fd};
    f->last = head->close || !c->keep_alive || s->draining || c->body_waits;
    a.status = choose(file, &lines, &f->at, &f->left);
    buf_add_z(&lines, head->headers != NULL ? head->headers : "");
    a.headers = buf_z(&lines);
    http_put_head(c, &a, FRAME_LENGTH, f->left, f->last);
    buf_done(&lines);
    if (c->is_head)
        f->left = 0;
    c->file = f;
    conn_enter(c, CONN_FILE);
    conn_mark(c);
}
