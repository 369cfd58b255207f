/* mem.h - allocation that aborts when memory is gone, and the cast from a member to its owner.
 *
 * Sizes chosen by a peer are checked against a configured limit before they get here. */
#pragma once
#include <stddef.h>

void *xmalloc(size_t n);
void *xcalloc(size_t count, size_t size); /* zeroed; aborts on overflow of the product */
void *xrealloc(void *p, size_t n);
char *xstrdup(const char *s);                /* NULL stays NULL */
char *xstrndup(const char *s, size_t n);     /* always NUL-terminated */

#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
