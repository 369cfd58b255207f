/* file_body.c - design.  (file_body.h has the contract.)
 *
 * The same two ways as answers from a file (http_file.c): asked without waiting, and only what the
 * cache lacks goes to a thread, a block at a time. */
#include "net/file_body.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>
#include "base/mem.h"

enum { BLOCK_BYTES = 64 * 1024 };

struct file_body {
    struct work work;
    struct work_pool *readers; /* borrowed */
    struct buf before, after;  /* owned */
    int fd;                    /* owned */
    uint64_t size, at;         /* of the file */
    size_t before_at, after_at;
    char *block; /* owned; NULL: never needed */
    ssize_t n_block;
    size_t block_at;
    bool reading, gone, broken;
    void (*ready)(void *ctx);
    void *ctx;
};

struct file_body *file_body_new(struct work_pool *readers, const struct http_file_body *f,
                                void (*ready)(void *ctx), void *ctx)
{
    int fd = fcntl(f->fd, F_DUPFD_CLOEXEC, 0);

    if (fd < 0)
        return NULL;
    struct file_body *b = xcalloc(1, sizeof *b);
    *b = (struct file_body){.readers = readers, .fd = fd, .size = f->size};
    b->ready = ready;
    b->ctx = ctx;
    buf_add_str(&b->before, f->before);
    buf_add_str(&b->after, f->after);
    return b;
}

static void destroy(struct file_body *b)
{
    close(b->fd);
    buf_wipe(&b->before); /* may carry a token */
    buf_wipe(&b->after);
    free(b->block);
    free(b);
}

void file_body_free(struct file_body *b)
{
    if (b == NULL)
        return;
    b->gone = true;
    if (!b->reading)
        destroy(b);
}

uint64_t file_body_size(const struct file_body *b)
{
    return b->before.n + b->size + b->after.n;
}

/* ---- a block from a thread ---- */

static void on_thread(struct work *w)
{
    struct file_body *b = container_of(w, struct file_body, work);
    uint64_t left = b->size - b->at;

    do
        b->n_block =
            pread(b->fd, b->block, left < BLOCK_BYTES ? (size_t)left : BLOCK_BYTES, (off_t)b->at);
    while (b->n_block < 0 && errno == EINTR);
}

static void on_block(struct work *w)
{
    struct file_body *b = container_of(w, struct file_body, work);

    b->reading = false;
    if (b->gone) {
        destroy(b);
        return;
    }
    b->block_at = 0;
    b->broken = b->n_block <= 0;
    b->ready(b->ctx);
}

static ssize_t read_elsewhere(struct file_body *b)
{
    if (b->block == NULL)
        b->block = xmalloc(BLOCK_BYTES);
    b->n_block = 0;
    b->work = (struct work){.run = on_thread, .done = on_block};
    b->reading = work_start(b->readers, &b->work) == BH_OK;
    return b->reading ? FILE_BODY_WAIT : FILE_BODY_BROKEN;
}

/* ---- reading ---- */

static ssize_t from_buf(const struct buf *from, size_t *at, char *p, size_t n)
{
    size_t left = from->n - *at;

    n = n < left ? n : left;
    memcpy(p, from->p + *at, n);
    *at += n;
    return (ssize_t)n;
}

static ssize_t from_file(struct file_body *b, char *p, size_t n)
{
    struct iovec to = {.iov_base = p, .iov_len = n < b->size - b->at ? n : b->size - b->at};
    ssize_t k;

    if (b->reading)
        return FILE_BODY_WAIT;
    if (b->broken)
        return FILE_BODY_BROKEN;
    if (b->n_block > 0 && b->block_at < (size_t)b->n_block) {
        size_t left = (size_t)b->n_block - b->block_at;
        k = (ssize_t)(n < left ? n : left);
        memcpy(p, b->block + b->block_at, (size_t)k);
        b->block_at += (size_t)k;
    } else {
        k = preadv2(b->fd, &to, 1, (off_t)b->at, RWF_NOWAIT);
        if (k < 0)
            return read_elsewhere(b);
        if (k == 0)
            return FILE_BODY_BROKEN;
    }
    b->at += (uint64_t)k;
    return k;
}

ssize_t file_body_read(struct file_body *b, char *p, size_t n)
{
    if (b->before_at < b->before.n)
        return from_buf(&b->before, &b->before_at, p, n);
    if (b->at < b->size)
        return from_file(b, p, n);
    if (b->after_at < b->after.n)
        return from_buf(&b->after, &b->after_at, p, n);
    return 0;
}
