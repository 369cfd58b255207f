/* numbers.c - see impl.h.  Mailboxes are numbered densely from 1 on, so what is kept of each lies
 * in an array by its number, in pages that are made when one of theirs is used: 16 bytes a mailbox.
 */
#include <stdlib.h>
#include "base/mem.h"
#include "store/postgres/impl.h"

#define PAGE_BITS 10
#define N_PAGES (((size_t)STORE_MAX_BOX >> PAGE_BITS) + 1)
#define BLOCK 64 /* so many messages of a mailbox cost one change of its row */

struct pg_number {
    uint64_t next, last; /* those from @next up to @last are ours; both 0: none */
};

void pg_numbers_done(struct pg_numbers *t)
{
    for (size_t i = 0; t->pages != NULL && i < N_PAGES; i++)
        free(t->pages[i]);
    free(t->pages);
    t->pages = NULL;
}

static struct pg_number *number_of(struct pg_numbers *t, uint32_t box)
{
    if (t->pages == NULL)
        t->pages = xcalloc(N_PAGES, sizeof *t->pages);
    struct pg_number **page = &t->pages[box >> PAGE_BITS];
    if (*page == NULL)
        *page = xcalloc((size_t)1 << PAGE_BITS, sizeof **page);
    return &(*page)[box & ((1u << PAGE_BITS) - 1)];
}

static size_t left(const struct pg_number *n)
{
    return n->last != 0 ? (size_t)(n->last - n->next + 1) : 0;
}

size_t pg_numbers_short(struct pg_numbers *t, uint32_t box, size_t n)
{
    size_t have = left(number_of(t, box));

    if (have >= n)
        return 0;
    return n - have > BLOCK ? n - have : BLOCK;
}

void pg_numbers_add(struct pg_numbers *t, uint32_t box, uint64_t last, size_t n)
{
    struct pg_number *k = number_of(t, box);

    if (k->last == 0 || k->last + n != last) /* else they follow those we have */
        k->next = last - n + 1;
    k->last = last;
}

uint64_t pg_numbers_use(struct pg_numbers *t, uint32_t box, size_t n)
{
    struct pg_number *k = number_of(t, box);
    uint64_t first = k->next;

    k->next += n;
    return first;
}

void pg_numbers_drop(struct pg_numbers *t, uint32_t box)
{
    *number_of(t, box) = (struct pg_number){0};
}
