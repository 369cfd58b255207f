/* company.c - design.  (company.h has the contract.)
 *
 * One word for each place: 56 bits of its keyed hash, 8 of the count.  Two places that share 56
 * bits would share their count, which costs a name in front of a message and nothing else.
 *
 * A thousand small tables instead of a large one: each grows by itself and by a quarter, so no
 * single call takes long and a place costs 10 to 13 bytes.  Open addressing, the home of a word is
 * its share of the table; leaving closes the gap, so there are no tombstones. */
#include "relay/out/company.h"
#include <stdlib.h>
#include "base/buf.h"
#include "base/mem.h"
#include "relay/heart.h"
#include "store/store.h"

enum { PART_BITS = 10, PARTS = 1 << PART_BITS, COUNT_BITS = 8, FIRST_CAP = 8 };
#define COUNT_MASK ((uint64_t)COMPANY_MOST)

struct part {
    uint64_t *at; /* owned; 0: free */
    uint32_t cap, n;
};

struct company {
    struct part parts[PARTS];
    struct buf scratch;
};

struct company *company_new(void)
{
    return xcalloc(1, sizeof(struct company));
}

void company_free(struct company *t)
{
    if (t == NULL)
        return;
    for (size_t i = 0; i < PARTS; i++)
        free(t->parts[i].at);
    buf_done(&t->scratch);
    free(t);
}

uint64_t company_place(const struct relay *r, struct str platform, struct str bot,
                       struct str chat_id)
{
    struct buf *b = &r->company->scratch;

    buf_reset(b);
    buf_add_str(b, platform);
    buf_add_c(b, '\x1f');
    buf_add_str(b, bot);
    buf_add_c(b, '\x1f');
    buf_add_str(b, chat_id);
    uint64_t place = hash64(&r->env.store->dedup_key, buf_str(b)) & ~COUNT_MASK;
    return place != 0 ? place : COUNT_MASK + 1;
}

/* ---- one table ---- */

static struct part *part_of(struct company *t, uint64_t place)
{
    return &t->parts[place >> (64 - PART_BITS)];
}

static uint32_t home(const struct part *p, uint64_t word)
{
    return (uint32_t)((word >> COUNT_BITS & UINT32_MAX) * p->cap >> 32);
}

static uint32_t after(const struct part *p, uint32_t i)
{
    return i + 1 < p->cap ? i + 1 : 0;
}

/* How far behind @from, round the end. */
static uint32_t way(const struct part *p, uint32_t from, uint32_t to)
{
    return to >= from ? to - from : to + p->cap - from;
}

/* Where @place is, or the free slot where it belongs. */
static uint32_t probe(const struct part *p, uint64_t place)
{
    uint32_t i = home(p, place);

    while (p->at[i] != 0 && (p->at[i] & ~COUNT_MASK) != place)
        i = after(p, i);
    return i;
}

static void grow(struct part *p)
{
    struct part old = *p;

    p->cap = old.cap != 0 ? old.cap + old.cap / 4 : FIRST_CAP;
    p->at = xcalloc(p->cap, sizeof p->at[0]);
    for (uint32_t i = 0; i < old.cap; i++)
        if (old.at[i] != 0)
            p->at[probe(p, old.at[i] & ~COUNT_MASK)] = old.at[i];
    free(old.at);
}

static void close_gap(struct part *p, uint32_t gap)
{
    for (uint32_t i = after(p, gap); p->at[i] != 0; i = after(p, i)) {
        if (way(p, home(p, p->at[i]), i) < way(p, gap, i))
            continue; /* it would leave its own run */
        p->at[gap] = p->at[i];
        gap = i;
    }
    p->at[gap] = 0;
}

/* ---- counting ---- */

void company_prefetch(const struct relay *r, uint64_t place)
{
    const struct part *p = part_of(r->company, place);

    if (p->cap != 0)
        __builtin_prefetch(&p->at[home(p, place)], 1);
}

void company_join(struct relay *r, uint64_t place)
{
    struct part *p = part_of(r->company, place);

    if ((p->n + 1) * 5 > p->cap * 4)
        grow(p);
    uint64_t *word = &p->at[probe(p, place)];
    if (*word == 0) {
        *word = place;
        p->n++;
    }
    if ((*word & COUNT_MASK) < COMPANY_MOST)
        ++*word;
}

void company_leave(struct relay *r, uint64_t place)
{
    struct part *p = part_of(r->company, place);
    unsigned n = company_count(r, place);

    if (n == 0 || n == COMPANY_MOST)
        return;
    uint32_t i = probe(p, place);
    p->at[i]--;
    if (n > 1)
        return;
    close_gap(p, i);
    p->n--;
}

unsigned company_count(const struct relay *r, uint64_t place)
{
    const struct part *p = part_of(r->company, place);

    return p->cap != 0 ? (unsigned)(p->at[probe(p, place)] & COUNT_MASK) : 0;
}
