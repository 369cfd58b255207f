/* look.c - looking at mailboxes and tending them: status, `bellhop mailbox`, purge and redrive. */
#include <stdlib.h>
#include "relay/delivery.h"
#include "relay/heart.h"
#include "relay/instance.h"
#include "relay/look.h"
#include "relay/pump.h"
#include "relay/session.h"
#include "store/store.h"
#include "tenancy/facts.h"

enum { SHOW_MAX_ROWS = 10000, SHOW_MAX_BYTES = 8 << 20 };

const struct relay_counters *relay_counters(const struct relay *r)
{
    return &r->n;
}

static size_t count_sessions(const struct instance *i)
{
    size_t n = 0;

    for (const struct list *it = i->sessions.next; it != &i->sessions; it = it->next)
        n++;
    return n;
}

static int64_t oldest_ms(const struct instance *i)
{
    for (uint32_t at = 0; at < i->mb.n; at++)
        if ((mailbox_at(&i->mb, at)->flags & SLOT_GONE) == 0)
            return (int64_t)mailbox_at(&i->mb, at)->at_s * 1000;
    return 0;
}

static void view(struct instance *i, struct instance_view *ret)
{
    const struct facts *facts = i->relay->env.facts;

    *ret = (struct instance_view){
        .tenant = instance_tenant(i),
        .instance = instance_id(i),
        .state = instance_state(i),
        .sessions = count_sessions(i),
        .entries = mailbox_entries(&i->mb),
        .bytes = mailbox_bytes(&i->mb),
        .unacked = i->receiver != NULL ? flight_rows(i->receiver->flight) : 0,
        .parked = i->mb.parked,
        .oldest_ms = oldest_ms(i),
        .last_inbound_ms = i->last_inbound_ms,
        .last_outbound_ms = i->last_outbound_ms,
        .flipped_ms = i->flipped ? i->flipped_ms : 0,
        .last_poke_ms = i->wake.last_wall_ms,
        .wake_url = facts_wake_url(facts, instance_tenant(i), instance_id(i)) != NULL,
        .last_poke_problem = i->wake.problem,
    };
}

void relay_each_instance(struct relay *r, instance_view_cb *cb, void *ctx)
{
    list_each (&r->instances, it, nxt) {
        struct instance_view v;
        view(list_entry(it, struct instance, link), &v);
        cb(ctx, &v);
    }
}

bool relay_instance(struct relay *r, struct str tenant, struct str instance,
                    struct instance_view *ret)
{
    struct instance *i = instance_find(r, tenant, instance);

    if (i != NULL)
        view(i, ret);
    return i != NULL;
}

/* ---- show ---- */

struct show {
    struct store_fetch op;
    struct list link; /* relay->shows */
    struct instance *inst;
    mailbox_line_cb *each;
    accepted_cb *done;
    void *ctx;
    uint64_t ids[];
};

static void show_row(struct show *w, const struct store_row *row)
{
    struct instance *i = w->inst;
    const struct slot *slot = mailbox_find(&i->mb, row->id);

    if (slot == NULL)
        return; /* settled while we read */
    struct mailbox_line line = {.id = row->id,
                                .at_ms = row->at_ms,
                                .attempts = slot->attempts,
                                .sent = slot_waits(slot) && i->receiver != NULL &&
                                        session_has_sent(i->receiver, row->id),
                                .frame = row->frame};
    if ((slot->flags & SLOT_PARKED) != 0)
        line.parked = row->parked.p != NULL ? row->parked : STR("parked");
    w->each(w->ctx, &line);
}

static void on_shown(struct store_op *op, enum bh_err err)
{
    struct show *w = container_of(op, struct show, op.op);
    struct store *st = w->inst->relay->env.store;

    for (size_t k = 0; err == BH_OK && k < w->op.n_rows; k++)
        show_row(w, &w->op.rows[k]);
    if (err == BH_OK)
        st->ops->fetch_free(&w->op);
    list_remove(&w->link);
    w->done(w->ctx, err);
    free(w);
}

struct nobody { /* an answer for an instance that is not there */
    accepted_cb *done;
    void *ctx;
};

static void on_nobody(void *ctx)
{
    struct nobody *n = ctx;

    n->done(n->ctx, BH_NOT_FOUND);
    free(n);
}

void relay_mailbox_show(struct relay *r, struct str tenant, struct str instance, size_t limit,
                        mailbox_line_cb *each, accepted_cb *done, void *ctx)
{
    struct instance *i = instance_find(r, tenant, instance);

    if (i == NULL) {
        struct nobody *n = xmalloc(sizeof *n);
        *n = (struct nobody){done, ctx};
        clock_defer(r->env.clock, on_nobody, n);
        return;
    }
    if (limit == 0 || limit > SHOW_MAX_ROWS)
        limit = SHOW_MAX_ROWS;
    if (limit > mailbox_entries(&i->mb))
        limit = mailbox_entries(&i->mb);
    struct show *w = xcalloc(1, sizeof *w + limit * sizeof w->ids[0]);
    size_t n = 0;
    for (uint32_t at = 0; at < i->mb.n && n < limit; at++)
        if ((mailbox_at(&i->mb, at)->flags & SLOT_GONE) == 0)
            w->ids[n++] = mailbox_at(&i->mb, at)->id;
    w->inst = i;
    w->each = each;
    w->done = done;
    w->ctx = ctx;
    w->op = (struct store_fetch){.op = {.done = on_shown},
                                 .ids = w->ids,
                                 .n = n,
                                 .max_bytes = SHOW_MAX_BYTES};
    list_init(&w->link);
    list_append(&r->shows, &w->link);
    store_fetch(r->env.store, &w->op);
}

void look_free_all(struct relay *r)
{
    list_each (&r->shows, it, nxt)
        free(list_entry(it, struct show, link));
    list_init(&r->shows);
}

/* ---- tending ---- */

uint64_t relay_mailbox_purge(struct relay *r, struct str tenant, struct str instance)
{
    struct instance *i = instance_find(r, tenant, instance);
    uint64_t n = 0;

    if (i == NULL)
        return 0;
    for (uint32_t at = 0; at < i->mb.n; at++) {
        struct slot *slot = mailbox_at(&i->mb, at);
        if ((slot->flags & SLOT_GONE) != 0)
            continue;
        delivery_settle(i, slot);
        n++;
    }
    mailbox_tidy(&i->mb);
    r->n.purged += n;
    log_info(NULL, "mailbox purged: tenant=%.*s instance=%.*s entries=%llu",
             STR_FMT(instance_tenant(i)), STR_FMT(instance_id(i)), (unsigned long long)n);
    return n;
}

/* A socket that passed @id by goes back for it, if it was certainly never sent it. */
static void send_again(struct instance *i, uint64_t id)
{
    struct session *s = i->receiver;

    if (s == NULL || id > s->sent_id || s->number <= i->park_mark || s->n_again == UINT16_MAX)
        return;
    s->again = xrealloc(s->again, (s->n_again + 1u) * sizeof s->again[0]);
    s->again[s->n_again++] = id;
}

uint64_t relay_mailbox_redrive(struct relay *r, struct str tenant, struct str instance)
{
    struct instance *i = instance_find(r, tenant, instance);
    uint64_t n = 0;

    if (i == NULL)
        return 0;
    for (uint32_t at = 0; at < i->mb.n; at++) {
        struct slot *slot = mailbox_at(&i->mb, at);
        if ((slot->flags & SLOT_PARKED) == 0)
            continue;
        mailbox_park(&i->mb, slot, false);
        slot->attempts = 0;
        delivery_mark(i, slot, STR_NULL);
        send_again(i, slot->id);
        n++;
    }
    pump_want(i);
    wake_want(i);
    return n;
}
