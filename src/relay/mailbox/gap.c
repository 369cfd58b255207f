/* gap.c - design.  (gap.h has the contract.)
 *
 * One read per instance at a time.  It asks for no bodies: the pump reads those when it wants
 * them. */
#include "relay/mailbox/gap.h"
#include <stdlib.h>
#include "relay/heart.h"
#include "relay/session/pump.h"
#include "relay/sleep/instance.h"
#include "store/store.h"

enum { BOX_SHIFT = 40 };

struct gap {
    struct store_list op;
    struct list link;      /* gaps->under_way */
    struct instance *inst; /* borrowed */
    bool again;            /* something came while we read */
};

struct erasing { /* a mailbox that nobody holds any more */
    struct store_erase op;
    struct list link;    /* gaps->erasings */
    struct relay *relay; /* borrowed */
    bool failed;
};

struct gaps {
    struct list under_way, erasings;
};

struct gaps *gaps_new(void)
{
    struct gaps *t = xcalloc(1, sizeof *t);

    list_init(&t->under_way);
    list_init(&t->erasings);
    return t;
}

void gaps_free(struct gaps *t)
{
    if (t == NULL)
        return;
    list_each (&t->under_way, it, nxt)
        free(list_entry(it, struct gap, link));
    list_each (&t->erasings, at, after)
        free(list_entry(at, struct erasing, link));
    free(t);
}

bool gap_is_next(const struct instance *i, uint64_t row)
{
    uint64_t before = i->newest_row != 0 ? i->newest_row : (uint64_t)i->box << BOX_SHIFT;

    return row == before + 1;
}

static void take(struct instance *i, const struct store_list *read)
{
    for (size_t k = 0; k < read->n_rows; k++)
        if (read->rows[k].id > i->newest_row)
            instance_push_row(i, &read->rows[k]);
    pump_want(i);
    wake_for_mail(i);
}

static void on_read(struct store_op *op, enum bh_err err)
{
    struct gap *g = container_of(op, struct gap, op.op);
    struct instance *i = g->inst;
    bool again = g->again || g->op.box != i->box || (err == BH_OK && g->op.more);

    if (err == BH_OK && g->op.box == i->box)
        take(i, &g->op);
    if (err == BH_OK)
        i->relay->store_ops->list_free(&g->op);
    list_remove(&g->link);
    i->gap = NULL;
    free(g);
    if (err != BH_OK) {
        i->gap_owed = true;
        retry_want(i);
    } else if (again) {
        gap_want(i);
    }
}

void gap_want(struct instance *i)
{
    if (i->gap != NULL) {
        i->gap->again = true;
        return;
    }
    struct gap *g = xcalloc(1, sizeof *g);
    g->inst = i;
    g->op = (struct store_list){.op = {.done = on_read}, .box = i->box, .after = i->newest_row};
    list_init(&g->link);
    list_append(&i->relay->gaps->under_way, &g->link);
    i->gap = g;
    i->gap_owed = false;
    store_list(i->relay->env.store, &g->op);
}

void gap_retry(struct instance *i)
{
    if (i->gap_owed)
        gap_want(i);
}

/* ---- mailboxes of holders that have gone ---- */

static void on_erased(struct store_op *op, enum bh_err err)
{
    struct erasing *e = container_of(op, struct erasing, op.op);

    if (err == BH_OK && e->op.more) {
        store_erase(e->relay->env.store, &e->op);
        return;
    }
    e->failed = err != BH_OK;
    if (e->failed) {
        retry_want_acks(e->relay);
        return;
    }
    list_remove(&e->link);
    free(e);
}

void gap_erase(struct instance *i)
{
    struct relay *r = i->relay;
    struct erasing *e;

    if (!r->env.store->shared)
        return;
    e = xcalloc(1, sizeof *e);
    e->relay = r;
    e->op = (struct store_erase){.op = {.done = on_erased}, .box = i->box, .up_to = UINT64_MAX};
    list_init(&e->link);
    list_append(&r->gaps->erasings, &e->link);
    store_erase(r->env.store, &e->op);
}

void gap_erase_retry(struct relay *r)
{
    list_each (&r->gaps->erasings, it, nxt) {
        struct erasing *e = list_entry(it, struct erasing, link);
        if (!e->failed)
            continue;
        e->failed = false;
        store_erase(r->env.store, &e->op);
    }
}
