/* file_reader.c - (file_reader.h has the contract and the picture.) */
#include "net/file_reader.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include "base/mem.h"
#include "net/work.h"

struct file_reader {
    struct work work;
    struct work_pool *readers; /* borrowed */
    int fd;                    /* owned */
    uint64_t at, left;
    char *block;     /* owned; for the thread to read into; NULL until it has to */
    ssize_t n_block; /* bytes of it; -1: the thread could not read */
    size_t block_at; /* bytes of it that were taken */
    bool reading;    /* @work is with the readers, and so is @block */
    bool gone;       /* freed while reading: the memory goes when that ends */
    void (*ready)(void *ctx);
    void *ctx;
};

struct file_reader *file_reader_new(struct work_pool *readers, int fd, uint64_t at, uint64_t n,
                                    void (*ready)(void *ctx), void *ctx)
{
    struct file_reader *f = xcalloc(1, sizeof *f);

    *f = (struct file_reader){
        .readers = readers, .fd = fd, .at = at, .left = n, .ready = ready, .ctx = ctx};
    return f;
}

void file_reader_free(struct file_reader *f)
{
    if (f == NULL)
        return;
    f->gone = true;
    if (f->reading)
        return;
    close(f->fd);
    free(f->block);
    free(f);
}

uint64_t file_reader_left(const struct file_reader *f)
{
    return f->left;
}

static void on_thread(struct work *w)
{
    struct file_reader *f = container_of(w, struct file_reader, work);
    size_t n = f->left < FILE_BLOCK_BYTES ? (size_t)f->left : FILE_BLOCK_BYTES;

    do
        f->n_block = pread(f->fd, f->block, n, (off_t)f->at);
    while (f->n_block < 0 && errno == EINTR);
    if (f->n_block == 0)
        f->n_block = -1;
}

static void on_block(struct work *w)
{
    struct file_reader *f = container_of(w, struct file_reader, work);

    f->reading = false;
    if (f->gone)
        file_reader_free(f);
    else
        f->ready(f->ctx);
}

static ssize_t read_on_thread(struct file_reader *f)
{
    if (f->block == NULL)
        f->block = xmalloc(FILE_BLOCK_BYTES);
    f->n_block = -1;
    f->block_at = 0;
    f->work = (struct work){.run = on_thread, .done = on_block};
    f->reading = work_start(f->readers, &f->work) == BH_OK;
    return f->reading ? FILE_READER_WAIT : FILE_READER_BROKEN;
}

ssize_t file_reader_take(struct file_reader *f, char *p, size_t n)
{
    struct iovec to = {.iov_base = p, .iov_len = n < f->left ? n : (size_t)f->left};
    ssize_t k;

    if (f->reading)
        return FILE_READER_WAIT;
    if (f->left == 0)
        return 0;
    if (f->n_block < 0)
        return FILE_READER_BROKEN;
    if (f->block_at < (size_t)f->n_block) {
        size_t left = (size_t)f->n_block - f->block_at;
        k = (ssize_t)(n < left ? n : left);
        memcpy(p, f->block + f->block_at, (size_t)k);
        f->block_at += (size_t)k;
    } else {
        k = preadv2(f->fd, &to, 1, (off_t)f->at, RWF_NOWAIT);
        if (k < 0)
            return read_on_thread(f);
        if (k == 0)
            return FILE_READER_BROKEN;
    }
    f->at += (uint64_t)k;
    f->left -= (uint64_t)k;
    return k;
}
