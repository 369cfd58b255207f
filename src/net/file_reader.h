/* file_reader.h - reads a part of a file, block by block, without blocking the loop.  Private to
 * src/net/.
 *
 *      take: from the page cache (RWF_NOWAIT) --> bytes
 *              '--not in the cache--> a thread reads a block --> ready() --> take: bytes
 *
 * A file system without RWF_NOWAIT is always read by a thread. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct work_pool;

enum { FILE_BLOCK_BYTES = 64 * 1024 };

/* Reads @n bytes of @fd (taken over) from @at on.  @ready runs when taking on after
 * FILE_READER_WAIT makes sense, never inside a call. */
struct file_reader *file_reader_new(struct work_pool *readers, int fd, uint64_t at, uint64_t n,
                                    void (*ready)(void *ctx), void *ctx);
void file_reader_free(struct file_reader *f); /* @ready does not run any more; NULL is fine */
uint64_t file_reader_left(const struct file_reader *f);

#define FILE_READER_WAIT ((ssize_t)-1)
#define FILE_READER_BROKEN ((ssize_t)-2) /* the file cannot be read, or has become shorter */
/* The next bytes, at most @n; 0: the end. */
ssize_t file_reader_take(struct file_reader *f, char *p, size_t n);
