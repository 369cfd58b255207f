/* order.c - the ops of a group in the order in which they are asked.
 *
 * Whoever is served submits an append, a record, an append, a record: a question each, as they
 * come.  Rows and records are different tables, so the appends go first, then the records in their
 * order, then what deletes and marks rows that were there before (a row that is deleted is gone,
 * marked before or after).  Erasing names rows by a range, which may hold what was just appended:
 * nothing passes it, in either direction. */
#include <stdlib.h>
#include "base/mem.h"
#include "store/postgres/impl.h"

static const enum store_kind turns[] = {STORE_APPEND, STORE_TX, STORE_ACK, STORE_MARK};

static bool may_move(const struct store_op *op)
{
    for (size_t i = 0; i < ARRAY_LEN(turns); i++)
        if (op->kind == turns[i])
            return true;
    return false;
}

static void keep(struct pg_order *o, struct store_op *first, struct store_op *end)
{
    o->n = 0;
    for (struct store_op *op = first; op != end; op = op->next) {
        if (o->n == o->cap) {
            o->cap = 2 * o->cap + 256;
            o->was = xrealloc(o->was, o->cap * sizeof *o->was);
            o->now = xrealloc(o->now, o->cap * sizeof *o->now);
        }
        o->was[o->n++] = op;
    }
}

/* From @at up to the next that stays where it is. */
static size_t arrange(struct pg_order *o, size_t at)
{
    size_t to = at, end = at;

    while (end < o->n && may_move(o->was[end]))
        end++;
    for (size_t t = 0; t < ARRAY_LEN(turns); t++)
        for (size_t i = at; i < end; i++)
            if (o->was[i]->kind == turns[t])
                o->now[to++] = o->was[i];
    if (end < o->n) {
        o->now[end] = o->was[end];
        end++;
    }
    return end;
}

static void link_all(struct store_op **ops, size_t n, struct store_op *end)
{
    for (size_t i = 0; i < n; i++)
        ops[i]->next = i + 1 < n ? ops[i + 1] : end;
}

struct store_op *pg_order_begin(struct pg_order *o, struct store_op *first, struct store_op *end)
{
    keep(o, first, end);
    for (size_t at = 0; at < o->n;)
        at = arrange(o, at);
    link_all(o->now, o->n, end);
    return o->n > 0 ? o->now[0] : first;
}

void pg_order_end(struct pg_order *o, struct store_op *end)
{
    link_all(o->was, o->n, end);
}

void pg_order_done(struct pg_order *o)
{
    free(o->was);
    free(o->now);
}
