/* mem.h - allocation that aborts when memory is gone, and the cast from a member to its owner.
 *
 * Sizes chosen by a peer are checked against a configured limit before they get here. */
#pragma once
#include <stddef.h>

void *xmalloc(size_t n);
void *xcalloc(size_t count, size_t size); /* zeroed; aborts on overflow of the product */
void *xrealloc(void *p, size_t n);
char *xstrdup(const char *s);            /* NULL stays NULL */
char *xstrndup(const char *s, size_t n); /* always NUL-terminated */

/* Hand back what only start-up needed: freed heap, and the pages of code that ran once.
 * Code that is needed again comes back from the system's file cache.  Worth one call,
 * when start-up is over. */
void mem_trim(void);

#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
