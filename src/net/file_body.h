/* file_body.h - the body of a request that is a file, with something before and behind it.
 *
 * Read as libcurl asks for it.  What is not in the system's cache is read on a thread; until it is
 * there file_body_read() says FILE_BODY_WAIT, and @ready runs when it pays to ask again.  Private
 * to src/net/. */
#pragma once
#include <sys/types.h>
#include "net/http_client.h"
#include "net/work.h"

struct file_body;

#define FILE_BODY_WAIT ((ssize_t)-1)
#define FILE_BODY_BROKEN ((ssize_t)-2) /* the file cannot be read, or is shorter than it was */

/* NULL: no descriptor is left. */
struct file_body *file_body_new(struct work_pool *readers, const struct http_file_body *f,
                                void (*ready)(void *ctx), void *ctx);
void file_body_free(struct file_body *b); /* NULL is fine; @ready does not run any more */
uint64_t file_body_size(const struct file_body *b);
ssize_t file_body_read(struct file_body *b, char *p, size_t n); /* 0: that was all */
