/* seen.c - two maps over the same entries and a list that says who is forgotten first.
 *
 * (seen.h has the contract.)  Pending entries are never evicted: their number is bounded by
 * whoever stops reading the socket. */
#include "seen.h"
#include <assert.h>
#include <stdlib.h>

static struct str number_key(const struct seen_entry *e)
{
    return str_make(&e->number, sizeof e->number);
}

void seen_init(struct seen *l, size_t keep)
{
    *l = (struct seen){.by_id = MAP_INIT, .by_number = MAP_INIT, .keep = keep};
    list_init(&l->settled);
}

void seen_done(struct seen *l)
{
    void *e;

    for (size_t pos = 0; map_next(&l->by_id, &pos, &e);)
        free(e);
    map_done(&l->by_id);
    map_done(&l->by_number);
}

struct seen_entry *seen_find(const struct seen *l, struct str id)
{
    return map_get(&l->by_id, id);
}

struct seen_entry *seen_add(struct seen *l, struct str id, uint64_t socket)
{
    assert(id.n <= SEEN_ID_MAX && seen_find(l, id) == NULL);
    struct seen_entry *e = xcalloc(1, sizeof *e + id.n + 1);
    list_init(&e->link);
    e->number = ++l->last_number;
    e->socket = socket;
    e->state = SEEN_PENDING;
    e->id_bytes = id.n;
    memcpy(e->id, id.p, id.n);
    map_put(&l->by_id, seen_id(e), e);
    map_put(&l->by_number, number_key(e), e);
    return e;
}

struct seen_entry *seen_pending(const struct seen *l, uint64_t number)
{
    return map_get(&l->by_number, str_make(&number, sizeof number));
}

static void drop(struct seen *l, struct seen_entry *e)
{
    map_del(&l->by_id, seen_id(e));
    list_remove(&e->link);
    free(e);
}

void seen_settle(struct seen *l, struct seen_entry *e)
{
    assert(e->state == SEEN_PENDING);
    map_del(&l->by_number, number_key(e));
    e->state = SEEN_SETTLED;
    list_append(&l->settled, &e->link);
    if (++l->n_settled > l->keep) {
        drop(l, list_first(&l->settled, struct seen_entry, link));
        l->n_settled--;
    }
}

void seen_forget(struct seen *l, struct seen_entry *e)
{
    assert(e->state == SEEN_PENDING);
    map_del(&l->by_number, number_key(e));
    drop(l, e);
}
