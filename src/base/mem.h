/* mem.h - allocation that aborts when memory is exhausted, and container_of().
 *
 * Callers check sizes that a peer chose against a configured limit first. */
#pragma once
#include <stddef.h>

void *xmalloc(size_t n);
void *xcalloc(size_t count, size_t size); /* zeroed; aborts on overflow of the product */
void *xrealloc(void *p, size_t n);
/* Makes room for one more element behind the @n that @p has: doubles *@cap when it is full. */
void *xgrow(void *p, size_t n, size_t *cap, size_t size);
char *xstrdup(const char *s);            /* NULL stays NULL */
char *xstrndup(const char *s, size_t n); /* always NUL-terminated */

/* Returns memory that only start-up needed: freed heap, and code pages that ran once.  Code that is
 * needed again is reloaded from the page cache.  Call it once, after start-up. */
void mem_trim(void);

#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
