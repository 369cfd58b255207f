/* ledger.c - two maps over the same entries and a list that says who is forgotten first.
 *
 * (ledger.h has the contract.)  Pending entries are never evicted: their number is bounded by
 * whoever stops reading the socket. */
#include "ledger.h"
#include <assert.h>
#include <stdlib.h>

static struct str number_key(const struct ledger_entry *e)
{
    return str_make(&e->number, sizeof e->number);
}

void ledger_init(struct ledger *l, size_t keep)
{
    *l = (struct ledger){.by_id = MAP_INIT, .by_number = MAP_INIT, .keep = keep};
    list_init(&l->settled);
}

void ledger_done(struct ledger *l)
{
    void *e;

    for (size_t pos = 0; map_next(&l->by_id, &pos, &e);)
        free(e);
    map_done(&l->by_id);
    map_done(&l->by_number);
}

struct ledger_entry *ledger_find(const struct ledger *l, struct str id)
{
    return map_get(&l->by_id, id);
}

struct ledger_entry *ledger_add(struct ledger *l, struct str id, uint64_t socket)
{
    assert(id.n <= LEDGER_ID_MAX && ledger_find(l, id) == NULL);
    struct ledger_entry *e = xcalloc(1, sizeof *e + id.n + 1);
    list_init(&e->link);
    e->number = ++l->last_number;
    e->socket = socket;
    e->state = LEDGER_PENDING;
    e->id_bytes = id.n;
    memcpy(e->id, id.p, id.n);
    map_put(&l->by_id, ledger_id(e), e);
    map_put(&l->by_number, number_key(e), e);
    return e;
}

struct ledger_entry *ledger_pending(const struct ledger *l, uint64_t number)
{
    return map_get(&l->by_number, str_make(&number, sizeof number));
}

static void drop(struct ledger *l, struct ledger_entry *e)
{
    map_del(&l->by_id, ledger_id(e));
    list_remove(&e->link);
    free(e);
}

void ledger_settle(struct ledger *l, struct ledger_entry *e)
{
    assert(e->state == LEDGER_PENDING);
    map_del(&l->by_number, number_key(e));
    e->state = LEDGER_SETTLED;
    list_append(&l->settled, &e->link);
    if (++l->n_settled > l->keep) {
        drop(l, list_first(&l->settled, struct ledger_entry, link));
        l->n_settled--;
    }
}

void ledger_forget(struct ledger *l, struct ledger_entry *e)
{
    assert(e->state == LEDGER_PENDING);
    map_del(&l->by_number, number_key(e));
    drop(l, e);
}
