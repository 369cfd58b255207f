/* mem.c - allocation that aborts.
 *
 * The connector cannot recover from a failed small allocation, and sizes that a peer chooses are
 * limited before.  So a NULL means that the machine is out of memory, and the process aborts. */
#include "base/mem.h"
#include <link.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void *must(void *p, size_t n)
{
    if (p == NULL) {
        fprintf(stderr, "bellhop: out of memory (%zu bytes)\n", n);
        abort();
    }
    return p;
}

void *xmalloc(size_t n)
{
    return must(malloc(n > 0 ? n : 1), n);
}

void *xcalloc(size_t count, size_t size)
{
    size_t n;

    if (__builtin_mul_overflow(count, size, &n))
        must(NULL, SIZE_MAX);
    return must(calloc(1, n > 0 ? n : 1), n);
}

void *xrealloc(void *p, size_t n)
{
    return must(realloc(p, n > 0 ? n : 1), n);
}

void *xgrow(void *p, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return p;
    *cap = *cap != 0 ? 2 * *cap : 16;
    return xrealloc(p, *cap * size);
}

char *xstrdup(const char *s)
{
    return s != NULL ? must(strdup(s), strlen(s)) : NULL;
}

char *xstrndup(const char *s, size_t n)
{
    char *copy = xmalloc(n + 1);
    size_t len = n > 0 ? strnlen(s, n) : 0;

    if (len > 0)
        memcpy(copy, s, len);
    copy[len] = '\0';
    return copy;
}

/* Segments that cannot be written are the file's own pages: dropping them loses nothing. */
static int trim_object(struct dl_phdr_info *info, size_t size, void *ctx)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        if (h->p_type != PT_LOAD || (h->p_flags & PF_W) != 0)
            continue;
        uintptr_t start = (info->dlpi_addr + h->p_vaddr) & ~(page - 1);
        uintptr_t end = (info->dlpi_addr + h->p_vaddr + h->p_filesz) & ~(page - 1);
        if (end > start)
            (void)madvise((void *)start, end - start, MADV_DONTNEED); /* refused: no harm done */
    }
    return 0;
}

void mem_trim(void)
{
    malloc_trim(0);
    dl_iterate_phdr(trim_object, NULL);
}
